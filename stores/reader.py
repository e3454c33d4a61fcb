"""Reads shards and splits.

What is read is what was committed, or DamagedData is raised: chunks carry checksums of their own, the commit lists
those of the tables, and the checksum of every episode also finds a good chunk in the wrong place.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from .chunks import Chunks, DirectChunks, ZarrChunks
from .codec import Array, checksum, ending
from .codec import decode as decode_chunk
from .errors import DamagedData, Incomplete, StoreError
from .files import read_file, read_json, refuse_link
from .layout import CHECKSUM, COLUMNS, LENGTH, START, Field, Identity, Layout, field_metadata, rows_metadata
from .remote import open_place


@dataclass(frozen=True)
class State:
    """What counts in a shard: the attributes of its episode table."""

    committed: int  # episodes, quarantined ones included
    next_chunk: int
    quarantined: tuple[tuple[int, int, int], ...]  # (group, first chunk, chunks)
    tables: tuple[str, ...] | None = None  # ending() of each group's chunk of the episode table, where it is recorded
    growing: str = ""  # ending() of the chunk that a full last group is about to have, or has already

    def available(self, layout: Layout) -> int:
        bounds = (layout.group_bounds(g, self.committed) for g, *_ in self.quarantined)
        return self.committed - sum(stop - first for first, stop in bounds)

    def metadata(self, identity: Identity) -> dict[str, Any]:
        """zarr.json of the episode table; renaming it into place is the commit."""
        holes = [list(hole) for hole in self.quarantined]
        tables = None if self.tables is None else list(self.tables)
        counts = identity.episodes, self.committed, self.next_chunk
        return rows_metadata(identity.layout, *counts, holes, tables, self.growing)

    def lists(self, group: int, found: str) -> bool:
        """Whether a chunk of the episode table that ends so is the one of a group."""
        if self.tables is None or self.tables[group] == found:
            return True
        return bool(self.growing) and self.growing == found and group == len(self.tables) - 1


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
        tables = tuple(found["tables"]) if "tables" in found else None
        if not all(isinstance(table, str) for table in tables or ()):
            raise ValueError("tables")
        growing = found.get("growing", "")
        state = State(int(found["committed"]), int(found["next_chunk"]), quarantined, tables, growing)
        episodes = int(metadata["shape"][0])  # fewer than the shard's from when it is to grow until the next commit
        expected = state.metadata(replace(identity, episodes=episodes))
        listed = tables is None or len(tables) == identity.layout.groups(state.committed)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError) as error:
        raise DamagedData(f"{where} is not an episode table ({error!r})") from None
    counts = 0 <= state.committed <= episodes <= identity.episodes and state.next_chunk >= 0
    if not counts or not listed or metadata != expected:
        raise DamagedData(f"{where} does not fit the shard it belongs to")
    return state


def read_shard(path: Path) -> tuple[Identity, State]:
    """Both as they belong together, also of a shard that is made larger in between."""
    identity = read_identity(path)
    while True:
        try:
            return identity, read_state(path, identity)
        except DamagedData:
            newer = read_identity(path)
            if newer == identity:
                raise
            identity = newer


def shard_exists(path: Path) -> bool:
    """Whether a shard was created here; what a killed attempt left of creating one does not count.

    A folder that holds committed rows but has lost its own zarr.json is a damaged shard, and does count.
    """
    return (path / "zarr.json").exists() or any((path / "episodes" / "row").glob("c.*.0"))


class Shard:
    """One shard, or some of its episodes, opened for reading. What is appended later is seen by opening it again."""

    def __init__(self, path: Path, part: range | None = None) -> None:
        """part: episodes of the whole split; those of them that are in this shard are read."""
        self.path = path
        self.identity, self.state = read_shard(path)
        self.layout = self.identity.layout
        first, count = self.identity.first, self.identity.episodes
        part = range(first, first + count) if part is None else part
        self.kept = range(min(max(part.start - first, 0), count), min(max(part.stop - first, 0), count))
        self._sound: set[int] = set()  # groups whose episodes were compared with their checksums

    @cached_property
    def chunks(self) -> dict[str, Chunks]:
        refuse_link(self.path / "steps")
        return {field.name: self._open(field) for field in self.layout.fields}

    @cached_property
    def fields(self) -> dict[str, Field]:
        return {field.name: field for field in self.layout.fields}

    def _open(self, field: Field) -> Chunks:
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
        """Length of every committed episode (those in quarantine, and those that are not read: 0)."""
        found = np.zeros(self.state.committed, np.int64)
        for group in self.available_groups():
            found[self.episodes(group)] = self.rows(group)[:, LENGTH]
        return found

    def available_groups(self) -> list[int]:
        """Committed groups that are not in quarantine, as far as they have episodes that are read."""
        holes = {g for g, *_ in self.state.quarantined}
        groups = range(self.layout.groups(self.state.committed))
        return [g for g in groups if g not in holes and len(self.episodes(g))]

    def episodes(self, group: int) -> range:
        """Which episodes of the shard are read in a group."""
        first, stop = self.layout.group_bounds(group, self.state.committed)
        return range(max(first, self.kept.start), min(stop, self.kept.stop))

    def rows(self, group: int) -> Array:
        """The episode table of a group: (episodes, columns) int64."""
        _ = self.starts
        first, _ = self.layout.group_bounds(group, self.state.committed)
        read = self.episodes(group)
        return self.claimed_rows(group)[read.start - first : read.stop - first]

    @cached_property
    def starts(self) -> Array:
        """First step of every group; one begins where the one before it ends, or the tables are in the wrong place."""
        places = [self.place(group) for group in range(self.layout.groups(self.state.committed))]
        self.check_order(places)
        return np.array([place.start for place in places], np.int64) * self.layout.chunk_steps

    def place(self, group: int) -> range:
        """The chunks of a group, as its table says; of one in quarantine, as its mark says."""
        for number, first, count in self.state.quarantined:
            if number == group:
                return range(first, first + count)
        rows, size = self.claimed_rows(group), self.layout.chunk_steps
        return range(int(rows[0, START]) // size, -(-int(rows[-1, START] + rows[-1, LENGTH]) // size))

    def check_order(self, places: Sequence[range | None]) -> None:
        """Whether groups follow each other in their chunks, as they were written (None: not known where)."""
        edges = [range(0), *places, range(self.state.next_chunk, self.state.next_chunk)]
        for before, after in itertools.pairwise(edges):
            if before is not None and after is not None and before.stop != after.start:
                raise DamagedData(
                    f"the chunks of episodes/row in {self.path} are not in the order in which they were written. "
                    "Run `memup verify --repair` to set the shard aside and collect it again."
                )

    def claimed_rows(self, group: int) -> Array:
        """What the table of a group says; rows() also compares it with the other groups."""
        first, stop = self.layout.group_bounds(group, self.state.committed)
        table = np.empty((self.layout.group_episodes, len(COLUMNS)), "<i8")
        path = self.path / "episodes" / "row" / f"c.{group}.0"
        try:
            data = read_file(path)
            if not (self.state.lists(group, ending(data)) or self._grew(group, ending(data))):
                raise DamagedData("it is not the one that was written")
            decode_chunk(data, table)
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

    def _grew(self, group: int, found: str) -> bool:
        """Whether the last group got more episodes since the shard was opened; those that it had are still the same."""
        first, stop = self.layout.group_bounds(group, self.state.committed)
        return stop - first < self.layout.group_episodes and read_shard(self.path)[1].lists(group, found)

    def _damaged_rows(self, group: int, problem: str) -> DamagedData:
        return DamagedData(
            f"chunk {group} of episodes/row in {self.path} is damaged: {problem}. "
            "Run `memup verify --repair` to set its episodes aside and collect them again."
        )

    def read_steps(self, name: str, start: int, stop: int) -> Array:
        """Steps [start, stop) of a field on the shard's flat time axis; whole chunks are decoded."""
        for group in range(self._group_at(start), self._group_at(stop - 1) + 1):
            if group not in self._sound:
                self.require_sound(group, self.wrong_episodes(self.rows(group), self.decode))
        return self.decode(name, start, stop)

    def read_group(self, group: int, rows: Array | None = None) -> dict[str, Array]:
        """All steps of a group, field by field; episode i's begin at rows[i, START] - rows[0, START]."""
        if rows is None:
            rows = self.rows(group)
        first, stop = int(rows[0, START]), int(rows[-1, START] + rows[-1, LENGTH])
        data = {name: self.decode(name, first, stop) for name in self.fields}
        self.require_sound(group, self.wrong_episodes(rows, lambda name, a, b: data[name][a - first : b - first]))
        return data

    def _group_at(self, step: int) -> int:
        return int(np.searchsorted(self.starts, step, "right")) - 1

    def decode(self, name: str, start: int, stop: int) -> Array:
        """Like read_steps, but takes whole chunks for good wherever they come from."""
        field, size = self.fields[name], self.layout.chunk_steps
        first, last = start // size, -(-stop // size)
        buffer = np.empty(((last - first) * size, *field.shape), field.numpy)
        for i in range(first, last):
            self.chunks[name].read(i, buffer[(i - first) * size : (i - first + 1) * size])
        return buffer[start - first * size : stop - first * size]

    def wrong_episodes(self, rows: Array, read: Callable[[str, int, int], Array]) -> list[int]:
        """Episodes of a group whose steps are not those that were committed; never holds more than a chunk of them."""
        size = self.layout.chunk_steps
        starts, ends, found = rows[:, START], rows[:, START] + rows[:, LENGTH], [0] * len(rows)
        for name in self.fields:
            for first in range(int(starts[0]), int(ends[-1]), size):  # a group starts on a chunk boundary
                stop = min(first + size, int(ends[-1]))
                values = read(name, first, stop)
                for i in range(np.searchsorted(ends, first, "right"), np.searchsorted(starts, stop, "left")):
                    part = values[max(int(starts[i]) - first, 0) : int(ends[i]) - first]
                    found[i] = checksum(np.ascontiguousarray(part), found[i])
        return [i for i, (have, row) in enumerate(zip(found, rows, strict=True)) if have != int(row[CHECKSUM])]

    def require_sound(self, group: int, wrong: list[int]) -> None:
        if wrong:
            index = self.identity.first + self.episodes(group)[wrong[0]]
            raise DamagedData(
                f"episode {index} in {self.path} is not what was committed, though its chunks are whole. "
                "Run `memup verify --repair` to set it aside and collect it again."
            )
        self._sound.add(group)


class Trajectories:
    """All shards of one split, or some of its episodes, as one list of episodes."""

    def __init__(self, folder: Path, shards: int, part: range | None = None) -> None:
        self.folder = folder
        self.shards = [Shard(folder / f"{i:04d}.zarr", part) for i in range(shards)]
        short = [s for s in self.shards if s.state.available(s.layout) < s.identity.episodes]
        if short:
            names = ", ".join(s.path.name for s in short)
            raise Incomplete(f"{folder} lacks episodes in {names}; run `memup collect` again to complete it")
        edges = itertools.accumulate((s.identity.episodes for s in self.shards), initial=0)
        if moved := [s.path.name for s, first in zip(self.shards, edges, strict=False) if s.identity.first != first]:
            raise Incomplete(f"{folder} is being made larger, and {', '.join(moved)} still has to be collected again")

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
        return sum(len(s.kept) for s in self.shards)

    def episode(self, index: int) -> dict[str, Array]:
        shard, row = self.place(index)
        start, stop = int(row[START]), int(row[START] + row[LENGTH])
        return {name: shard.read_steps(name, start, stop) for name in shard.fields}

    def place(self, index: int) -> tuple[Shard, Array]:
        """The shard of an episode, and its row of the episode table there."""
        left = index
        for shard in self.shards if index >= 0 else ():
            if left < len(shard.kept):
                local = shard.kept[left]
                group = local // shard.layout.group_episodes
                return shard, shard.rows(group)[local - shard.episodes(group).start]
            left -= len(shard.kept)
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


def open_trajectories(run: str | Path, split: str = "train") -> Trajectories:
    """The episodes of a run's split: of a run folder, or at a URL that fsspec can read."""
    folder = open_place(run) / "trajectories" / split
    return Trajectories(folder, read_identity(folder / "0000.zarr").shards)
