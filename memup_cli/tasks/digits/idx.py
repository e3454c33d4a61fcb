"""idx files, the format of MNIST: a big-endian header with the shape, then the bytes; plain or gzipped."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

from stores.errors import StoreIO

from ...errors import BadInput

_GZIP = b"\x1f\x8b"
_EXPANSION = 1032  # deflate packs at most this many bytes into one
_BLOCK = 1 << 20
_CONTENTS = {3: "images", 1: "labels"}


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array in an idx file, 3 dimensions for images, 1 for labels; BadInput says what is wrong with it."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as raw:
            packed = raw.read(len(_GZIP)) == _GZIP  # not by its name: browsers unpack what they save as .gz
            raw.seek(0)
            if not packed:
                return _parse(raw, path, dimensions, size)
            with gzip.open(raw) as unpacked:
                return _parse(unpacked, path, dimensions, size * _EXPANSION)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput(f"{path} is truncated or damaged: {error}. Fetch it again.") from error
    except OSError as error:
        raise StoreIO(f"cannot read {path}: {error.strerror}") from error


def _parse(file: BinaryIO | gzip.GzipFile, path: Path, dimensions: int, room: int) -> np.ndarray:
    magic = bytes((0, 0, 8, dimensions))  # 8: uint8
    header = file.read(len(magic) + 4 * dimensions)
    if header[: len(magic)] != magic:
        raise BadInput(
            f"{path} is no idx file of {_CONTENTS[dimensions]}: it begins with {header[:4].hex(' ') or 'nothing'}, "
            f"not with {magic.hex(' ')}."
        )
    if len(header) < len(magic) + 4 * dimensions:
        raise BadInput(f"{path} is truncated: it ends within its header. Fetch it again.")
    shape = struct.unpack(f">{dimensions}I", header[len(magic) :])
    size = math.prod(shape)
    promise = f"its header promises {size:,} bytes of {_CONTENTS[dimensions]}"
    if size > room:  # before asking for that much memory
        raise BadInput(f"{path} is truncated: {promise}, more than the file can hold. Fetch it again.")
    values = np.empty(size, np.uint8)
    filled = 0
    while filled < size:
        block = file.read(min(_BLOCK, size - filled))
        if not block:
            raise BadInput(f"{path} is truncated: {promise}, but only {filled:,} are there. Fetch it again.")
        values[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
        filled += len(block)
    if file.read(1):
        raise BadInput(f"{path} is damaged: {promise}, but there are more. Fetch it again.")
    return values.reshape(shape)
