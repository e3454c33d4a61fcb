"""Steps of a commit group in blocks: however long an episode is, some megabytes of it are in RAM.

A group of short episodes is one block. A block of a long episode begins anywhere in it, so it brings the rows before it
that windows look back to.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stores.layout import LENGTH, START
from stores.reader import Shard

from ..tasks.spec import TaskSpec
from .actions import late_rows
from .reading import EpisodeReader
from .targets import TARGET, is_stored, target_field

BLOCK_STEPS, BLOCK_BYTES = 1 << 18, 64 << 20  # read at a time, at most; or a chunk, if that is more


@dataclass(frozen=True)
class Steps:
    """Steps of a commit group that follow each other, with some rows before them."""

    arrays: dict[str, np.ndarray]  # (lead + N, *row)
    lead: int
    first: int  # the first of the N steps, on the shard's time axis
    starts: np.ndarray  # (N,) where each step's episode begins, counted from `first`

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Some fields of the steps themselves (N, *row)."""
        return {name: self.arrays[name][self.lead :] for name in names}

    def inputs(self, spec: TaskSpec, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Some of the memory's inputs at every step."""
        late, places = spec.late(names), np.arange(len(self))
        found = self.rows(tuple(name for name in names if name not in late))
        for name in late:
            before = self.arrays[spec.source(name)][np.maximum(places + self.lead - 1, 0)]
            found[name] = late_rows(spec, name, before, self.starts == places)
        return found

    def windows(
        self, steps: np.ndarray, window: int, names: tuple[str, ...]
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """The last `window` steps up to each of `steps` (n,): fields (n, W, *row), and which of them exist."""
        index = steps[:, None] + np.arange(1 - window, 1)  # (n, W)
        real = index >= self.starts[steps][:, None]
        index = np.maximum(index + self.lead, 0)
        return {name: self.arrays[name][index] for name in names}, real

    def episodes(self) -> list[tuple[int, int]]:
        """Where the episodes of these steps, or the parts of them, begin and end (N at most)."""
        edges = [*np.flatnonzero(np.diff(self.starts, prepend=self.starts[0] - 1)), len(self)]
        return [(int(a), int(b)) for a, b in itertools.pairwise(edges)]


def block_steps(shard: Shard) -> int:
    """Steps of a block: whole chunks, which are then decoded once."""
    chunk, row_bytes = shard.layout.chunk_steps, sum(field.row_bytes for field in shard.layout.fields)
    return chunk * max(1, min(BLOCK_STEPS, BLOCK_BYTES // max(row_bytes, 1)) // chunk)


def blocks(shard: Shard, group: int, names: tuple[str, ...], lead: int = 0, multiple: int = 1) -> Iterator[Steps]:
    """All steps of a group, each block with `lead` rows before it, if the group has as many.

    Blocks end at multiples of `multiple`, counted from the group's start.
    """
    table = shard.rows(group)
    begin, end = int(table[0, START]), int(table[-1, START] + table[-1, LENGTH])
    kept: dict[str, np.ndarray] = {}
    origin = first = begin  # of the rows that are kept, and of the steps that are next
    for start in range(begin, end, size := block_steps(shard)):
        stop = min(start + size, end)
        arrays = {name: shard.read_steps(name, start, stop) for name in dict.fromkeys(names)}
        if origin < start:
            arrays = {name: np.concatenate([kept[name], values]) for name, values in arrays.items()}
        until = end if stop == end else stop - (stop - begin) % multiple
        if first < until:
            here = {name: values[: until - origin] for name, values in arrays.items()}
            yield Steps(here, first - origin, first, _starts(table, first, until))
        again = max(until - lead, origin)
        kept = {name: values[again - origin :].copy() for name, values in arrays.items()}
        origin, first = again, until


def _starts(table: np.ndarray, first: int, stop: int) -> np.ndarray:
    """Where the episode of each step in [first, stop) begins, counted from first."""
    ends = table[:, START] + table[:, LENGTH]
    here = slice(np.searchsorted(ends, first, "right"), np.searchsorted(table[:, START], stop, "left"))
    begins = table[here, START]
    return np.repeat(begins - first, np.minimum(ends[here], stop) - np.maximum(begins, first))


class Targets:
    """y of the steps of a group, for one block after the other; they must have the target's field."""

    def __init__(self, shard: Shard, group: int, spec: TaskSpec, gamma: float) -> None:
        self._shard, self._spec, self._gamma = shard, spec, gamma
        table = shard.rows(group)
        self._lengths = dict(zip(table[:, START].tolist(), table[:, LENGTH].tolist(), strict=True))
        self._long: tuple[int, EpisodeReader] | None = None  # of the episode that the last block ended in

    def __call__(self, steps: Steps) -> np.ndarray:
        spec, stored = self._spec, steps.rows((self._spec.target,))[self._spec.target]
        if is_stored(spec, self._gamma):
            return stored.astype(target_field(spec).numpy, copy=False)
        parts = []
        for a, b in steps.episodes():
            start = steps.first + int(steps.starts[a])
            if b - a == self._lengths[start]:
                parts.append(self._whole(stored[a:b]))
            else:
                parts.append(self._part(start, steps.first + a - start, steps.first + b - start))
        return np.concatenate(parts)

    def _whole(self, stored: np.ndarray) -> np.ndarray:
        """y of a whole episode that is there already."""
        count = len(stored)
        return EpisodeReader(self._spec, self._gamma, count, lambda _, a, b: stored[a:b], count)(TARGET, 0, count)

    def _part(self, start: int, first: int, stop: int) -> np.ndarray:
        """y of steps [first, stop) of the long episode that starts there."""
        shard = self._shard

        def read(name: str, a: int, b: int) -> np.ndarray:
            return shard.read_steps(name, start + a, start + b)

        if self._long is None or self._long[0] != start:
            reader = EpisodeReader(self._spec, self._gamma, self._lengths[start], read, block_steps(shard))
            self._long = start, reader
        return self._long[1](TARGET, first, stop)
