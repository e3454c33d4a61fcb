"""What one update of memory training sees: a rollout of every slot, and where it predicts from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stores.layout import LENGTH, START
from stores.reader import Trajectories
from stores.schedule import Visit
from stores.scores import ScoreReader, score_path
from stores.slab import Derived, Read, Slab

from ..selection.candidates import Candidates, Gather, rows_at
from ..selection.gumbel import BLOCK, SuffixTop, select
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .targets import discounted_returns, previous_action_field, previous_actions, target_field


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


def prediction_points(
    valid: np.ndarray,
    rollout: int,
    every: int,
    random_points: int,
    key: tuple[int, int],
    own: np.ndarray,
    total: int,
) -> np.ndarray:
    """Steps of each slot's rollout at which the memory predicts (B, P): its last, random ones, every f-th.

    The random ones are a pure function of `key`, (seed, update), and of which of all slots (own, of total) these are.
    """
    last = valid[:, None] - 1
    if rollout == 1:
        return last
    seed, update = key
    rng = np.random.Generator(np.random.PCG64((seed << 20) ^ update))
    random = (rng.random((random_points, total))[:, own] * valid).astype(np.int64).T
    regular = np.minimum(np.arange(every - 1, rollout - 1, every), last) if every else last[:, :0]
    return np.concatenate([last, random, regular], axis=1)


def open_slab(
    trajectories: Trajectories,
    spec: TaskSpec,
    *,
    batch: int,
    rollout: int,
    gamma: float,
    seed: int,
    update: int,
    memory: int,
    starters: int = 0,
    dwell: int = 1,
    own: np.ndarray | None = None,
    whole: bool = False,
    with_targets: bool,
    choose: Callable[[Visit], SuffixTop] | None,
    gather: Gather | None = None,
    on_fresh: Callable[[int, Candidates], None] | None = None,
    more: tuple[Derived, ...] = (),
) -> Slab:
    """A slab with the memory's inputs; with_targets: also each step's query and y, for predicting the current step."""
    wanted = {*spec.memory_input, *(spec.query if with_targets else ())}
    derived = [*more]
    if PREVIOUS_ACTION in wanted:

        def late(visit: Visit, read: Read, start: int, stop: int) -> np.ndarray:
            return previous_actions(spec, read("action", max(start - 1, 0), stop - 1), at_start=start == 0)

        derived.append(Derived(previous_action_field(spec), late))
    if with_targets:

        def y(visit: Visit, read: Read, start: int, stop: int) -> np.ndarray:
            if spec.target_kind == "return" and gamma > 0:
                return discounted_returns(read(spec.target, start, visit.length), gamma)[: stop - start]
            return read(spec.target, start, stop)

        derived.append(Derived(target_field(spec), y))

    def prepare(visit: Visit, read: Read) -> Candidates | None:
        if choose is None or gather is None:
            return None
        return gather(choose(visit), visit.shard.layout.chunk_steps, visit.length, read)

    return Slab(
        trajectories,
        batch,
        rollout,
        seed,
        fields=tuple(f.name for f in spec.fields if f.name in wanted),
        derived=tuple(derived),
        prepare=prepare,
        on_fresh=on_fresh if choose is not None else None,
        memory=memory,
        update=update,
        starters=starters,
        dwell=dwell,
        own=own,
        whole=whole,
    )


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
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 13, visit.number))))
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
