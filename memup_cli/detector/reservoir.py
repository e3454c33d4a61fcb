"""A small sample of steps with their local windows, in which rare inputs are as frequent as common ones.

A detector trained on uniform steps would see the one junction in 20,000 steps once in many batches. Steps are kept
with a probability that depends on their input only, so what the detector learns about y given the input is not biased.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from stores.reader import Shard, Trajectories

from .. import randomness
from ..streaming.blocks import Targets, blocks
from ..tasks.spec import TaskSpec

BUCKETS = 1 << 18
MAX_ROWS = 100_000
MAX_BYTES = 256 << 20  # of those rows
MAX_COLUMNS = 256  # numbers a step: of larger fields, such as images, each is different
MAX_STEPS = 200_000_000  # looked at; a larger set is sampled by groups
FLOAT_BINS = 8


def small_fields(spec: TaskSpec, names: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Fields (those of the query, unless others are named) of which equal rows can be looked for."""
    sizes = {f.name: math.prod(f.shape) for f in spec.fields}
    wanted = spec.query if names is None else names
    return tuple(name for name in wanted if sizes[spec.source(name)] <= MAX_COLUMNS)


def row_codes(arrays: dict[str, np.ndarray], scales: dict[str, np.ndarray] | None = None) -> np.ndarray:
    """A 64-bit hash of each row over all fields; with scales, floats are first put into bins."""
    rng = np.random.Generator(np.random.PCG64(7))
    code = np.zeros(len(next(iter(arrays.values()))), np.uint64)
    for name in sorted(arrays):
        values = arrays[name].reshape(len(code), -1)
        if scales is not None and name in scales:
            values = np.floor(values / scales[name]).astype(np.int64)
        elif values.dtype.kind == "f":
            values = values.astype(np.float64).view(np.int64)
        for column in values.T:
            mixed = column.astype(np.int64).view(np.uint64) * rng.integers(1, 2**63, dtype=np.uint64) * np.uint64(2)
            code = (code ^ (mixed + (code >> np.uint64(29)))) * np.uint64(0x9E3779B97F4A7C15)
    return code ^ (code >> np.uint64(32))


@dataclass(frozen=True)
class Reservoir:
    windows: dict[str, np.ndarray]  # (n, W, *row)
    real: np.ndarray  # (n, W)
    y: np.ndarray  # (n,)

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: np.ndarray) -> "Reservoir":
        windows = {name: values[rows] for name, values in self.windows.items()}
        return Reservoir(windows, self.real[rows], self.y[rows])


class Growing:
    """An array that rows are added to, with room to spare.

    A small array kept of every block would lie between the large ones that come and go, and leave gaps in the heap that
    nothing fits into: its size would grow with the number of blocks.
    """

    def __init__(self) -> None:
        self._room: np.ndarray | None = None
        self._count = 0

    def add(self, rows: np.ndarray) -> None:
        count = self._count + len(rows)
        if self._room is None:
            self._room = rows[:0]
        if count > len(self._room):
            room = np.empty((max(count, 2 * len(self._room)), *rows.shape[1:]), rows.dtype)
            room[: self._count] = self.rows
            self._room = room
        self._room[self._count : count] = rows
        self._count = count

    @property
    def rows(self) -> np.ndarray:
        assert self._room is not None
        return self._room[: self._count]


class Sample:
    """A reservoir in the making."""

    def __init__(self, spec: TaskSpec) -> None:
        self._windows = {name: Growing() for name in spec.query}
        self._real, self._y = Growing(), Growing()

    def add(self, windows: dict[str, np.ndarray], real: np.ndarray, y: np.ndarray) -> None:
        for name, values in windows.items():
            self._windows[name].add(values)
        self._real.add(real)
        self._y.add(y)

    def reservoir(self) -> Reservoir:
        return Reservoir({name: v.rows for name, v in self._windows.items()}, self._real.rows, self._y.rows)


def sample(trajectories: Trajectories, spec: TaskSpec, gamma: float, window: int, seed: int) -> Reservoir:
    """Two passes: count how frequent each input is, then keep common ones rarely and rare ones always."""
    rng = randomness.stream(seed, randomness.DETECTOR_SAMPLE)
    groups = some_groups(trajectories, rng)
    small = small_fields(spec)
    scales = float_scales(steps.rows(small) for steps in blocks(*groups[0], small))
    counts = np.zeros(BUCKETS, np.int64)
    for shard, group in groups:
        for steps in blocks(shard, group, small):
            counts += np.bincount(buckets(steps.rows(small), len(steps), scales), minlength=BUCKETS)
    keep = chances(counts, spec, window)
    kept = Sample(spec)
    for shard, group in groups:
        targets = Targets(shard, group, spec, gamma)
        for steps in blocks(shard, group, (*spec.query, spec.target), window - 1):
            chance = keep[buckets(steps.rows(small), len(steps), scales)]
            chosen = np.flatnonzero(rng.random(len(chance), dtype=np.float32) < chance)
            kept.add(*steps.windows(chosen, window, spec.query), targets(steps)[chosen])
    return kept.reservoir()


def chances(counts: np.ndarray, spec: TaskSpec, window: int) -> np.ndarray:
    """How likely a step of each bucket is to be kept (BUCKETS,), so that the sample has room for all that are."""
    row_bytes = sum(f.row_bytes for f in spec.fields if f.name in spec.query)
    most = min(MAX_ROWS, MAX_BYTES // (window * row_bytes))
    keep = np.minimum(1.0, max(8, most // max(1, int((counts > 0).sum()))) / np.maximum(counts, 1))
    return keep * min(1.0, most / float((keep * counts).sum()))


def buckets(rows: dict[str, np.ndarray], count: int, scales: dict[str, np.ndarray]) -> np.ndarray:
    """Which kind of input each step has (count,), as far as some small fields can tell."""
    if not rows:
        return np.zeros(count, np.int64)
    return (row_codes(rows, scales) % np.uint64(BUCKETS)).astype(np.int64)


def some_groups(
    trajectories: Trajectories, rng: np.random.Generator, most_episodes: int | None = None
) -> list[tuple[Shard, int]]:
    """All commit groups, or as many as there is time for."""
    groups = trajectories.groups()
    share = MAX_STEPS / int(trajectories.lengths.sum())
    if most_episodes is not None:
        share = min(share, most_episodes / len(trajectories))
    if share >= 1:
        return groups
    count = max(1, int(len(groups) * share))
    return [groups[i] for i in np.sort(rng.permutation(len(groups))[:count])]


def float_scales(blocks: Iterable[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Width of a bin for each column of each float field."""
    low: dict[str, np.ndarray] = {}
    high: dict[str, np.ndarray] = {}
    for rows in blocks:
        for name, values in rows.items():
            if values.dtype.kind == "f":
                flat = values.reshape(len(values), -1)
                low[name] = np.minimum(flat.min(0), low.get(name, np.inf))
                high[name] = np.maximum(flat.max(0), high.get(name, -np.inf))
    return {name: np.maximum((high[name] - low[name]) / FLOAT_BINS, 1e-9) for name in low}
