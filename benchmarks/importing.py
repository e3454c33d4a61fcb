"""RAM of `memup import`: flat in the size of the data.

    python benchmarks/importing.py [--gb 0.1] [--kinds npy hdf5 parquet lerobot] [--folder DIR]

Of each kind of file, and of LeRobot data sets: peak RSS of importing one with --gb gigabytes (1e9 bytes) of float32,
and one with ten times as much; and their ratio. `--gb 1` measures 1 and 10 GB; that takes 15 GB in the folder, by
default one below TMPDIR.
"""

import argparse
import json
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
    return ["arrays", "--inputs", f"{folder}/X.npy", *targets(folder, count)]


def hdf5(folder: Path, count: int) -> list[str]:
    import h5py

    with h5py.File(folder / "X.h5", "w") as file:
        array = file.create_dataset("X", (count, STEPS, WIDTH), np.float32, chunks=(8, STEPS, WIDTH))
        for first, part in parts(count):
            array[first : first + len(part)] = part
    return ["arrays", "--inputs", f"{folder}/X.h5", *targets(folder, count)]


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
    return [
        "arrays",
        "--inputs",
        f"{folder}/X.parquet",
        "--episode-column",
        "sequence",
        "--target-column",
        "y",
        "--classes",
    ]


def lerobot(folder: Path, count: int) -> list[str]:
    """Files of 2,000 episodes, 64 MB of states each; the last of each state is the reward."""
    import pyarrow
    import pyarrow.parquet

    data, meta = folder / "data/chunk-000", folder / "meta/episodes/chunk-000"
    data.mkdir(parents=True)
    meta.mkdir(parents=True)
    frame, each = np.arange(STEPS), 8 * PART
    for number, first in enumerate(range(0, count, each)):
        path, written = data / f"file-{number:03d}.parquet", min(each, count - first)
        state, kind = pyarrow.list_(pyarrow.float32(), WIDTH), pyarrow.int64()
        columns = {
            "observation.state": state,
            "next.reward": pyarrow.float32(),
            "episode_index": kind,
            "frame_index": kind,
        }
        with pyarrow.parquet.ParquetWriter(path, pyarrow.schema(columns.items())) as file:
            for start, part in parts(written):
                states = pyarrow.FixedSizeListArray.from_arrays(part.reshape(-1), WIDTH)
                rewards = np.ascontiguousarray(part[..., -1].reshape(-1))
                numbers = np.repeat(first + start + np.arange(len(part)), STEPS)
                values = [states, rewards, numbers, np.tile(frame, len(part))]
                file.write_table(pyarrow.table(dict(zip(columns, values, strict=True))))
    episodes = {"episode_index": np.arange(count), "length": np.full(count, STEPS)}
    places = {"data/chunk_index": np.zeros(count, int), "data/file_index": np.arange(count) // each}
    pyarrow.parquet.write_table(pyarrow.table({**episodes, **places}), meta / "file-000.parquet")
    features = {
        "observation.state": {"dtype": "float32", "shape": [WIDTH]},
        "next.reward": {"dtype": "float32", "shape": [1]},
    }
    about = {"codebase_version": "v3.0", "total_episodes": count, "total_frames": count * STEPS, "features": features}
    (folder / "meta/info.json").write_text(json.dumps(about))
    return ["lerobot", str(folder)]


def targets(folder: Path, count: int) -> list[str]:
    np.save(folder / "y.npy", np.arange(count) % 4)
    return ["--targets", f"{folder}/y.npy", "--classes"]


KINDS = {"npy": npy, "hdf5": hdf5, "parquet": parquet, "lerobot": lerobot}


def peak(kind: str, gigabytes: float, within: Path | None) -> int:
    """Peak RSS in bytes of importing a file of so many gigabytes. Written by this process, it would count, too."""
    with tempfile.TemporaryDirectory(prefix="memup-bench-", dir=within) as name:
        files, _ = in_child(KINDS[kind], Path(name), round(gigabytes * 1e9 / (STEPS * WIDTH * 4)))
        return cost([*MEMUP, "import", *files, "--run", f"{name}/run", "--quiet"])[1]


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
