"""Which blocks of steps stay in RAM when episodes are too long for all of them to.

Blocks come in three kinds: those in which an episode ends, with the one before each, others with a reward, and all
others. Once there are too many, every second one of the most frequent kind goes, and from then on only as many of that
kind stay as before, each standing for twice as many. So what is kept is bounded however long the episodes are, without
knowing their length in advance, and what happens seldom stays whole. Which of two goes first is drawn: every block of
a kind is as likely to stay, so that weighted sums over what is kept are, on average, those over everything.
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from ...memory.cells import State

FEWEST_BLOCKS = 8  # kept, however many environments there are


class Kind(IntEnum):
    PLAIN = 0
    REWARDED = 1
    ENDING = 2


@dataclass(frozen=True)
class Onward:
    """What comes after a block, for the environments whose episode goes on there."""

    which: np.ndarray  # (k,)
    seen: dict[str, np.ndarray]  # (k, ...)
    state: State  # of all N: the next block begins with the same tensors


@dataclass
class Block:
    """Steps of all N environments that follow each other."""

    number: int
    columns: dict[str, np.ndarray]  # (width, N, ...)
    used: int = 0  # steps of that width
    starts: list[np.ndarray] = field(default_factory=list)  # (k, 4): step, environment, by age, by block
    states: list[State] = field(default_factory=list)  # of the core there
    cuts: list[dict[str, np.ndarray]] = field(default_factory=list)  # what was seen, and the row
    cut_states: list[State] = field(default_factory=list)
    onward: Onward | None = None
    kind: Kind = Kind.PLAIN
    place: int = 0  # among those of its kind

    def classify(self) -> None:
        active = self.columns["active"][: self.used]
        if (self.columns["over"][: self.used] & active).any():
            self.kind = Kind.ENDING
        elif ((self.columns["reward"][: self.used] != 0) & active).any():
            self.kind = Kind.REWARDED


@dataclass
class _Share:
    """Of the blocks of a kind, every stride-th is kept."""

    seen: int = 0
    stride: int = 1
    offset: int = 0


class Thinning:
    """Takes block after block, and keeps no more than `most`; None: all."""

    def __init__(self, most: int | None, rng: np.random.Generator) -> None:
        self._most, self._rng = most, rng
        self._shares = {kind: _Share() for kind in Kind}
        self._last: Block | None = None  # not decided yet: an episode may end in the next one
        self.kept: list[Block] = []  # in the order of time

    @property
    def dropped(self) -> bool:
        return any(share.stride > 1 for share in self._shares.values())

    def weight(self, block: Block) -> int:
        return self._shares[block.kind].stride

    def add(self, block: Block) -> None:
        if self._most is None:
            self.kept.append(block)
            return
        block.classify()
        if self._last and block.kind == Kind.ENDING:
            self._last.kind = Kind.ENDING
        self.settle()
        self._last = block

    def settle(self) -> None:
        """Decide about the last block, too: none comes after it."""
        if (block := self._last) is None or self._most is None:
            return
        share = self._shares[block.kind]
        block.place, share.seen, self._last = share.seen, share.seen + 1, None
        if block.place % share.stride == share.offset:
            self.kept.append(block)
        while len(self.kept) > self._most:
            self._halve()

    def _halve(self) -> None:
        kind = max(Kind, key=[block.kind for block in self.kept].count)
        share = self._shares[kind]
        share.offset += share.stride * int(self._rng.integers(2))
        share.stride *= 2
        self.kept = [b for b in self.kept if b.kind != kind or b.place % share.stride == share.offset]
