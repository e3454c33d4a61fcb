"""Choosing the targets of a visit to an episode by the scores of its steps, stored or alike."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stores.layout import LENGTH, START
from stores.schedule import Visit
from stores.scores import ScoreReader, score_path
from stores.slab import Read

from .. import randomness
from ..streaming.rows import rows_at
from .candidates import Candidates, Gather
from .gumbel import BLOCK, SuffixTop, select


class LongScores:
    """Scores of a long episode, of which only the blocks that are looked at are in RAM."""

    def __init__(self, reader: ScoreReader, start: int, length: int) -> None:
        self._reader, self._start, self._length = reader, start, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, which: slice | np.ndarray) -> np.ndarray:
        if isinstance(which, slice):
            return self._read("", *which.indices(self._length)[:2])
        steps, places = np.unique(which, return_inverse=True)
        return rows_at("", steps, BLOCK, self._length, self._read)[places.reshape(which.shape)]

    def max(self) -> float:
        return max(float(self[first : first + BLOCK].max()) for first in range(0, self._length, BLOCK))

    def _read(self, _: str, start: int, stop: int) -> np.ndarray:
        return self._reader.read(self._start + start, self._start + stop)


Scores = Callable[[Visit], np.ndarray | LongScores]  # uncertainty of every step of an episode


def stored_scores(run: Path, detector: str) -> Scores:
    """Scores from the store; those of a commit group are decoded once, because its episodes follow each other."""
    readers: dict[int, ScoreReader] = {}
    last: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def scores(visit: Visit) -> np.ndarray | LongScores:
        key = (id(visit.shard), visit.group)
        if key not in last:
            if id(visit.shard) not in readers:
                readers[id(visit.shard)] = ScoreReader(score_path(run, detector, visit.shard), visit.shard)
            rows, reader = visit.shard.rows(visit.group), readers[id(visit.shard)]
            start, stop = int(rows[0, START]), int(rows[-1, START] + rows[-1, LENGTH])
            if len(rows) == 1 and stop - start > BLOCK:
                return LongScores(reader, start, stop - start)
            last.clear()
            last[key] = rows, reader.read(start, stop)
        rows, values = last[key]
        first = int(rows[visit.local, START] - rows[0, START])
        return values[first : first + int(rows[visit.local, LENGTH])]

    return scores


def uniform_scores(visit: Visit) -> np.ndarray:
    """The Rnd-Pred ablation: every future step is as good as any other."""
    return np.zeros(visit.length, np.float32)


@dataclass(frozen=True)
class Exploring:
    """Scores that choose more widely: of surprise beside those of utility, of all steps alike beside surprise."""

    scores: Scores
    share: float  # of the visits on which these choose
    temperature: float
    least: float | None = None  # on the others, steps with less utility are no targets, unless they are no surprise


def chooser(
    scores: Scores,
    targets: int,
    temperature: float,
    seed: int,
    exploring: Exploring | None = None,
    reach: float | None = None,
    near: bool = False,
) -> Callable[[Visit], SuffixTop]:
    """Selection for each visit of an episode; its noise is a pure function of (seed, visit).

    near: each visit has a reach of its own, from one step to the episode's length, all orders of magnitude alike.
    """

    def choose(visit: Visit) -> SuffixTop:
        rng = randomness.stream(seed, randomness.TARGETS, visit.number)
        far = visit.length ** rng.random() if near else reach
        if exploring and exploring.share and rng.random() < exploring.share:
            return select(exploring.scores(visit), targets, exploring.temperature, rng, far)
        values = scores(visit)
        top = select(values, targets, temperature, rng, far)
        if exploring is None or exploring.least is None:
            return top
        surprise = exploring.scores(visit)
        useless = values[np.maximum(top.best, 0)] < exploring.least
        useless &= surprise[np.maximum(top.best, 0)] >= exploring.least * surprise.max()
        return SuffixTop(top.changes, np.where(useless, -1, top.best))

    return choose


def preparing(choose: Callable[[Visit], SuffixTop], gather: Gather) -> Callable[[Visit, Read], Candidates]:
    """What a slab's loader makes of an episode: its target steps, chosen and gathered."""

    def prepare(visit: Visit, read: Read) -> Candidates:
        return gather(choose(visit), visit.shard.layout.chunk_steps, visit.length, read)

    return prepare
