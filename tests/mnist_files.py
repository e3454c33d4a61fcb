"""Small data sets in the files of MNIST."""

import gzip
import struct
from pathlib import Path

import numpy as np


def idx(values: np.ndarray) -> bytes:
    """An idx file of uint8."""
    return bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def digits(count: int, side: int = 28, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, side, side), np.uint8), rng.integers(0, 10, count, np.uint8)


def write_mnist(
    folder: Path, train: int = 30, test: int = 8, *, side: int = 28, seed: int = 0, end: str = ".gz", joint: str = "-"
) -> Path:
    """The four files, of random images; their names end in `end` and have `joint` before idx."""
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count, offset in (("train", train, 0), ("t10k", test, 1)):
        images, labels = digits(count, side, 2 * seed + offset)
        for name, values in (
            (f"{prefix}-images{joint}idx3-ubyte", images),
            (f"{prefix}-labels{joint}idx1-ubyte", labels),
        ):
            data = idx(values)
            (folder / (name + end)).write_bytes(gzip.compress(data, mtime=0) if end == ".gz" else data)
    return folder
