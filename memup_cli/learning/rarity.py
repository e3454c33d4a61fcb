"""How rare the inputs of a rollout are: from a sample of the training episodes."""

import math

import numpy as np

from stores.layout import LENGTH, START
from stores.reader import Trajectories

from ..tasks.spec import TaskSpec

SAMPLE_STEPS, SAMPLE_EPISODES = 1 << 18, 32  # looked at: of so many episodes at least
MAX_COLUMNS = 16  # fields with more numbers a step, such as images, are not looked at
MAX_VALUES, BINS = 64, 16  # a column with more different values is cut into bins
LEAST = 0.02  # chance of a rollout without anything rare


class Rarity:
    """How rare the inputs of a rollout are: -log frequency beyond its average, summed over a step's fields.

    Noise, however improbable each value is, has none: all its values are as rare as the average.
    """

    def __init__(self, trajectories: Trajectories, spec: TaskSpec, rollout: int) -> None:
        fields = {f.name: f for f in spec.fields}
        names = [n for n in spec.memory_input if n in fields and math.prod(fields[n].shape) <= MAX_COLUMNS]
        episodes = _sample(trajectories, names)
        self._ranks = {name: len(fields[name].shape) for name in names}
        self._tables: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}  # per column: edges, excess of each bin
        for name in names:
            values = np.concatenate([arrays[name] for arrays in episodes])
            self._tables[name] = [_excess(column) for column in values.reshape(len(values), -1).T]
        highest = 0.0
        for arrays in episodes if names else ():
            excess = self._steps(arrays)
            whole = excess[: len(excess) // rollout * rollout].reshape(-1, rollout).mean(1)
            highest = max(highest, float(whole.max(initial=0)), float(excess[:rollout].mean()))
        self._highest = highest

    @property
    def tells(self) -> bool:
        """Whether any rollout is rarer than others."""
        return self._highest > 0

    def chance(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Of being kept, for rollouts (B, r, *row): (B,), up to 1 for the rarest."""
        if not self.tells:
            return np.ones(len(next(iter(arrays.values()))))
        return np.clip(self._steps(arrays).mean(-1) / self._highest, LEAST, 1)

    def _steps(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Excess of steps (..., *row): (...)."""
        total: np.ndarray = np.zeros(())
        for name, columns in self._tables.items():
            values = arrays[name]
            values = values.reshape(*values.shape[: values.ndim - self._ranks[name]], -1)
            for i, (edges, excess) in enumerate(columns):
                total = total + excess[np.searchsorted(edges, values[..., i], side="right")]
        return total


def _sample(trajectories: Trajectories, names: list[str]) -> list[dict[str, np.ndarray]]:
    """The first episodes; of very long ones the start, a piece of the middle, and the end."""
    found: list[dict[str, np.ndarray]] = []
    left, most = SAMPLE_STEPS, SAMPLE_STEPS // SAMPLE_EPISODES
    for shard, group in trajectories.groups():
        rows = shard.rows(group)
        if len(rows) == 1 and int(rows[0, LENGTH]) > most:
            first, length, piece = int(rows[0, START]), int(rows[0, LENGTH]), most // 3
            for start in (0, (length - piece) // 2, length - piece):
                steps = first + start, first + start + piece
                found.append({name: shard.read_steps(name, *steps) for name in names})
            left -= 3 * piece
        else:
            first = int(rows[0, START])
            stop = min(int(rows[-1, START] + rows[-1, LENGTH]), first + left)
            arrays = {name: shard.read_steps(name, first, stop) for name in names}
            for row in rows[rows[:, START] < stop]:
                these = slice(int(row[START]) - first, int(row[START] + row[LENGTH]) - first)
                found.append({name: values[these] for name, values in arrays.items()})
            left -= stop - first
        if left <= 0:
            break
    return found


def _excess(column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges between bins, and max(0, -log p(bin) - entropy) of each."""
    values = np.unique(column)
    if len(values) <= MAX_VALUES:
        edges = (values[1:].astype(np.float64) + values[:-1]) / 2
    else:
        edges = np.linspace(values[0], values[-1], BINS + 1)[1:-1]
    counts = np.bincount(np.searchsorted(edges, column, side="right"), minlength=len(edges) + 1)
    p = np.maximum(counts, 1) / len(column)
    surprisal = -np.log(p)
    return edges, np.maximum(surprisal - (p * surprisal).sum(), 0)
