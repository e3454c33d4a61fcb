"""What one update of memory training sees: a rollout of every slot, prediction points, and their target steps."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stores.layout import LENGTH, START
from stores.reader import Trajectories
from stores.schedule import Visit
from stores.scores import ScoreReader, score_path
from stores.slab import Derived, Read, Slab

from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .selection import SuffixTop, select
from .targets import TARGET, discounted_returns, previous_action_field, previous_actions, target_field

_NEVER = np.iinfo(np.int64).max
Scores = Callable[[Visit], np.ndarray]  # uncertainty of every step of an episode


def stored_scores(run: Path, detector: str) -> Scores:
    """Scores from the store; those of a commit group are decoded once, because its episodes follow each other."""
    readers: dict[int, ScoreReader] = {}
    last: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}

    def scores(visit: Visit) -> np.ndarray:
        key = (id(visit.shard), visit.group)
        if key not in last:
            if id(visit.shard) not in readers:
                readers[id(visit.shard)] = ScoreReader(score_path(run, detector, visit.shard), visit.shard)
            rows = visit.shard.rows(visit.group)
            start, stop = int(rows[0, START]), int(rows[-1, START] + rows[-1, LENGTH])
            last.clear()
            last[key] = rows, readers[id(visit.shard)].read(start, stop)
        rows, values = last[key]
        first = int(rows[visit.local, START] - rows[0, START])
        return values[first : first + int(rows[visit.local, LENGTH])]

    return scores


def uniform_scores(visit: Visit) -> np.ndarray:
    """The Rnd-Pred ablation: every future step is as good as any other."""
    return np.zeros(visit.length, np.float32)


@dataclass(frozen=True)
class Candidates:
    """The target steps that any suffix of an episode can select, with what the predictor needs to know of them."""

    top: SuffixTop  # best: places in the arrays below
    query: dict[str, np.ndarray]  # (M, *row)
    y: np.ndarray  # (M,)


def gather_candidates(top: SuffixTop, spec: TaskSpec, gamma: float, block: int, length: int, read: Read) -> Candidates:
    """Read the rows of the selected steps, a block of steps at a time, so that a long episode is never whole in RAM."""
    steps = np.unique(top.best[top.best >= 0])
    query = {name: _rows_at(name, steps, block, length, read) for name in spec.query}
    if spec.target_kind == "return" and gamma > 0:
        y = discounted_returns(read(spec.target, 0, length), gamma)[steps].astype(np.float32)
    else:
        y = _rows_at(spec.target, steps, block, length, read)
    places = np.where(top.best >= 0, np.searchsorted(steps, top.best), -1)
    return Candidates(SuffixTop(top.changes, places), query, y)


def _rows_at(name: str, steps: np.ndarray, block: int, length: int, read: Read) -> np.ndarray:
    parts = []
    for b in np.unique(steps // block):
        first = int(b) * block
        parts.append(read(name, first, min(first + block, length))[steps[steps // block == b] - first])
    return np.concatenate(parts)


class TargetTables:
    """The candidates of all slots in padded arrays, so that one look-up serves the whole batch."""

    def __init__(self, slots: int, targets: int, spec: TaskSpec) -> None:
        self._slots = np.arange(slots)
        self._changes = np.full((slots, 8), _NEVER)
        self._best = np.full((slots, 8, targets), -1)
        fields = {f.name: f for f in spec.fields}
        self._query = {name: np.zeros((slots, 8, *fields[name].shape), fields[name].numpy) for name in spec.query}
        self._y = np.zeros((slots, 8), target_field(spec).numpy)

    def put(self, slot: int, found: Candidates) -> None:
        changes, rows = len(found.top.changes), len(found.y)
        self._changes = _widen(self._changes, changes, _NEVER)
        self._best = _widen(self._best, changes, -1)
        self._changes[slot], self._best[slot] = _NEVER, -1
        self._changes[slot, :changes], self._best[slot, :changes] = found.top.changes, found.top.best
        self._y = _widen(self._y, rows, 0)
        self._y[slot, :rows] = found.y
        for name, values in found.query.items():
            self._query[name] = _widen(self._query[name], rows, 0)
            self._query[name][slot, :rows] = values

    def look_up(self, t: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Targets of prediction points t (B, P): query (B, P, K, *row), y (B, P, K), which of them exist."""
        if self._changes.shape[1] <= 256:
            first = (self._changes[:, None, :] >= t[:, :, None]).argmax(-1)  # (B, P)
        else:
            first = np.stack([np.searchsorted(row, ts) for row, ts in zip(self._changes, t, strict=True)])
        slots = self._slots[:, None]
        place = self._best[slots, first]  # (B, P, K)
        exists, place = place >= 0, np.maximum(place, 0)
        slots = slots[..., None]
        return {name: v[slots, place] for name, v in self._query.items()}, self._y[slots, place], exists

    def state(self) -> dict[str, np.ndarray]:
        return {"changes": self._changes, "best": self._best, TARGET: self._y} | {
            f"query.{name}": values for name, values in self._query.items()
        }

    def load(self, state: dict[str, np.ndarray]) -> None:
        self._changes, self._best, self._y = state["changes"], state["best"], state[TARGET]
        self._query = {name: state[f"query.{name}"] for name in self._query}


def _widen(values: np.ndarray, width: int, fill: int) -> np.ndarray:
    """Room for `width` columns, by doubling."""
    if values.shape[1] >= width:
        return values
    wider = np.full((len(values), max(width, 2 * values.shape[1]), *values.shape[2:]), fill, values.dtype)
    wider[:, : values.shape[1]] = values
    return wider


def prediction_points(
    valid: np.ndarray, rollout: int, every: int, random_points: int, key: tuple[int, int]
) -> np.ndarray:
    """Steps of each slot's rollout at which the memory predicts (B, P): its last, random ones, every f-th.

    The random ones are a pure function of `key`, (seed, update).
    """
    last = valid[:, None] - 1
    if rollout == 1:
        return last
    seed, update = key
    rng = np.random.Generator(np.random.PCG64((seed << 20) ^ update))
    random = (rng.random((random_points, len(valid))) * valid).astype(np.int64).T
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
    with_targets: bool,
    choose: Callable[[Visit], SuffixTop] | None,
    tables: TargetTables | None,
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
        if choose is None:
            return None
        return gather_candidates(choose(visit), spec, gamma, visit.shard.layout.chunk_steps, visit.length, read)

    return Slab(
        trajectories,
        batch,
        rollout,
        seed,
        fields=tuple(f.name for f in spec.fields if f.name in wanted),
        derived=tuple(derived),
        prepare=prepare,
        on_fresh=tables.put if tables is not None and choose is not None else None,
        memory=memory,
        update=update,
    )


def chooser(scores: Scores, targets: int, temperature: float, seed: int) -> Callable[[Visit], SuffixTop]:
    """Selection for each visit of an episode; its noise is a pure function of (seed, visit)."""

    def choose(visit: Visit) -> SuffixTop:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 13, visit.number))))
        return select(scores(visit), targets, temperature, rng)

    return choose
