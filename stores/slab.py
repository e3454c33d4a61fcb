"""The steps that training walks through, in RAM: B slots, never the whole set.

Each slot walks through one episode after the other, `rollout` steps an update, all slots staggered; the last `starters`
of them see only the first rollout of each, `dwell` times. Several processes can share the slots: each has a slab with
its own of them, where they would be if one slab had all. If B whole episodes fit the memory budget, a slot holds its
whole episode; otherwise, and if they are very long, a piece of it at a time. A thread decodes the next loads while
training computes. What is where at a given update is a pure function of the seed (schedule.py), so a slab can be opened
at any update and any machine decodes the same.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from .codec import Array
from .layout import START, Field
from .reader import Trajectories
from .schedule import Load, Schedule, Visit

Read = Callable[[str, int, int], Array]  # field, start, stop within the episode -> steps
DEFAULT_MEMORY = 512 * 10**6
MIN_PIECE = 1024  # steps, or a chunk if that is shorter: a shorter piece means decoding the chunk once for each
MAX_PIECE = 1 << 16  # steps: more would only take RAM
AHEAD_BYTES = 16 << 20  # of loads decoded before they are needed: about a commit group of short episodes ...
AHEAD_LOADS = (4, 64)  # ... but at least and at most so many


class SlabTooSmall(ValueError):
    """The memory budget does not even hold one piece per slot."""


def fit(
    trajectories: Trajectories, slots: int, rollout: int, row_bytes: int, memory: int, whole: bool = False
) -> tuple[int, int]:
    """Steps per load, and steps a slot holds at most, within the memory budget; whole: episodes, if they fit."""
    longest = int(trajectories.lengths.max())
    chunk = trajectories.shards[0].layout.chunk_steps
    room = memory // (slots * row_bytes)  # steps per slot
    least = min(longest, min(MIN_PIECE, chunk) + rollout)
    if room < least:
        raise SlabTooSmall(
            f"{slots} slots of at least {least:,} steps need {slots * least * row_bytes / 1e6:,.1f} MB, more than "
            f"the {memory / 1e6:,.1f} MB allowed. Give it more, or use a smaller --batch."
        )
    if 2 * longest <= room and (whole or longest <= max(MAX_PIECE, rollout)):
        return longest, longest
    piece = min(chunk, room - rollout, longest, max(MAX_PIECE, rollout))
    return piece, min(longest, piece + rollout)


@dataclass(frozen=True)
class Derived:
    """An array computed per load, next to the stored fields."""

    field: Field
    compute: Callable[[Visit, Read, int, int], Array]  # for steps [start, stop) of a visit


@dataclass(frozen=True)
class _Loaded:
    load: Load
    arrays: dict[str, Array]
    prepared: Any  # what prepare() made of a fresh visit


class Slab:
    """B slots with windows and gathers over all of them at once. Use as a context manager."""

    def __init__(
        self,
        trajectories: Trajectories,
        slots: int,
        rollout: int,
        seed: int,
        *,
        fields: tuple[str, ...] | None = None,
        derived: tuple[Derived, ...] = (),
        prepare: Callable[[Visit, Read], Any] | None = None,
        on_fresh: Callable[[int, Any], None] | None = None,
        memory: int = DEFAULT_MEMORY,
        update: int = 0,
        starters: int = 0,
        dwell: int = 1,
        own: Array | None = None,
        whole: bool = False,
    ) -> None:
        if not len(trajectories):
            raise ValueError(f"{trajectories.folder} holds no episodes")
        self.own = np.arange(slots) if own is None else own  # which of all the slots these are
        self.total, slots = slots, len(self.own)
        self.walks = self.own < self.total - starters  # (B,) through whole episodes
        self._places = {int(number): place for place, number in enumerate(self.own)}
        stored = [f for name, f in trajectories.fields.items() if fields is None or name in fields]
        wanted = [*stored, *(d.field for d in derived)]
        piece, held = fit(trajectories, slots, rollout, sum(f.row_bytes for f in wanted), memory, whole)
        self.whole = piece >= int(trajectories.lengths.max())  # every slot holds its whole episode, whichever it is
        self.rollout, self.update = rollout, update
        self.arrays: dict[str, Array] = {f.name: np.zeros((slots, held, *f.shape), f.numpy) for f in wanted}
        self._flat = {name: a.reshape(slots * held, *a.shape[2:]) for name, a in self.arrays.items()}
        self._base = np.arange(slots) * held
        self._shift = self._base[:, None].copy()  # (B, 1): from a step of the episode to its place in the flat arrays
        self._last = np.zeros((slots, 1), np.int64)  # (B, 1): last step of the episode
        self._ahead_steps = np.arange(rollout)
        self.episode = np.zeros(slots, np.int64)
        self.length = np.zeros(slots, np.int64)
        self.offset = np.zeros(slots, np.int64)  # of the next window, in the episode
        self._start = np.zeros(slots, np.int64)  # of what the slot holds, in the episode
        self._end = np.zeros(slots, np.int64)
        self.wait_seconds = 0.0
        self._on_fresh = on_fresh
        self._loader = _Loader([f.name for f in stored], derived, prepare, piece)
        self._plan, self._ahead = (
            Schedule(trajectories, self.total, rollout, piece, seed, update, starters, dwell) for _ in range(2)
        )
        ahead = AHEAD_BYTES // (piece * sum(f.row_bytes for f in wanted))
        least, most = AHEAD_LOADS
        self._burst = min(max(ahead, least), most) // 2  # loads per wake-up of the thread: each costs a switch
        self._queue: queue.Queue[list[_Loaded] | BaseException] = queue.Queue(maxsize=1)
        self._ready: deque[_Loaded] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._prefetch, name="memup-prefetch")
        self._thread.start()
        self.fresh = np.zeros(slots, bool)
        try:
            self._take_due()
        except BaseException:
            self.close()
            raise
        self.fresh[:] = self.offset == 0  # a slab opened later goes on in the middle of episodes
        self.wait_seconds = 0.0

    def __enter__(self) -> "Slab":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)

    def window(self) -> dict[str, Array]:
        """The next rollout of every slot: (B, rollout, *row); past its end an episode repeats its last step."""
        return self.held(np.minimum(self.offset[:, None] + self._ahead_steps, self._last))

    def held(self, steps: Array) -> dict[str, Array]:
        """Steps (B, K) of each slot's episode, which the slot must hold: (B, K, *row) of every field."""
        index = steps + self._shift
        return {name: values.take(index, axis=0) for name, values in self._flat.items()}

    def valid(self) -> Array:
        """How many steps of the next rollout exist: (B,), less than rollout only at an episode's end."""
        left: Array = np.minimum(self.length - self.offset, self.rollout)
        return left

    def advance(self) -> None:
        """Walk on by one rollout; `fresh` then marks the slots that begin an episode."""
        self.offset[self.walks] += self.rollout
        self.update += 1
        self.fresh[:] = ~self.walks
        self._take_due()

    def _take_due(self) -> None:
        while self._plan.due <= self.update:
            expected = self._plan.pop()
            if expected.slot not in self._places:
                continue
            if not self._ready:
                began = time.perf_counter()
                found = self._queue.get()
                self.wait_seconds += time.perf_counter() - began
                if isinstance(found, BaseException):
                    self.close()
                    raise found
                self._ready.extend(found)
            loaded = self._ready.popleft()
            assert (loaded.load.slot, loaded.load.start) == (expected.slot, expected.start)
            self._place(loaded)

    def _place(self, loaded: _Loaded) -> None:
        load, slot = loaded.load, self._places[loaded.load.slot]
        kept = 0
        if load.fresh:
            self.episode[slot], self.length[slot], self.offset[slot] = load.visit.index, load.length, load.offset
            self._start[slot] = load.start
            self.fresh[slot] = True
            if self._on_fresh:
                self._on_fresh(slot, loaded.prepared)
        else:
            kept = int(self._end[slot] - self.offset[slot])
            from_ = int(self.offset[slot] - self._start[slot])
            for values in self.arrays.values():
                values[slot, :kept] = values[slot, from_ : from_ + kept].copy()
            self._start[slot] = self.offset[slot]
        for name, values in loaded.arrays.items():
            self.arrays[name][slot, kept : kept + len(values)] = values
        self._end[slot] = load.stop
        self._shift[slot] = self._base[slot] - self._start[slot]
        self._last[slot] = self.length[slot] - 1

    def _prefetch(self) -> None:
        try:
            while not self._stop.is_set():
                self._queue.put([self._loader(self._next_own()) for _ in range(self._burst)])
        except BaseException as error:
            self._queue.put(error)

    def _next_own(self) -> Load:
        while (load := self._ahead.pop()).slot not in self._places:
            pass
        return load


class _Loader:
    """Decodes loads; keeps the last commit group, because its episodes follow each other."""

    def __init__(
        self,
        fields: list[str],
        derived: tuple[Derived, ...],
        prepare: Callable[[Visit, Read], Any] | None,
        piece: int,
    ) -> None:
        self._fields, self._derived, self._prepare, self._piece = fields, derived, prepare, piece
        self._key: tuple[int, int] | None = None
        self._rows: Array = np.zeros((0, 5), np.int64)
        self._data: dict[str, Array] | None = None

    def __call__(self, load: Load) -> _Loaded:
        visit = load.visit
        self._open(visit, whole=load.length <= self._piece)
        row = self._rows[visit.local]
        data, first = self._data, int(row[START] - self._rows[0, START])

        def read(name: str, start: int, stop: int) -> Array:
            if data is not None:
                return data[name][first + start : first + stop]
            # A copy: the steps would keep all of their chunks in RAM.
            return visit.shard.read_steps(name, int(row[START]) + start, int(row[START]) + stop).copy()

        arrays = {name: read(name, load.start, load.stop) for name in self._fields}
        for derived in self._derived:
            arrays[derived.field.name] = derived.compute(visit, read, load.start, load.stop)
        prepared = self._prepare(visit, read) if load.fresh and self._prepare else None
        return _Loaded(load, arrays, prepared)

    def _open(self, visit: Visit, whole: bool) -> None:
        """Rows of the visit's group; all its steps too, if whole episodes are wanted."""
        key = (id(visit.shard), visit.group)
        if key != self._key:
            self._key, self._rows, self._data = key, visit.shard.rows(visit.group), None
        if whole and self._data is None:
            self._data = visit.shard.read_group(visit.group, self._rows)
