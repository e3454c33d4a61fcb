"""Commit groups: episodes laid one after another, padded to whole chunks, encoded."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass

import numpy as np

from .codec import Array, checksum, encode
from .errors import UnfitEpisode
from .layout import Field, Layout

NO_STEPS = "has no steps"


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
            length = _steps(self.layout, episode.arrays, len(self._rows))
            self._reserve(self._steps + length)
            found = 0
            for field in self.layout.fields:
                part = self._arrays[field.name][self._steps : self._steps + length]
                part[...] = episode.arrays[field.name]
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
            count = _steps(self.layout, block, len(self._rows))
            found = checksum(self._put(first, block[first.name]), found)
            for field in others:
                kept[field.name].append(block[field.name])
            length += count
        if not length:
            raise UnfitEpisode(len(self._rows), NO_STEPS)
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


def misfit(fields: tuple[Field, ...], arrays: object) -> str | None:
    """What of an episode's arrays the store does not take, as the end of a sentence that begins with the episode."""
    if not isinstance(arrays, dict):
        return f"has {type(arrays).__name__} as its arrays, not a dict of numpy arrays by field"
    for field in fields:
        values = arrays.get(field.name)
        if values is None:
            return f"lacks the field {field.name!r}; it has {', '.join(map(repr, arrays)) or 'none'}"
        if not isinstance(values, np.ndarray):
            return f"has {type(values).__name__} as {field.name!r}, not a numpy array"
        if not values.ndim or values.shape[1:] != field.shape:
            wanted = ", ".join(["steps", *map(str, field.shape)])
            return f"has {field.name!r} of shape {values.shape}, not ({wanted})"
        if not np.can_cast(values.dtype, field.numpy, "same_kind"):
            return f"has {field.name!r} as {values.dtype}, which is not stored as {field.dtype}"
    lengths = {field.name: len(arrays[field.name]) for field in fields}
    if len(set(lengths.values())) > 1:
        return f"has fields of different lengths: {', '.join(f'{name} {steps}' for name, steps in lengths.items())}"
    return None if all(lengths.values()) else NO_STEPS


def _steps(layout: Layout, arrays: dict[str, Array], number: int) -> int:
    """How long an episode, or a block of one, is; UnfitEpisode if the store does not take it."""
    if problem := misfit(layout.fields, arrays):
        raise UnfitEpisode(number, problem)
    return len(arrays[layout.fields[0].name])
