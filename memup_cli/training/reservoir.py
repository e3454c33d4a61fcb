"""Local windows of steps, and a small sample of them in which rare inputs are as frequent as common ones.

A detector trained on uniform steps would see the one junction in 20,000 steps once in many batches. Steps are kept
with a probability that depends on their input only, so what the detector learns about y given the input is not biased.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stores.layout import LENGTH, START
from stores.reader import Shard, Trajectories

from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .targets import targets

BUCKETS = 1 << 18
MAX_ROWS = 100_000
MAX_BYTES = 256 << 20  # of those rows
MAX_COLUMNS = 256  # numbers a step: of larger fields, such as images, each is different
MAX_STEPS = 200_000_000  # looked at; a larger set is sampled by groups
FLOAT_BINS = 8


@dataclass(frozen=True)
class Steps:
    """Steps of one commit group, ready for a detector."""

    arrays: dict[str, np.ndarray]  # query fields, (N, *row)
    y: np.ndarray  # (N,)
    starts: np.ndarray  # (N,) where each step's episode begins

    def windows(self, steps: np.ndarray, window: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The last `window` steps up to each of `steps` (n,): fields (n, W, *row), and which of them exist."""
        index = steps[:, None] + np.arange(1 - window, 1)  # (n, W)
        real = index >= self.starts[steps][:, None]
        index = np.maximum(index, 0)
        return {name: values[index] for name, values in self.arrays.items()}, real


def group_steps(shard: Shard, group: int, spec: TaskSpec, gamma: float, names: tuple[str, ...] | None = None) -> Steps:
    """Steps with all query fields, or with some of them."""
    names = spec.query if names is None else names
    rows = shard.rows(group)
    start, stop = int(rows[0, START]), int(rows[-1, START] + rows[-1, LENGTH])
    arrays = {name: shard.read_steps(name, start, stop) for name in {*names, spec.target}}
    begins = rows[:, START] - start
    parts = [arrays[spec.target][b : b + n] for b, n in zip(begins, rows[:, LENGTH], strict=True)]
    y = np.concatenate([targets(spec, {spec.target: part}, gamma) for part in parts])
    return Steps({name: arrays[name] for name in names}, y, np.repeat(begins, rows[:, LENGTH]))


def small_fields(spec: TaskSpec, names: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """Fields (those of the query, unless others are named) of which equal rows can be looked for."""
    sizes = {f.name: math.prod(f.shape) for f in spec.fields}
    sizes[PREVIOUS_ACTION] = sizes.get("action", 0)
    return tuple(name for name in (spec.query if names is None else names) if sizes[name] <= MAX_COLUMNS)


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


def sample(trajectories: Trajectories, spec: TaskSpec, gamma: float, window: int, seed: int) -> Reservoir:
    """Two passes: count how frequent each input is, then keep common ones rarely and rare ones always."""
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 11))))
    groups = some_groups(trajectories, rng)
    small = small_fields(spec)
    scales = float_scales(group_steps(*groups[0], spec, gamma, small).arrays)
    counts = np.zeros(BUCKETS, np.int64)
    for steps in read_groups(groups, spec, gamma, small):
        counts += np.bincount(buckets(steps.arrays, small, scales), minlength=BUCKETS)
    keep = chances(counts, spec, window)
    parts: list[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]] = []
    for steps in read_groups(groups, spec, gamma, spec.query):
        chance = keep[buckets(steps.arrays, small, scales)]
        chosen = np.flatnonzero(rng.random(len(chance), dtype=np.float32) < chance)
        parts.append((*steps.windows(chosen, window), steps.y[chosen]))
    windows = {name: np.concatenate([part[0][name] for part in parts]) for name in spec.query}
    return Reservoir(windows, np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts]))


def chances(counts: np.ndarray, spec: TaskSpec, window: int) -> np.ndarray:
    """How likely a step of each bucket is to be kept (BUCKETS,), so that the sample has room for all that are."""
    row_bytes = sum(f.row_bytes for f in spec.fields if f.name in spec.query)
    most = min(MAX_ROWS, MAX_BYTES // (window * row_bytes))
    keep = np.minimum(1.0, max(8, most // max(1, int((counts > 0).sum()))) / np.maximum(counts, 1))
    return keep * min(1.0, most / float((keep * counts).sum()))


def buckets(arrays: dict[str, np.ndarray], small: tuple[str, ...], scales: dict[str, np.ndarray]) -> np.ndarray:
    """Which kind of input each step has (N,), as far as some small fields can tell."""
    if not small:
        return np.zeros(len(next(iter(arrays.values()))), np.int64)
    codes = row_codes({name: arrays[name] for name in small}, scales)
    return (codes % np.uint64(BUCKETS)).astype(np.int64)


def read_groups(
    groups: list[tuple[Shard, int]], spec: TaskSpec, gamma: float, names: tuple[str, ...]
) -> Iterator[Steps]:
    for shard, group in groups:
        yield group_steps(shard, group, spec, gamma, names)


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


def float_scales(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Width of a bin for each column of each float field."""
    scales = {}
    for name, values in arrays.items():
        if values.dtype.kind == "f":
            flat = values.reshape(len(values), -1)
            scales[name] = np.maximum((flat.max(0) - flat.min(0)) / FLOAT_BINS, 1e-9)
    return scales
