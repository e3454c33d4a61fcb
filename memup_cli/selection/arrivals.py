"""Episodes that enter the slab, seen by a slow average of the model: its errors are the online scores, and its carried
encoder gives the contexts of target steps that no local window can tell."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stores.slab import Slab

from .. import randomness
from ..compute.average import move_towards
from ..errors import UsageProblem
from ..options.memory_options import TrainMemoryOptions
from ..predictor.predictor import MemoryModel
from ..streaming.targets import TARGET
from .candidates import Candidates, TargetTables, compacted
from .gumbel import select

SWEEP_BYTES = 64 << 20  # of what is computed along episodes at a time


class Arrivals:
    """Keeps the averaged model, and fills the target tables of slots that begin an episode."""

    def __init__(self, model: MemoryModel, seed: int, options: TrainMemoryOptions, online: bool) -> None:
        self._model, self._options, self._seed, self._online = model, options, seed, online
        self._average = copy.deepcopy(model).requires_grad_(False).eval()
        self._visits = 0
        self._chosen: dict[int, Candidates] = {}  # by stored scores, still without contexts

    def choose(self, slot: int, candidates: Candidates) -> None:
        """Stored scores chose these targets of a slot's new episode."""
        self._chosen[slot] = candidates

    def attach(self, slab: Slab, tables: TargetTables, resumed: bool) -> None:
        if not slab.whole:
            wanted = "--scores online" if self._online else "--context carried"
            raise UsageProblem(
                f"{wanted} needs whole episodes in RAM, and they do not fit --slab-memory; give it more, use a "
                "smaller --batch, or other --scores and --context"
            )
        self._slab, self._tables = slab, tables
        self._begin = not resumed  # at the very start slots begin in the middle of episodes, and need targets too
        if resumed:  # the tables came with the checkpoint, but for slots that were just about to begin
            self._chosen = {slot: found for slot, found in self._chosen.items() if slab.fresh[slot]}

    def average(self) -> None:
        """Move the slow average a little towards the model."""
        move_towards(self._average, self._model, 1 - self._options.ema)

    def refresh(self) -> None:
        """Fill the tables of all slots that have just begun an episode, side by side."""
        slots = np.flatnonzero(self._slab.fresh | self._begin) if self._online else np.array(list(self._chosen), int)
        self._begin = False
        if not len(slots):
            return
        options = self._options
        width = options.hidden + options.context_hidden + 2 * options.predictor_hidden
        size = max(1, SWEEP_BYTES // (4 * width * int(self._slab.length[slots].max())))
        for first in range(0, len(slots), size):
            self._sweep(slots[first : first + size])
        self._chosen.clear()

    def _sweep(self, slots: np.ndarray) -> None:
        device = next(self._average.parameters()).device
        lengths = self._slab.length[slots]
        arrays = {name: values[slots, : int(lengths.max())] for name, values in self._slab.arrays.items()}
        with torch.no_grad():
            tensors = {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}
            c = self._contexts(arrays, tensors)
            if self._online:
                m, _ = self._average.rollout(tensors, self._average.memory.initial(len(slots)))
                errors = self._average.losses(self._average.predict(m, c), tensors[TARGET]).cpu().numpy()
        for i, slot in enumerate(slots.tolist()):
            length = int(lengths[i])
            found = self._select(errors[i, :length], arrays[TARGET][i]) if self._online else self._chosen[slot]
            episode = {name: values[i] for name, values in arrays.items()}
            found.query.update(self._average.context.of_episode(episode, c[i], found.steps))
            self._tables.put(slot, found)

    def _contexts(self, arrays: dict[str, np.ndarray], tensors: dict[str, Tensor]) -> Tensor:
        """c of every step of some episodes: (n, T, C)."""
        context = self._average.context
        n, length = next(iter(arrays.values())).shape[:2]
        if context.from_start:
            c: Tensor = context.along(tensors, context.initial(n))[0]
            return c
        episode, step = (each.ravel() for each in np.indices((n, length)))
        c = context.at(arrays, episode, step, 0, next(self._average.parameters()).device)
        return c.unflatten(0, (n, length))

    def _select(self, errors: np.ndarray, y: np.ndarray) -> Candidates:
        rng = randomness.stream(self._seed, randomness.ONLINE_TARGETS, self._visits)
        self._visits += 1
        options = self._options
        spread = max(float(errors.max() - np.median(errors)), 1e-6)
        top, steps = compacted(select(errors, options.targets, options.temperature * spread, rng, options.reach))
        return Candidates(top, steps, {}, y[steps])

    def state(self, tables: TargetTables) -> dict[str, Any]:
        return {"average": self._average.state_dict(), "visits": self._visits, "tables": tables.state()}

    @staticmethod
    def merged(states: list[dict[str, Any]]) -> dict[str, Any]:
        """Of all processes' slots."""
        tables = TargetTables.merged([state["tables"] for state in states])
        return {**states[0], "visits": max(state["visits"] for state in states), "tables": tables}

    def load(self, state: dict[str, Any], tables: TargetTables, own: Callable[[Tensor], Tensor]) -> None:
        self._average.load_state_dict(state["average"])
        self._visits = state["visits"]
        tables.load({name: own(values) for name, values in state["tables"].items()})
