"""Collecting against writing the same arrays raw, and the memory it takes.

    python benchmarks/collect.py [--length 20000] [--repeats 5]

speed_ratio        seconds for ndarray.tofile + fsync of the arrays that the store holds, over seconds of the stage;
                   both leave their data safe on disk. 1 would be as fast as raw writing.
speed_ratio_nosync the same, the raw files left in the page cache
process_ratio      the same as speed_ratio, for the whole command with the start of Python and its imports
rss_ratio          peak RSS with ten times the episodes, over that with --few
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import alternate, in_child, show

from memup_cli.limits import available_cpus
from memup_cli.stages.collect.collection import Collection, collect
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from stores.reader import Trajectories


def run_stage(run: str, length: int, episodes: int, tests: int = 100) -> dict:
    options = TMazeOptions(length=length)
    config = {"episodes": episodes, "test_episodes": tests, "seed": 0, "shards": 1}
    workers, commit_every = available_cpus(), 2.0
    return collect(
        Collection(
            "tmaze",
            TMaze(options),
            options.model_dump(),
            Path(run),
            config,
            0,
            workers,
            commit_every,
            restart=False,
            quiet=True,
        )
    )


def raw_arrays(run: Path) -> list[np.ndarray]:
    """The store's contents, as one array per field and split."""
    arrays = []
    for split in ("train", "test"):
        episodes = list(Trajectories(run / "trajectories" / split, 1))
        arrays += [np.concatenate([e[name] for e in episodes]) for name in episodes[0]]
    return arrays


def write_raw(folder: Path, arrays: list[np.ndarray], sync: bool) -> None:
    for i, array in enumerate(arrays):
        with open(folder / f"{i}.raw", "wb") as file:
            array.tofile(file)
            if sync:
                file.flush()
                os.fsync(file.fileno())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=20000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--few", type=int, default=400)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        folder = Path(name)
        summary = run_stage(str(folder / "run"), options.length, 1000)
        arrays = raw_arrays(folder / "run")
        command = [
            "collect",
            "tmaze",
            "--length",
            str(options.length),
            "--run",
            str(folder / "command"),
            "--quiet",
        ]

        def stage() -> None:
            shutil.rmtree(folder / "again", ignore_errors=True)
            run_stage(str(folder / "again"), options.length, 1000)

        def process() -> None:
            shutil.rmtree(folder / "command", ignore_errors=True)
            subprocess.run([sys.executable, "-m", "memup_cli", *command], check=True, stdout=subprocess.DEVNULL)

        raw, unsynced, ours, whole = alternate(
            options.repeats,
            lambda: write_raw(folder, arrays, sync=True),
            lambda: write_raw(folder, arrays, sync=False),
            stage,
            process,
        )
        _, few = in_child(run_stage, str(folder / "few"), options.length, options.few)
        _, many = in_child(run_stage, str(folder / "many"), options.length, 10 * options.few)
    show(
        steps=summary["steps"],
        bytes_per_step=round(summary["bytes"] / summary["steps"], 3),
        raw_bytes=sum(a.nbytes for a in arrays),
        raw_seconds=round(raw, 3),
        stage_seconds=round(ours, 3),
        speed_ratio=round(raw / ours, 3),
        speed_ratio_nosync=round(unsynced / ours, 3),
        process_ratio=round(raw / whole, 3),
        peak_rss_mb={str(options.few): round(few / 1e6, 1), str(10 * options.few): round(many / 1e6, 1)},
        rss_ratio=round(many / few, 3),
    )


if __name__ == "__main__":
    main()
