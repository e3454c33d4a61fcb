"""Collecting Two-Colors against playing the same episodes without keeping anything.

    python benchmarks/two_colors.py [--episodes 200] [--workers 2] [--repeats 1]

speed_ratio    frames a second of the collect stage over those of bare environments that repeat the same actions in as
               many processes; both with the start of the processes and of the engines
planned_ratio  the same, against environments that are played by the same scripted player, which has to plan
process_ratio  as speed_ratio, for the whole command with the start of Python and its imports
peak_rss_mb    of the command with its workers and its engines together, sampled
size_ratio     bytes on disk over bytes of the arrays
"""

import argparse
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from measure import alternate, show

from memup_cli.tasks.two_colors.environment import TwoColorsEnv
from memup_cli.tasks.two_colors.task import TwoColors, TwoColorsOptions
from stores.layout import SEED
from stores.reader import Trajectories


def collect(run: Path, episodes: int, workers: int) -> tuple[dict, int]:
    """The summary of the command, and the largest sum of its processes' RSS in bytes.

    Into a new folder every time: ext4 makes files slowly for minutes after as many were deleted.
    """
    command = [sys.executable, "-m", "memup_cli", "collect", "two-colors", "--episodes", episodes, "--test-episodes", 0]
    command += ["--workers", workers, "--run", run, "--json", "--quiet"]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
    peak, over = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.1):
            peak = max(peak, tree_rss(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    over.set()
    watcher.join()
    return json.loads(out), peak


def tree_rss(root: int) -> int:
    """Bytes of a process and all below it."""
    parents, sizes = {}, {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue
        pid = int(lines["Pid"])
        parents[pid], sizes[pid] = int(lines["PPid"]), int(lines.get("VmRSS", "0 kB").split()[0]) * 1024
    family = {root}
    for _ in range(4):
        family |= {pid for pid, parent in parents.items() if parent in family}
    return sum(sizes.get(pid, 0) for pid in family)


def repeat(episodes: list[tuple[int, bytes]]) -> int:
    """Play given actions from given seeds; returns the frames."""
    env = TwoColorsEnv()
    for seed, actions in episodes:
        env.reset(seed=seed)
        for action in actions:
            env.step(action)
    env.close()
    return sum(len(actions) for _, actions in episodes)


def plan(seeds: list[int]) -> int:
    task = TwoColors(TwoColorsOptions())
    frames = 0
    for seed in seeds:
        for block in task.blocks(seed, 64):
            frames += len(block["action"])
    task.close()
    return frames


def in_processes(work, items: list, workers: int) -> int:
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return sum(pool.map(work, [items[i::workers] for i in range(workers)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        runs = (Path(name) / f"run-{number}" for number in itertools.count())
        run = next(runs)
        summary, peak = collect(run, options.episodes, options.workers)
        train = Trajectories(run / "trajectories" / "train", 1)
        rows = [int(row[SEED]) for row in train.rows]
        actions = [episode["action"].tobytes() for episode in train]
        raw = sum(f.row_bytes for f in train.fields.values()) * int(train.lengths.sum())
        stages: list[float] = []
        command, bare, planned = alternate(
            options.repeats,
            lambda: stages.append(collect(next(runs), options.episodes, options.workers)[0]["seconds"]),
            lambda: in_processes(repeat, list(zip(rows, actions, strict=True)), options.workers),
            lambda: in_processes(plan, rows, options.workers),
        )
    collecting = statistics.median(stages)
    show(
        episodes=options.episodes,
        frames=summary["steps"],
        frames_per_second=summary["steps"] / collecting,
        speed_ratio=bare / collecting,
        planned_ratio=planned / collecting,
        process_ratio=bare / command,
        peak_rss_mb=peak / 2**20,
        size_ratio=summary["bytes"] / raw,
        mean_length=float(np.mean(train.lengths)),
        cpus=os.cpu_count(),
    )


if __name__ == "__main__":
    main()
