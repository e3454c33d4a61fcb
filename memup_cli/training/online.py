"""Online scores: the prediction error of a slow average of memory and predictor, when an episode enters the slab."""

import copy
from typing import Any

import numpy as np
import torch

from stores.slab import Slab

from ..configs import TrainMemoryOptions
from ..errors import UsageProblem
from ..models.predictor import MemoryModel
from .selection import select
from .targets import TARGET
from .windows import Candidates, TargetTables


class OnlineScores:
    """Keeps the averaged model, and fills the target tables of slots that begin an episode."""

    def __init__(self, model: MemoryModel, seed: int, options: TrainMemoryOptions) -> None:
        self._model, self._options, self._seed = model, options, seed
        self._average = copy.deepcopy(model).requires_grad_(False)
        self._visits = 0

    def attach(self, slab: Slab, tables: TargetTables, resumed: bool) -> None:
        if any(values.shape[1] < slab.length.max() for values in slab.arrays.values()):
            raise UsageProblem(
                "--scores online needs whole episodes in RAM, and they do not fit --slab-memory; give it more, use a "
                "smaller --batch, or --scores stored"
            )
        self._slab, self._tables = slab, tables
        self._begin = not resumed  # at the very start slots begin in the middle of episodes, and need targets too

    def average(self) -> None:
        """Move the slow average a little towards the model."""
        torch._foreach_lerp_(list(self._average.parameters()), list(self._model.parameters()), 1 - self._options.ema)

    def refresh(self) -> None:
        """Score and select for all slots that have just begun an episode, side by side."""
        slots = np.flatnonzero(self._slab.fresh | self._begin)
        self._begin = False
        if not len(slots):
            return
        device = next(self._average.parameters()).device
        longest = int(self._slab.length[slots].max())
        arrays = {name: values[slots, :longest] for name, values in self._slab.arrays.items()}
        with torch.no_grad():
            tensors = {name: torch.from_numpy(values).to(device) for name, values in arrays.items()}
            m, _ = self._average.rollout(tensors, self._average.memory.initial(len(slots)))
            prediction = self._average.predict(m, tensors)
            errors = self._average.losses(prediction, tensors[TARGET]).cpu().numpy()
        for i, slot in enumerate(slots):
            length = int(self._slab.length[slot])
            rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, 14, self._visits))))
            self._visits += 1
            top = select(errors[i, :length], self._options.targets, self._options.temperature, rng)
            query = {name: arrays[name][i, :length] for name in self._average.query.names}
            self._tables.put(int(slot), Candidates(top, query, arrays[TARGET][i, :length]))

    def state(self, tables: TargetTables) -> dict[str, Any]:
        found = {name: torch.from_numpy(values.copy()) for name, values in tables.state().items()}
        return {"average": self._average.state_dict(), "visits": self._visits, "tables": found}

    def load(self, state: dict[str, Any], tables: TargetTables) -> None:
        self._average.load_state_dict(state["average"])
        self._visits = state["visits"]
        tables.load({name: values.cpu().numpy() for name, values in state["tables"].items()})
