"""Reads shards and splits.

Chunks are read directly (open, check, decode into place), several times faster than through zarr's pipeline;
arrays that somebody rewrote with other codecs, chunks or shards go through the zarr API instead.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .codec import Array, checksum, decode
from .errors import DamagedData, Incomplete, StoreError
from .files import read_file, read_json, refuse_link
from .layout import CHECKSUM, COLUMNS, LENGTH, START, Field, Identity, Layout, field_metadata, rows_metadata


@dataclass(frozen=True)
class State:
    """What counts in a shard: the attributes of its episode table."""

    committed: int  # episodes, quarantined ones included
    next_chunk: int
    quarantined: tuple[tuple[int, int, int], ...]  # (group, first chunk, chunks)

    def available(self, layout: Layout) -> int:
        bounds = (layout.group_bounds(g, self.committed) for g, *_ in self.quarantined)
        return self.committed - sum(stop - first for first, stop in bounds)


def read_identity(path: Path) -> Identity:
    refuse_link(path)
    metadata = read_json(path / "zarr.json")
    return Identity.from_attributes(metadata.get("attributes"), str(path / "zarr.json"))


def read_state(path: Path, identity: Identity) -> State:
    where = path / "episodes" / "row" / "zarr.json"
    for folder in (path / "episodes", path / "episodes" / "row"):
        refuse_link(folder)
    metadata = read_json(where)
    try:
        found = metadata["attributes"]["memup"]
        quarantined = tuple((int(g), int(c), int(n)) for g, c, n in found["quarantined"])
        state = State(int(found["committed"]), int(found["next_chunk"]), quarantined)
        expected = rows_metadata(
            identity.layout,
            identity.episodes,
            state.committed,
            state.next_chunk,
            [list(q) for q in quarantined],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedData(f"{where} is not an episode table ({error!r})") from None
    if not 0 <= state.committed <= identity.episodes or state.next_chunk < 0 or metadata != expected:
        raise DamagedData(f"{where} does not fit the shard it belongs to")
    return state


def shard_exists(path: Path) -> bool:
    """Whether a shard was created here; what a killed attempt left of creating one does not count.

    A folder that holds committed rows but has lost its own zarr.json is a damaged shard, and does count.
    """
    return (path / "zarr.json").exists() or any((path / "episodes" / "row").glob("c.*.0"))


class _Chunks(Protocol):
    def read(self, index: int, out: Array) -> None:
        """Fill out (chunk_steps, *row) with chunk number index."""


@dataclass(frozen=True)
class DirectChunks:
    """Chunk files as we wrote them."""

    folder: Path
    layout: Layout
    field: Field

    def read(self, index: int, out: Array) -> None:
        path = self.folder / self.layout.chunk_key(self.field, index)
        try:
            decode(read_file(path), out)
        except FileNotFoundError:
            raise self._damage(index, path, "its file is missing") from None
        except DamagedData as error:
            raise self._damage(index, path, str(error)) from None

    def _damage(self, index: int, path: Path, problem: str) -> DamagedData:
        return DamagedData(
            f"chunk {index} of steps/{self.field.name} is damaged: {problem} ({path}). "
            "Run `memup verify --repair` to set its episodes aside and collect them again."
        )


class ZarrChunks:
    """The fall-back: any Zarr v3 array of the right shape, through the zarr API."""

    def __init__(self, folder: Path, layout: Layout, field: Field) -> None:
        import zarr

        self._array: Any = zarr.open_array(store=str(folder), mode="r")
        self._steps, self._where = layout.chunk_steps, folder
        if self._array.shape[1:] != field.shape or self._array.dtype != field.numpy:
            raise DamagedData(f"{folder} holds rows of another shape or dtype than the shard says")

    def read(self, index: int, out: Array) -> None:
        start = index * self._steps
        try:
            rows = self._array[start : start + self._steps]
        except Exception as error:  # zarr's codecs raise many types; all of them mean unreadable bytes
            raise DamagedData(f"chunk {index} of {self._where} cannot be read ({error})") from None
        if len(rows) != len(out):
            raise DamagedData(f"{self._where} ends before step {start + self._steps}")
        out[:] = rows


class Shard:
    """One shard, opened for reading. What is appended later is seen by opening it again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.identity = read_identity(path)
        self.layout = self.identity.layout
        self.state = read_state(path, self.identity)

    @cached_property
    def chunks(self) -> dict[str, _Chunks]:
        refuse_link(self.path / "steps")
        return {field.name: self._open(field) for field in self.layout.fields}

    @cached_property
    def fields(self) -> dict[str, Field]:
        return {field.name: field for field in self.layout.fields}

    def _open(self, field: Field) -> _Chunks:
        folder = self.path / "steps" / field.name
        refuse_link(folder)
        metadata = read_json(folder / "zarr.json")
        shape = metadata.get("shape")
        if not (isinstance(shape, list) and shape and isinstance(shape[0], int)):
            raise DamagedData(f"{folder / 'zarr.json'} gives no shape")
        if shape[0] < self.state.next_chunk * self.layout.chunk_steps:
            raise DamagedData(f"{folder} is shorter than its committed episodes")
        if metadata == field_metadata(self.layout, field, shape[0]):
            return DirectChunks(folder, self.layout, field)
        try:
            return ZarrChunks(folder, self.layout, field)
        except StoreError:
            raise
        except Exception as error:  # as above: whatever zarr makes of broken metadata
            raise DamagedData(f"{folder / 'zarr.json'} is damaged ({error})") from None

    @cached_property
    def lengths(self) -> Array:
        """Length of every committed episode (quarantined ones: 0)."""
        found = np.zeros(self.state.committed, np.int64)
        for group in self.available_groups():
            first, stop = self.layout.group_bounds(group, self.state.committed)
            found[first:stop] = self.rows(group)[:, LENGTH]
        return found

    def available_groups(self) -> list[int]:
        """Committed groups that are not in quarantine."""
        holes = {g for g, *_ in self.state.quarantined}
        return [g for g in range(self.layout.groups(self.state.committed)) if g not in holes]

    def rows(self, group: int) -> Array:
        """The episode table of a group: (episodes, columns) int64."""
        first, stop = self.layout.group_bounds(group, self.state.committed)
        table = np.empty((self.layout.group_episodes, len(COLUMNS)), "<i8")
        path = self.path / "episodes" / "row" / f"c.{group}.0"
        try:
            decode(read_file(path), table)
        except FileNotFoundError:
            raise self._damaged_rows(group, "its file is missing") from None
        except DamagedData as error:
            raise self._damaged_rows(group, str(error)) from None
        rows = table[: stop - first]
        ends = rows[:, START] + rows[:, LENGTH]
        limit = self.state.next_chunk * self.layout.chunk_steps
        contiguous = (rows[1:, START] == ends[:-1]).all()
        if (rows[:, LENGTH] < 1).any() or rows[0, START] % self.layout.chunk_steps or not contiguous:
            raise self._damaged_rows(group, "its rows do not follow each other")
        if rows[0, START] < 0 or ends[-1] > limit:
            raise self._damaged_rows(group, "its rows point outside the shard")
        return rows

    def _damaged_rows(self, group: int, problem: str) -> DamagedData:
        return DamagedData(
            f"chunk {group} of episodes/row in {self.path} is damaged: {problem}. "
            "Run `memup verify --repair` to set its episodes aside and collect them again."
        )

    def read_steps(self, name: str, start: int, stop: int) -> Array:
        """Steps [start, stop) of a field on the shard's flat time axis; whole chunks are decoded."""
        field, size = self.fields[name], self.layout.chunk_steps
        first, last = start // size, -(-stop // size)
        buffer = np.empty(((last - first) * size, *field.shape), field.numpy)
        for i in range(first, last):
            self.chunks[name].read(i, buffer[(i - first) * size : (i - first + 1) * size])
        return buffer[start - first * size : stop - first * size]

    def read_group(self, group: int, rows: Array | None = None) -> dict[str, Array]:
        """All steps of a group, field by field; episode i's begin at rows[i, START] - rows[0, START]."""
        if rows is None:
            rows = self.rows(group)
        start, stop = int(rows[0, START]), int(rows[-1, START] + rows[-1, LENGTH])
        return {name: self.read_steps(name, start, stop) for name in self.fields}

    def check_episode(self, arrays: dict[str, Array], row: Array) -> bool:
        """Whether an episode's steps are those that were committed under this row."""
        found = 0
        for name in self.fields:
            found = checksum(np.ascontiguousarray(arrays[name]), found)
        return found == int(row[CHECKSUM])


class Trajectories:
    """All shards of one split, as one list of episodes."""

    def __init__(self, folder: Path, shards: int) -> None:
        self.folder = folder
        self.shards = [Shard(folder / f"{i:04d}.zarr") for i in range(shards)]
        short = [s for s in self.shards if s.state.available(s.layout) < s.identity.episodes]
        if short:
            names = ", ".join(s.path.name for s in short)
            raise Incomplete(f"{folder} lacks episodes in {names}; run `memup collect` again to complete it")

    @cached_property
    def rows(self) -> Array:
        """The episode table of the whole split, starts still relative to each shard."""
        parts = [s.rows(g) for s in self.shards for g in s.available_groups()]
        return np.concatenate(parts) if parts else np.zeros((0, len(COLUMNS)), np.int64)

    @property
    def lengths(self) -> Array:
        lengths: Array = self.rows[:, LENGTH]
        return lengths

    @property
    def fields(self) -> dict[str, Field]:
        return self.shards[0].fields

    def __len__(self) -> int:
        return sum(s.identity.episodes for s in self.shards)

    def episode(self, index: int) -> dict[str, Array]:
        for shard in self.shards:
            local = index - shard.identity.first
            if 0 <= local < shard.identity.episodes:
                row = shard.rows(local // shard.layout.group_episodes)[local % shard.layout.group_episodes]
                start, stop = int(row[START]), int(row[START] + row[LENGTH])
                return {name: shard.read_steps(name, start, stop) for name in shard.fields}
        raise IndexError(f"there is no episode {index}: the split has {len(self)}")

    def groups(self) -> list[tuple[Shard, int]]:
        return [(shard, group) for shard in self.shards for group in shard.available_groups()]

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for shard, group in self.groups():
            rows = shard.rows(group)
            data = shard.read_group(group, rows)
            for row in rows:
                start = int(row[START] - rows[0, START])
                yield {name: values[start : start + int(row[LENGTH])] for name, values in data.items()}
