"""Appends commit groups to one shard.

The lease comes first, then the empty arrays, then commits.
Commit: chunk files under temporary names, fsync, rename, fsync the folders; grow the arrays if they are too short;
check that the shard is still ours; rename the episode table's zarr.json, which says how many episodes count.
Whatever a killed attempt left beyond that is overwritten by the next one with the same bytes.

A shard that is to hold more gets its new identity first. If its last group is not full, the group is made again as a
full one: its steps only take the place of padding, and the chunk of its table is announced in the table's zarr.json
before it takes the place of the old one. So what was committed stays readable at every moment.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from . import lease as leases
from .codec import encode, ending
from .errors import DamagedData, Fenced, StoreError
from .files import (
    PendingFiles,
    drop_partials,
    make_folder,
    read_file,
    read_json,
    refuse_link,
    remove_tree,
    to_json,
    write_durably,
)
from .groups import EncodedGroup
from .layout import COLUMNS, LENGTH, START, Identity, field_metadata, group_metadata
from .reader import Shard, State, read_identity, read_state, shard_exists

GROWTH = 1.5


class ShardWriter:
    """The one writer of a shard. Use as a context manager; call add() in order, and commit()."""

    def __init__(self, path: Path, identity: Identity) -> None:
        self.path, self.identity, self.layout = path, identity, identity.layout
        self._refuse_other()
        refuse_link(path)
        make_folder(path)
        self._lease, self.earlier = leases.take(path)
        self._pending = PendingFiles(self._still_ours)
        try:
            with self._fenced():
                if not shard_exists(path):
                    self._create()
                elif self._refuse_other():
                    self._write_identity()
                self._state = read_state(path, identity)
                self._capacity = self._read_capacity()
                for folder in [path, *(p for p in path.rglob("*") if p.is_dir() and not p.is_symlink())]:
                    drop_partials(folder)
        except BaseException:
            self.__exit__()
            raise
        self._committed = self._state.committed  # with what is pending
        self._next_chunk = self._state.next_chunk
        self._quarantined = list(self._state.quarantined)
        self._tables = None if self._state.tables is None else list(self._state.tables)
        self._partial = self._last_if_partial()

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._pending.discard()
        leases.release(self.path, self._lease)

    def _refuse_other(self) -> bool:
        """Raise if there is another shard than ours; True if there is ours with fewer episodes."""
        found = read_identity(self.path) if shard_exists(self.path) else self.identity
        if found.layout != self.layout or not found.grows_to(self.identity):
            raise DamagedData(
                f"{self.path} holds other data than this run describes; collect with --restart to replace it"
            )
        return found != self.identity

    @property
    def committed(self) -> int:
        """Episodes on disk for good."""
        return self._state.available(self.layout)

    @property
    def made_again(self) -> int:
        """Those of them that come again, in a last group that gets more."""
        if self._partial is None or any(g == self._partial for g, *_ in self._quarantined):
            return 0
        return self._state.committed % self.layout.group_episodes

    def missing_groups(self) -> list[int]:
        """Groups still to be added, in the order in which add() wants them."""
        first = self.layout.groups(self._state.committed) if self._partial is None else self._partial
        holes = [g for g, *_ in self._state.quarantined if g != self._partial]
        return holes + list(range(first, self.layout.groups(self.identity.episodes)))

    def _last_if_partial(self) -> int | None:
        """The last committed group, if more episodes belong to it than it has."""
        group, rest = divmod(self._state.committed, self.layout.group_episodes)
        return group if rest and self._state.committed < self.identity.episodes else None

    def add(self, number: int, group: EncodedGroup) -> None:
        """Write a group under temporary names; it counts after the next commit()."""
        had = self._take_back(number, group) if number == self._partial else b""
        hole = next((q for q in self._quarantined if q[0] == number), None)
        if hole:
            start, room = hole[1], hole[2]
            if len(next(iter(group.chunks.values()))) != room:
                raise DamagedData(
                    f"group {number} of {self.path} came out in another size than it had: its task is not a "
                    "function of the seed alone. Collect with --restart."
                )
            self._quarantined.remove(hole)
        else:
            start = self._next_chunk
            self._next_chunk += len(next(iter(group.chunks.values())))
            self._committed = self.layout.group_bounds(number, self.identity.episodes)[1]
        for field in self.layout.fields:
            for i, data in enumerate(group.chunks[field.name]):
                key = self.layout.chunk_key(field, start + i)
                with self._fenced():
                    self._pending.write(self.path / "steps" / field.name / key, data)
        table = np.zeros((self.layout.group_episodes, len(COLUMNS)), "<i8")
        table[: len(group.rows)] = group.rows
        table[: len(group.rows), START] += start * self.layout.chunk_steps
        data = encode(table, "shuffle", 8)
        if had and self._state.tables is not None:
            with self._fenced():
                self._write_state(
                    replace(self._state, tables=(*self._state.tables[:-1], ending(had)), growing=ending(data))
                )
        if self._tables is not None:
            self._tables[number : number + 1] = [ending(data)]
        with self._fenced():
            self._pending.write(self.path / "episodes" / "row" / f"c.{number}.0", data)

    def _take_back(self, number: int, group: EncodedGroup) -> bytes:
        """Let a full group begin where the partial one does; returns the table's chunk that it will replace, if any."""
        with self._fenced():
            shard = Shard(self.path)
            self._next_chunk, self._partial = shard.place(number).start, None
            hole = next((q for q in self._quarantined if q[0] == number), None)
            if hole:
                self._quarantined.remove(hole)
                return b""
            rows = shard.claimed_rows(number)[:, LENGTH:]
        if not np.array_equal(group.rows[: len(rows), LENGTH:], rows):
            raise DamagedData(
                f"group {number} of {self.path} came out with other episodes than it has: its task is not a "
                "function of the seed alone. Collect with --restart."
            )
        return read_file(self.path / "episodes" / "row" / f"c.{number}.0")

    def commit(self) -> None:
        """Make all that was added count. The last commit cuts the arrays' spare capacity: a full shard is exact."""
        tables = None if self._tables is None else tuple(self._tables)
        state = State(self._committed, self._next_chunk, tuple(self._quarantined), tables)
        if state == self._state:
            return
        needed = self._next_chunk * self.layout.chunk_steps
        with self._fenced():
            self._pending.publish()
            if state.available(self.layout) == self.identity.episodes:
                self._resize(needed)
            elif needed > min(self._capacity.values()):
                self._resize(max(needed, int(min(self._capacity.values()) * GROWTH)))
            self._write_state(state)

    @contextlib.contextmanager
    def _fenced(self) -> Iterator[None]:
        """An attempt that took over drops our files: tell that from a failing disk or a damaged shard."""
        try:
            yield
        except StoreError:
            self._still_ours()
            raise

    def _still_ours(self) -> None:
        leases.check(self.path, self._lease)

    def _write_state(self, state: State) -> None:
        self._still_ours()
        if read_state(self.path, self.identity).committed > state.committed:
            raise Fenced(
                f"{self.path} has more episodes than this attempt wrote; another attempt overtook it. Run the same "
                "command again; nothing is lost."
            )
        where = self.path / "episodes" / "row" / "zarr.json"
        write_durably(where, to_json(state.metadata(self.identity)), self._still_ours)
        self._state = state

    def _create(self) -> None:
        """Make the arrays; the group's own zarr.json comes last and makes the shard exist."""
        for name in ("steps", "episodes"):
            self._still_ours()
            remove_tree(self.path / name)  # what a killed attempt left, maybe with other fields
        for field in self.layout.fields:
            make_folder(self.path / "steps" / field.name)
        make_folder(self.path / "episodes" / "row")
        for field in self.layout.fields:
            metadata = field_metadata(self.layout, field, self.layout.chunk_steps)
            self._pending.write(self.path / "steps" / field.name / "zarr.json", to_json(metadata))
        self._pending.write(self.path / "steps" / "zarr.json", to_json(group_metadata()))
        self._pending.write(self.path / "episodes" / "zarr.json", to_json(group_metadata()))
        empty = State(0, 0, (), ()).metadata(self.identity)
        self._pending.write(self.path / "episodes" / "row" / "zarr.json", to_json(empty))
        self._pending.publish()
        self._write_identity()

    def _write_identity(self) -> None:
        described = group_metadata(self.identity.to_attributes())
        write_durably(self.path / "zarr.json", to_json(described), self._still_ours)

    def _read_capacity(self) -> dict[str, int]:
        """Length of each field's array; a crash between two resizes leaves them unequal."""
        paths = {f.name: self.path / "steps" / f.name / "zarr.json" for f in self.layout.fields}
        return {name: int(read_json(path)["shape"][0]) for name, path in paths.items()}

    def _resize(self, capacity: int) -> None:
        """Only metadata: chunks exist just where something was written."""
        for field in self.layout.fields:
            if self._capacity[field.name] != capacity:
                metadata = field_metadata(self.layout, field, capacity)
                write_durably(self.path / "steps" / field.name / "zarr.json", to_json(metadata), self._still_ours)
                self._capacity[field.name] = capacity
