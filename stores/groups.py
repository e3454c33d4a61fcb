"""Commit groups: episodes laid one after another, padded to whole chunks, encoded."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import numpy as np

from .codec import Array, checksum, encode
from .layout import Field, Layout


@dataclass(frozen=True)
class Episode:
    """One episode as a task yields it: arrays with one leading time axis."""

    arrays: dict[str, Array]
    seed: int
    terminated: bool = True


@dataclass(frozen=True)
class EncodedGroup:
    """A commit group ready to be written: the same bytes wherever it will lie."""

    rows: Array  # (episodes, columns) int64, starts relative to the group
    chunks: dict[str, list[bytes]]  # per field
    steps: int


class GroupBuffer:
    """Room for one group's steps. Reuse it: fresh memory costs more than filling it."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._arrays: dict[str, Array] = {
            f.name: np.empty((layout.chunk_steps, *f.shape), f.numpy) for f in layout.fields
        }
        self._rows: list[tuple[int, ...]] = []
        self._steps = 0

    def fill(self, episodes: Iterable[Episode]) -> "GroupBuffer":
        """Copy the episodes in, one after another; they may come from a generator."""
        self._rows, self._steps = [], 0
        for episode in episodes:
            length = len(episode.arrays[self.layout.fields[0].name])
            self._reserve(self._steps + length)
            found = 0
            for field in self.layout.fields:
                values = episode.arrays[field.name]
                _check(field, values, length)
                part = self._arrays[field.name][self._steps : self._steps + length]
                part[...] = values
                found = checksum(part, found)
            self._rows.append((self._steps, length, episode.seed, int(episode.terminated), found))
            self._steps += length
        return self

    def encode(self) -> EncodedGroup:
        size = self.layout.chunk_steps
        count = -(-self._steps // size)
        chunks: dict[str, list[bytes]] = {}
        for field in self.layout.fields:
            values = self._arrays[field.name]
            values[self._steps : count * size] = 0
            chunks[field.name] = [
                encode(values[i * size : (i + 1) * size], field.shuffle, field.typesize) for i in range(count)
            ]
        return EncodedGroup(np.array(self._rows, "<i8"), chunks, self._steps)

    def _reserve(self, steps: int) -> None:
        """Grow to whole chunks with room for `steps`, keeping what is there."""
        for field in self.layout.fields:
            old = self._arrays[field.name]
            if len(old) < steps:
                chunks = -(-max(steps, 3 * len(old) // 2) // self.layout.chunk_steps)
                new = np.empty((chunks * self.layout.chunk_steps, *field.shape), field.numpy)
                new[: self._steps] = old[: self._steps]
                self._arrays[field.name] = new


class GroupStream:
    """A group of large rows, encoded while it is made: never more than a chunk of them is in RAM.

    An episode's first field is streamed. Its others are kept until its end, because its checksum has them after it.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._chunk: dict[str, Array] = {
            f.name: np.zeros((layout.chunk_steps, *f.shape), f.numpy) for f in layout.fields
        }
        self._chunks: dict[str, list[bytes]] = {f.name: [] for f in layout.fields}
        self._filled = dict.fromkeys(self._chunks, 0)  # steps of the chunk under way
        self._rows: list[tuple[int, ...]] = []
        self._steps = 0

    def add(self, seed: int, blocks: Generator[dict[str, Array], None, bool]) -> None:
        """One episode, in blocks of steps; the generator returns whether it came to an end of its own."""
        first, *others = self.layout.fields
        kept: dict[str, list[Array]] = {field.name: [] for field in others}
        found = length = 0
        while True:
            try:
                block = next(blocks)
            except StopIteration as end:
                terminated = bool(end.value)
                break
            count = len(block[first.name])
            for field in self.layout.fields:
                _check(field, block[field.name], count)
            found = checksum(self._put(first, block[first.name]), found)
            for field in others:
                kept[field.name].append(block[field.name])
            length += count
        if not length:
            raise ValueError("an episode has no steps")
        for field in others:
            found = checksum(self._put(field, np.concatenate(kept[field.name])), found)
        self._rows.append((self._steps, length, seed, int(terminated), found))
        self._steps += length

    def _put(self, field: Field, values: Array) -> Array:
        """Lay steps down, encoding the chunks that become full; returns them as they are stored."""
        values = np.ascontiguousarray(values, field.numpy)
        chunk, done = self._chunk[field.name], 0
        while done < len(values):
            filled = self._filled[field.name]
            part = values[done : done + len(chunk) - filled]
            chunk[filled : filled + len(part)] = part
            done += len(part)
            self._filled[field.name] = filled + len(part)
            if self._filled[field.name] == len(chunk):
                self._encode(field)
        return values

    def _encode(self, field: Field) -> None:
        chunk = self._chunk[field.name]
        chunk[self._filled[field.name] :] = 0
        self._chunks[field.name].append(encode(chunk, field.shuffle, field.typesize))
        self._filled[field.name] = 0

    def finish(self) -> EncodedGroup:
        for field in self.layout.fields:
            if self._filled[field.name]:
                self._encode(field)
        return EncodedGroup(np.array(self._rows, "<i8"), self._chunks, self._steps)


def encode_group(layout: Layout, episodes: Iterable[Episode]) -> EncodedGroup:
    return GroupBuffer(layout).fill(episodes).encode()


def _check(field: Field, values: Array, length: int) -> None:
    if values.shape != (length, *field.shape) or not length:
        raise ValueError(f"{field.name!r} of an episode has shape {values.shape}, not {(length, *field.shape)}")
    if not np.can_cast(values.dtype, field.numpy, "same_kind"):
        raise ValueError(f"{field.name!r} of an episode is {values.dtype}, which is not stored as {field.dtype}")
