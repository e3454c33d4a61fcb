"""RAM of `memup import arrays`: flat in the size of the file.

    python benchmarks/import_arrays.py [--gb 0.1] [--kinds npy hdf5 parquet] [--folder DIR]

Of each kind of file: peak RSS of importing one with --gb gigabytes (1e9 bytes) of float32, and one with ten times as
much; and their ratio. `--gb 1` measures 1 and 10 GB; that takes 15 GB in the folder, by default one below TMPDIR.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from measure import MEMUP, cost, in_child, show

STEPS, WIDTH, PART = 1000, 8, 250  # of a sequence, and sequences written together


def parts(count: int) -> Iterator[tuple[int, np.ndarray]]:
    """The same few values again and again: the file is soon written, and read like any other."""
    block = np.random.default_rng(0).integers(0, 64, (PART, STEPS, WIDTH)).astype(np.float32)
    for first in range(0, count, PART):
        yield first, block[: min(PART, count - first)]


def npy(folder: Path, count: int) -> list[str]:
    array = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (count, STEPS, WIDTH))
    for first, part in parts(count):
        array[first : first + len(part)] = part
    array.flush()
    return ["--inputs", f"{folder}/X.npy", *targets(folder, count)]


def hdf5(folder: Path, count: int) -> list[str]:
    import h5py

    with h5py.File(folder / "X.h5", "w") as file:
        array = file.create_dataset("X", (count, STEPS, WIDTH), np.float32, chunks=(8, STEPS, WIDTH))
        for first, part in parts(count):
            array[first : first + len(part)] = part
    return ["--inputs", f"{folder}/X.h5", *targets(folder, count)]


def parquet(folder: Path, count: int) -> list[str]:
    import pyarrow
    import pyarrow.parquet

    names = ["sequence", *(f"x{i}" for i in range(WIDTH)), "y"]
    kinds = [pyarrow.int64(), *[pyarrow.float32()] * WIDTH, pyarrow.int64()]
    with pyarrow.parquet.ParquetWriter(
        folder / "X.parquet", pyarrow.schema(list(zip(names, kinds, strict=True)))
    ) as file:
        for first, part in parts(count):
            sequence = np.repeat(np.arange(first, first + len(part)), STEPS)
            columns = [sequence, *part.reshape(-1, WIDTH).T, sequence % 4]
            file.write_table(pyarrow.table(dict(zip(names, map(np.ascontiguousarray, columns), strict=True))))
    return ["--inputs", f"{folder}/X.parquet", "--episode-column", "sequence", "--target-column", "y"]


def targets(folder: Path, count: int) -> list[str]:
    np.save(folder / "y.npy", np.arange(count) % 4)
    return ["--targets", f"{folder}/y.npy"]


KINDS = {"npy": npy, "hdf5": hdf5, "parquet": parquet}


def peak(kind: str, gigabytes: float, within: Path | None) -> int:
    """Peak RSS in bytes of importing a file of so many gigabytes. Written by this process, it would count, too."""
    with tempfile.TemporaryDirectory(prefix="memup-bench-", dir=within) as name:
        files, _ = in_child(KINDS[kind], Path(name), round(gigabytes * 1e9 / (STEPS * WIDTH * 4)))
        run = ["--classes", "--run", f"{name}/run", "--quiet"]
        return cost([*MEMUP, "import", "arrays", *files, *run])[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=0.1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    figures = {}
    for kind in given.kinds:
        little, much = (peak(kind, size, given.folder) for size in (given.gb, 10 * given.gb))
        sizes = {f"{given.gb:g} GB": round(little / 1e6), f"{10 * given.gb:g} GB": round(much / 1e6)}
        figures[kind] = {"peak_rss_mb": sizes, "ratio": round(much / little, 3)}
    show(**figures)


if __name__ == "__main__":
    main()
