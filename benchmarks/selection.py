"""Time to select target steps, per rollout of one slot, for short and very long episodes.

    python benchmarks/selection.py [--targets 1]

An episode is perturbed and swept once when it enters the slab; its T / r rollouts share that cost. `ratio` is the time
per rollout at T = 1,000,000 over that at T = 1,000.
"""

import argparse
import statistics
import time

import numpy as np
from measure import show

from memup_cli.selection.candidates import Candidates, TargetTables, compacted, query_fields
from memup_cli.selection.gumbel import select
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions

SLOTS, ROLLOUT, POINTS = 64, 20, 2


def microseconds(length: int, targets: int, repeats: int) -> float:
    """Per rollout of one slot: its share of the sweep, and of the look-up that serves all slots."""
    rng = np.random.default_rng(0)
    scores = rng.random(length).astype(np.float32) * 0.01
    scores[-1] = 3.5
    began = time.perf_counter()
    for _ in range(repeats):
        top = select(scores, targets, 0.02, rng)
    entry = (time.perf_counter() - began) / repeats
    spec = TMaze(TMazeOptions()).spec
    fields = query_fields(spec, "point", 1, 1)
    tables = TargetTables(SLOTS, targets, spec, fields)
    places, steps = compacted(top)
    query = {f.name: np.zeros((len(steps), *f.shape), f.numpy) for f in fields}
    for slot in range(SLOTS):
        tables.put(slot, Candidates(places, steps, query, np.zeros(len(steps), np.float32)))
    points = rng.integers(0, length, (SLOTS, POINTS))
    began = time.perf_counter()
    for _ in range(200):
        tables.look_up(points)
    lookup = (time.perf_counter() - began) / 200
    return 1e6 * (entry / (length / ROLLOUT) + lookup / SLOTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", type=int, default=1)
    options = parser.parse_args()
    times = {1000: [], 1_000_000: []}
    for _ in range(5):
        times[1000].append(microseconds(1000, options.targets, 2000))
        times[1_000_000].append(microseconds(1_000_000, options.targets, 5))
    short, long = (statistics.median(times[length]) for length in times)
    show(
        targets=options.targets,
        microseconds_per_rollout={"1000": round(short, 2), "1000000": round(long, 2)},
        ratio=round(long / short, 3),
    )


if __name__ == "__main__":
    main()
