"""The running gain: how much better the memory, as it is trained, predicts a kind of event than its query row alone.

The probe's gains are measured beforehand and miss what depends on order; these come late, but from the memory itself.
What the memory has not learned yet has no gain either. So the stored scores always choose more candidates than are
needed, and only on a share of the visits to episodes does the running gain draw the targets among them.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import randomness
from ..compute.adam import Adam
from ..memory.encoders import FieldEncoder, mlp
from ..options.memory_options import TrainMemoryOptions
from ..predictor.contexts import context_class
from ..predictor.predictor import MemoryModel, prediction_losses
from ..streaming.targets import TARGET
from ..tasks.spec import TaskSpec
from .candidates import Candidates, TargetTables, compacted
from .gumbel import SuffixTop, perturb
from .rules import rule_of

SPARE = 4  # candidates that stored scores choose, for each target
SHARE = 0.5  # of visits on which the running gain draws among them
HIDDEN, LR = 32, 1e-2
EVERY = 8  # updates of the memory for one of these networks
WARM_UP = 500  # updates of the memory
SIGNIFICANT = 0.3  # of the mean local loss: less may be noise that the memory knows by heart
FADING = 0.99  # of the mean local loss, and of the largest gain
TEMPERATURE = 0.1  # of the draw, with gains in units of the largest


def learns_gains(options: TrainMemoryOptions) -> bool:
    """A carried context has no query row that a kind of event could be known by."""
    return rule_of(options.select).narrows and not context_class(options.context).trained_now


def candidates_wanted(options: TrainMemoryOptions) -> int:
    """How many steps of a suffix stored scores choose."""
    return options.targets * (SPARE if learns_gains(options) else 1)


class _Networks(nn.Module):
    """What a query row tells of y, and how much better the memory does, in units of the mean local loss."""

    scale: Tensor
    largest: Tensor

    def __init__(self, spec: TaskSpec, like: FieldEncoder) -> None:
        super().__init__()
        self.kind = spec.target_kind
        self.query = FieldEncoder(spec, spec.query)
        self.query.units = copy.deepcopy(like.units)
        self.local = mlp(self.query.size, HIDDEN, spec.classes[spec.target] if self.kind == "classes" else 1, layers=1)
        self.gain = mlp(self.query.size, HIDDEN, 1, layers=1)
        self.register_buffer("scale", torch.zeros(()))  # mean local loss
        self.register_buffer("largest", torch.zeros(()))  # gain of a kind of event

    def loss(self, rows: dict[str, Tensor], y: Tensor, exists: Tensor, errors: Tensor) -> Tensor:
        """Of both networks, for targets (B, K) and the memory's losses of them."""
        x = self.query(rows)
        out = self.local(x)
        local = prediction_losses(self.kind, out if self.kind == "classes" else out[..., 0], y)
        gain = self.gain(x.detach())[..., 0]
        count = exists.sum().clamp(min=1)
        with torch.no_grad():
            mean = (local * exists).sum() / count
            self.scale.copy_(torch.where(self.scale == 0, mean, self.scale.lerp(mean, 1 - FADING)))
            self.largest.copy_(torch.maximum(self.largest * FADING, (gain * exists).max()))
            wanted = (local - errors) / self.scale.clamp(min=1e-12)
        found: Tensor = ((local + (gain - wanted) ** 2) * exists).sum() / count
        return found


class Gains:
    """Learns the running gain, and narrows the candidates of an episode to its targets.

    Among several processes each learns from its own slots; a checkpoint keeps the networks of the first.
    """

    def __init__(
        self, spec: TaskSpec, options: TrainMemoryOptions, seed: int, device: torch.device, like: FieldEncoder
    ) -> None:
        """like: the query of the model that learns."""
        self._targets, self._reach, self._seed = options.targets, options.reach, seed
        self._context = context_class(options.context)
        with torch.random.fork_rng(devices=[]):  # the memory's noise stays what it is without these networks
            self._networks = _Networks(spec, like).to(device)
        self._optimiser = Adam(self._networks.parameters(), lr=LR)
        self._updates = self._visits = 0

    def learn(self, model: MemoryModel, m: Tensor, c: Tensor, tensors: dict[str, Tensor]) -> None:
        """From the targets of each slot's first prediction point; m (B, P, 1, H), c (B, P, K, C)."""
        self._updates += 1
        if self._updates % EVERY:
            return
        y, exists = tensors[TARGET][:, 0], tensors["exists"][:, 0]  # (B, K)
        with torch.no_grad():
            errors = model.losses(model.predict(m[:, 0], c[:, 0]), y) / model.unit**2
        y = y if model.kind == "classes" else (y - model.usual) / model.unit
        query = {name: tensors[f"query.{name}"] for name in self._networks.query.names}
        if "which" in tensors:
            which = tensors["which"].view(tensors["exists"].shape)[:, 0]
            rows = {name: values[which] for name, values in self._context.own(query).items()}
        else:
            rows = {name: values[:, 0] for name, values in query.items()}
        self._optimiser.zero_grad()
        self._networks.loss(rows, y, exists, errors).backward()
        self._optimiser.step()

    def narrowed(self, found: Candidates) -> Candidates:
        """The targets of an episode that begins: the first candidates of each suffix, or those with the most gain."""
        best = found.top.best
        if self._updates >= WARM_UP and (best >= 0).sum(1).max() > self._targets:
            rng = randomness.stream(self._seed, randomness.GAINS, self._visits)
            if rng.random() < SHARE and float(self._networks.largest) >= SIGNIFICANT:
                best = self.rank(found, rng)
        self._visits += 1
        best = best[:, : self._targets]
        changes = np.append((best[1:] != best[:-1]).any(1), True)
        top, kept = compacted(SuffixTop(found.top.changes[changes], best[changes]))
        query = {name: values[kept] for name, values in found.query.items()}
        return Candidates(top, found.steps[kept], query, found.y[kept])

    def rank(self, found: Candidates, rng: np.random.Generator) -> np.ndarray:
        """The candidates of every suffix (R, n), in an order drawn by their running gain."""
        networks = self._networks
        query = {name: torch.from_numpy(found.query[name]).to(networks.scale.device) for name in networks.query.names}
        with torch.no_grad():
            gains = networks.gain(networks.query(self._context.own(query)))[:, 0] / networks.largest
        values = perturb(gains.clamp(min=0).cpu().numpy(), TEMPERATURE, rng).astype(np.float64)  # (M,)
        if self._reach is not None:
            values -= found.steps / self._reach
        places = found.top.best
        order = np.argsort(-np.append(values, -np.inf)[places], axis=1)  # a place of -1 finds the last
        return np.take_along_axis(places, order, axis=1)

    def state(self, tables: TargetTables) -> dict[str, Any]:
        networks, optimiser = self._networks.state_dict(), self._optimiser.state_dict()
        counts = {"updates": self._updates, "visits": self._visits}
        return {"networks": networks, "optimiser": optimiser, **counts, "tables": tables.state()}

    @staticmethod
    def merged(states: list[dict[str, Any]]) -> dict[str, Any]:
        """Of all processes' slots."""
        tables = TargetTables.merged([state["tables"] for state in states])
        return {**states[0], "visits": max(state["visits"] for state in states), "tables": tables}

    def load(self, state: dict[str, Any], tables: TargetTables, own: Callable[[Tensor], Tensor]) -> None:
        self._networks.load_state_dict(state["networks"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._updates, self._visits = state["updates"], state["visits"]
        tables.load({name: own(values) for name, values in state["tables"].items()})
