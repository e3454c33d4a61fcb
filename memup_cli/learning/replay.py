"""Rollouts with rare inputs, trained on more often than walkers pass them.

In a long sequence the few inputs worth remembering are seldom in a rollout. Those rollouts are kept as they were when a
walker passed, with the state they began in (zeros at an episode's start), and part of every batch is drawn from them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import randomness
from ..memory.cells import State
from .rarity import Rarity


class Replay:
    """A ring of kept rollouts: rows of batches, and the states they began in."""

    def __init__(self, size: int, count: int, rarity: Rarity, names: tuple[str, ...], seed: int) -> None:
        self._size, self._count, self._rarity, self._names, self._seed = size, count, rarity, names, seed
        self._arrays: dict[str, np.ndarray] = {}
        self._states: list[Tensor] = []
        self._filled = self._next = 0

    def mix(self, batch: dict[str, np.ndarray], state: State, update: int) -> tuple[dict[str, np.ndarray], State]:
        """Keep some of the walkers' rollouts, and append kept ones; what is drawn is a pure function of the update."""
        rng = randomness.stream(self._seed, randomness.REPLAY, update)
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
