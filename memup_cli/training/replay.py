"""Rollouts with rare inputs, trained on more often than walkers pass them.

In a long sequence the few inputs worth remembering are seldom in a rollout. Those rollouts are kept as they were when a
walker passed, with the state they began in (zeros at an episode's start), and part of every batch is drawn from them.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stores.layout import LENGTH, START
from stores.reader import Trajectories

from ..models.memory import State
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

    def chance(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        """Of being kept, for rollouts (B, r, *row): (B,), up to 1 for the rarest."""
        if not self._highest:
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


class Replay:
    """A ring of kept rollouts: rows of batches, and the states they began in."""

    def __init__(self, size: int, count: int, rarity: Rarity, names: tuple[str, ...], seed: int) -> None:
        self._size, self._count, self._rarity, self._names, self._seed = size, count, rarity, names, seed
        self._arrays: dict[str, np.ndarray] = {}
        self._states: list[Tensor] = []
        self._filled = self._next = 0

    def mix(self, batch: dict[str, np.ndarray], state: State, update: int) -> tuple[dict[str, np.ndarray], State]:
        """Keep some of the walkers' rollouts, and append kept ones; what is drawn is a pure function of the update."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, 15, update))))
        walkers = len(batch["fresh"])
        chance = self._rarity.chance({name: batch[name] for name in self._names})
        self._keep(np.flatnonzero(rng.random(walkers) < chance), batch, state)
        if not self._filled:
            return batch, state
        drawn = rng.integers(self._filled, size=self._count)
        rows = torch.from_numpy(drawn).to(state[0].device)
        mixed = {name: np.concatenate([values, self._arrays[name][drawn]]) for name, values in batch.items()}
        return mixed, tuple(torch.cat([p, kept[rows]]) for p, kept in zip(state, self._states, strict=True))

    def _keep(self, which: np.ndarray, batch: dict[str, np.ndarray], state: State) -> None:
        if not self._arrays:
            self._arrays = {n: np.zeros((self._size, *v.shape[1:]), v.dtype) for n, v in batch.items()}
            self._states = [part.new_zeros(self._size, part.shape[1]) for part in state]
        places = (self._next + np.arange(len(which))) % self._size
        for name, values in batch.items():
            self._arrays[name][places] = values[which]
        device = state[0].device
        source, target = (torch.from_numpy(rows).to(device) for rows in (which, places))
        begins = torch.from_numpy(batch["fresh"][which]).to(device).unsqueeze(-1)
        for kept, part in zip(self._states, state, strict=True):
            kept[target] = part[source].masked_fill(begins, 0)
        self._next = (self._next + len(which)) % self._size
        self._filled = min(self._size, self._filled + len(which))

    def state(self) -> dict[str, Any]:
        arrays = {name: torch.from_numpy(values[: self._filled].copy()) for name, values in self._arrays.items()}
        states = [part[: self._filled].clone() for part in self._states]
        return {"arrays": arrays, "states": states, "filled": self._filled, "next": self._next}

    @staticmethod
    def merged(states: list[dict[str, Any]]) -> dict[str, Any]:
        """Of several processes' rings, one with the rollouts of all."""
        if len(states) == 1:
            return states[0]
        begun = [state for state in states if state["filled"]]
        arrays = {n: torch.cat([s["arrays"][n] for s in begun]) for n in (begun[0]["arrays"] if begun else {})}
        parts = [torch.cat(list(found)) for found in zip(*(s["states"] for s in begun), strict=True)]
        return {"arrays": arrays, "states": parts, "filled": sum(s["filled"] for s in states), "next": 0}

    def load(self, state: dict[str, Any], own: Callable[[Tensor], Tensor]) -> None:
        self._filled = min(self._size, len(own(torch.arange(state["filled"]))))
        self._next = state["next"] % self._size if self._filled == self._size else self._filled
        self._arrays = {}
        for name, values in state["arrays"].items():
            kept = own(values).cpu().numpy()[: self._filled]
            self._arrays[name] = np.zeros((self._size, *kept.shape[1:]), kept.dtype)
            self._arrays[name][: self._filled] = kept
        self._states = []
        for part in (own(p)[: self._filled] for p in state["states"]):
            self._states.append(part.new_zeros(self._size, part.shape[1]))
            self._states[-1][: self._filled] = part
