"""Columns of pyarrow as arrays: numbers, also in nested lists, and pictures. BadInput says only what a column has."""

import io
import math
from typing import Any

import numpy as np

from ...errors import BadInput
from ...extras import needs

PIXELS = {"L": 1, "RGB": 3, "RGBA": 4}  # kinds of pictures with a byte a channel, and their channels


def numbers(column: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of a column of pyarrow (n, *shape), whether in nested lists or not."""
    import pyarrow as pa
    import pyarrow.compute

    rows, values = len(column), getattr(column, "storage", column)
    while (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type) or pa.types.is_fixed_size_list(values.type)
    ):
        sizes = pyarrow.compute.min_max(pyarrow.compute.list_value_length(values)).as_py()
        if values.null_count or sizes["min"] != sizes["max"]:
            raise BadInput("has rows that are empty or longer than others")
        values = values.flatten()
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise BadInput(f"holds {kind}, not numbers")
    if values.null_count:
        raise BadInput("has empty cells. Fill them in, or leave the feature out with --observe.")
    if len(values) != rows * math.prod(shape):
        raise BadInput(f"has {len(values) // max(1, rows)} numbers a frame; meta/info.json says that there are {shape}")
    return np.asarray(values.to_numpy(zero_copy_only=False)).reshape(rows, *shape)


def pictures(column: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Pictures of a column, files as bytes, as pixels (n, height, width, channels)."""
    with needs("arrays"):
        import PIL.Image
    import pyarrow as pa
    import pyarrow.compute

    column = getattr(column, "storage", column)
    files = pyarrow.compute.struct_field(column, "bytes") if pa.types.is_struct(column.type) else column
    if files.null_count or not (pa.types.is_binary(files.type) or pa.types.is_large_binary(files.type)):
        raise BadInput("does not hold the pictures themselves. Embed them in the data set.")
    pixels = np.empty((len(files), *shape), np.uint8)
    for at, file in enumerate(files):
        try:
            with PIL.Image.open(io.BytesIO(file.as_py()), formats=("PNG", "JPEG")) as picture:
                found = picture.height, picture.width, PIXELS.get(picture.mode)
                if found != shape:
                    raise BadInput(
                        f"has a picture of {found[0]} x {found[1]} pixels ({picture.mode}); meta/info.json says "
                        f"{shape}, a byte each"
                    )
                pixels[at] = np.asarray(picture).reshape(shape)
        except (OSError, SyntaxError, ValueError) as error:
            raise BadInput(f"has a picture that cannot be read: {error}") from error
    return pixels
