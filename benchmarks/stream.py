"""Reading the training pattern through the slab, against np.memmap over the same data.

    python benchmarks/stream.py [--length 20000] [--episodes 400] [--updates 3000]

Pattern: 64 slots walk staggered through episodes in windows of 20 steps, and gather 4 future steps each.
speed_ratio        windows per second of the slab over those of memmap; 1 is as fast as uncompressed data in the
                   page cache
peak_rss_mb        of a process that only streams, for --episodes and ten times as many
"""

import argparse
import contextlib
import tempfile
from pathlib import Path

import numpy as np
from collect import run_stage
from measure import alternate, in_child, show

from stores.reader import Trajectories
from stores.slab import Slab

SLOTS, WINDOW, FUTURE = 64, 20, 4


def stream_slab(run: str, updates: int) -> float:
    """Walk `updates` windows; returns a sum over what was read, so that nothing can be skipped."""
    rng = np.random.default_rng(0)
    trajectories = Trajectories(Path(run) / "trajectories" / "train", 1)
    total = 0.0
    with Slab(trajectories, SLOTS, WINDOW, seed=0) as slab:
        for _ in range(updates):
            window = slab.window()
            ahead = (rng.random((SLOTS, FUTURE)) * (slab.length - slab.offset)[:, None]).astype(np.int64)
            targets = slab.held(slab.offset[:, None] + ahead)
            total += float(window["observation"][0, 0, 0]) + float(targets["reward"][0, 0])
            slab.advance()
    return total


def write_memmap(run: Path, folder: Path) -> None:
    trajectories = Trajectories(run / "trajectories" / "train", 1)
    with contextlib.ExitStack() as files:
        opened = {name: files.enter_context(open(folder / name, "wb")) for name in trajectories.fields}
        for episode in trajectories:
            for name, values in episode.items():
                values.tofile(opened[name])
    np.save(folder / "lengths.npy", trajectories.lengths)


def stream_memmap(folder: Path, fields: dict, updates: int) -> float:
    """The same walk over flat memory maps: same staggering, same gathers, no decoding."""
    rng = np.random.default_rng(0)
    lengths = np.load(folder / "lengths.npy")
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    maps = {name: np.memmap(folder / name, f.numpy, "r").reshape(-1, *f.shape) for name, f in fields.items()}
    order = iter(np.concatenate([rng.permutation(len(lengths)) for _ in range(1 + updates // 100)]))
    episode = np.array([next(order) for _ in range(SLOTS)])
    length, start = lengths[episode], starts[episode]
    position = (rng.random(SLOTS) * length).astype(np.int64)
    total = 0.0
    for _ in range(updates):
        index = np.minimum(position[:, None] + np.arange(WINDOW), length[:, None] - 1) + start[:, None]
        windows = [values.take(index, axis=0) for values in maps.values()]
        ahead = (rng.random((SLOTS, FUTURE)) * (length - position)[:, None]).astype(np.int64)
        targets = [values.take(start[:, None] + position[:, None] + ahead, axis=0) for values in maps.values()]
        total += float(windows[0][0, 0, 0]) + float(targets[-1][0, 0])
        position += WINDOW
        for slot in np.flatnonzero(position >= length):
            episode[slot] = next(order)
            length[slot], start[slot] = lengths[episode[slot]], starts[episode[slot]]
            position[slot] = 0
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=20000)
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        folder = Path(name)
        few, many = folder / "few", folder / "many"
        run_stage(str(few), options.length, options.episodes)
        run_stage(str(many), options.length, 10 * options.episodes)
        ratios = {}
        for run in (few, many):
            write_memmap(run, folder)
            fields = Trajectories(run / "trajectories" / "train", 1).fields
            memmap, slab = alternate(
                options.repeats,
                lambda fields=fields: stream_memmap(folder, fields, options.updates),
                lambda run=run: stream_slab(str(run), options.updates),
            )
            ratios[run.name] = (memmap, slab)
        peaks = {run.name: in_child(stream_slab, str(run), options.updates)[1] for run in (few, many)}
    show(
        windows_per_second={name: round(SLOTS * options.updates / slab) for name, (_, slab) in ratios.items()},
        speed_ratio={name: round(memmap / slab, 3) for name, (memmap, slab) in ratios.items()},
        peak_rss_mb={name: round(peak / 1e6, 1) for name, peak in peaks.items()},
        rss_ratio=round(peaks["many"] / peaks["few"], 3),
    )


if __name__ == "__main__":
    main()
