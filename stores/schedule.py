"""Which steps of which episode each slot of the slab holds, update by update: a pure function of (seed, update)."""

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from .codec import Array
from .reader import Shard, Trajectories


@dataclass(frozen=True)
class Visit:
    """One passage through one episode."""

    number: int  # counted from the start of training
    shard: Shard
    group: int
    local: int  # episode within what is read of the group

    @property
    def index(self) -> int:
        """The episode's number in its split."""
        return self.shard.identity.first + self.shard.episodes(self.group)[self.local]

    @property
    def length(self) -> int:
        return int(self.shard.lengths[self.shard.episodes(self.group)[self.local]])


class VisitOrder:
    """Endless iterator of visits: every epoch passes all groups, and all episodes of a group, in a new order.

    Keeping the episodes of a group together means that each group is decoded once an epoch.
    """

    def __init__(self, trajectories: Trajectories, seed: int) -> None:
        self._groups = trajectories.groups()
        self._seed, self._epoch, self._number = seed, 0, 0
        self._left: deque[tuple[int, Array]] = deque()

    def __next__(self) -> Visit:
        if not self._left:
            rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, self._epoch))))
            for g in rng.permutation(len(self._groups)):
                shard, group = self._groups[g]
                self._left.append((int(g), rng.permutation(len(shard.episodes(group)))))
            self._epoch += 1
        g, episodes = self._left[0]
        visit = Visit(self._number, *self._groups[g], int(episodes[0]))
        self._number += 1
        if len(episodes) > 1:
            self._left[0] = (g, episodes[1:])
        else:
            self._left.popleft()
        return visit


@dataclass
class Slot:
    """Where one slot was when it was last loaded: it holds an episode's steps from `offset` to `end`."""

    visit: Visit
    length: int
    walks: bool  # to the end; or reads the start again and again, then that of the next episode
    offset: int
    end: int
    due: int = 0  # update before which it needs its next load


@dataclass(frozen=True)
class Load:
    """Steps [start, stop) of a visit, for a slot."""

    slot: int
    visit: Visit
    start: int
    stop: int
    length: int  # of the whole episode
    offset: int  # where the slot's next window begins
    fresh: bool  # the slot begins a new episode (or begins at all)


class Schedule:
    """Simulates B slots that walk `rollout` steps an update; yields their loads in the order in which they fall due.

    The last `starters` of them do not walk: each reads the first rollout of an episode, `dwell` times, then the next's.
    """

    def __init__(
        self,
        trajectories: Trajectories,
        slots: int,
        rollout: int,
        piece: int,
        seed: int,
        update: int = 0,
        starters: int = 0,
        dwell: int = 1,
    ) -> None:
        self._order = VisitOrder(trajectories, seed)
        self._rollout, self._piece, self._dwell = rollout, piece, dwell
        stagger = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 2**32)))).random(slots)
        self.slots: list[Slot] = []
        for number, share in enumerate(stagger):
            visit = next(self._order)
            length, walks = visit.length, number < slots - starters
            offset = int(share * length) // rollout * rollout if walks else 0
            self.slots.append(Slot(visit, length, walks, offset, self._end(offset, length)))
        self._initial: deque[Load] = deque()
        self._heap: list[tuple[int, int]] = []
        for number, (slot, share) in enumerate(zip(self.slots, stagger, strict=True)):
            self._plan(number, slot, 0 if slot.walks else int(share * dwell) - dwell + 1)  # not all move on at once
        while self.due <= update and update:
            self.pop()
        self._initial = deque(
            self._first_load(number, slot, self._offset_at(slot, update)) for number, slot in enumerate(self.slots)
        )

    @property
    def due(self) -> int:
        """Update before which the next load is needed."""
        return -1 if self._initial else self._heap[0][0]

    def pop(self) -> Load:
        """The next load."""
        if self._initial:
            return self._initial.popleft()
        now, number = heapq.heappop(self._heap)
        slot = self.slots[number]
        if slot.walks and slot.end < slot.length:
            slot.offset = self._offset_at(slot, now)
            start = slot.end
            slot.end = min(slot.end + self._piece, slot.length)
            load = Load(number, slot.visit, start, slot.end, slot.length, slot.offset, False)
        else:
            slot.visit = next(self._order)
            slot.length, slot.offset = slot.visit.length, 0
            slot.end = min(self._piece, slot.length)
            load = Load(number, slot.visit, 0, slot.end, slot.length, 0, True)
        self._plan(number, slot, now)
        return load

    def _first_load(self, number: int, slot: Slot, offset: int) -> Load:
        """What a slot must hold when the schedule begins: its whole episode if that fits, else from its offset on."""
        start = 0 if slot.length <= self._piece else offset
        return Load(number, slot.visit, start, slot.end, slot.length, offset, True)

    def _plan(self, number: int, slot: Slot, now: int) -> None:
        slot.due = now + self._updates(slot)
        heapq.heappush(self._heap, (slot.due, number))

    def _offset_at(self, slot: Slot, update: int) -> int:
        """Where the slot will be at an update up to its next load."""
        return slot.offset + (self._updates(slot) - (slot.due - update)) * self._rollout if slot.walks else 0

    def _updates(self, slot: Slot) -> int:
        """How many updates what the slot holds is good for."""
        if not slot.walks:
            return self._dwell
        if slot.end < slot.length:
            return (slot.end - slot.offset) // self._rollout
        return -(-(slot.length - slot.offset) // self._rollout)

    def _end(self, offset: int, length: int) -> int:
        return min((offset // self._piece + 1) * self._piece, length)
