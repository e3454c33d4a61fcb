"""Networks that act: an actor-critic and a quantile network, both on (observation, memory state).

The state comes from a core, any cell of models/: the frozen memory of a run, or a recurrent core that is trained with
the policy (the baselines). On a frozen memory, images are seen with eyes of the agent's own, begun as a copy of the
memory's and trained with the policy; or with the memory's as they are, once: what is recorded and learned from then are
their features. With an outlook, the state is followed by what the memory's predictor expects of each action.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from stores.layout import Field

from ..baselines.cores import AMRLCore, GTrXLCore, LSTMCore
from ..memory.cells import State
from ..memory.cells import prepared as prepared_cell
from ..memory.encoders import FieldEncoder
from ..predictor.predictor import MemoryModel
from ..registries import AGENTS
from ..registry import imported
from ..streaming.moments import Moments
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .action_numbers import Combinations, Heads
from .senses import OBSERVATION, Eyes, Outlook, OutlookInputs, SeenInputs

LOG_2PI = 1.8378770664093453
TRUST = 20.0  # at first, an action that promises 1 / TRUST less than another is taken e times less often


def _head(inputs: int, hidden: int, outputs: int, scale: float) -> nn.Sequential:
    """Two tanh layers and a linear one; a small last layer makes the first policy close to uniform."""
    last = nn.Linear(hidden, outputs)
    with torch.no_grad():
        last.weight.mul_(scale)
        last.bias.zero_()
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), last)


def prepared(head: nn.Sequential) -> Callable[[Tensor], Tensor]:
    """A head for many calls with the same weights and few rows: laid out for that, it takes half the time."""
    linear = [layer for layer in head if isinstance(layer, nn.Linear)]
    *hidden, last = [(layer.bias.detach(), layer.weight.detach().t().contiguous()) for layer in linear]

    def call(x: Tensor) -> Tensor:
        for bias, weight in hidden:
            x = torch.addmm(bias, x, weight).tanh_()
        return torch.addmm(last[0], x, last[1])

    return call


class Body(nn.Module):
    """What all agents share: a core over (o_t, a_{t-1}), and features (o_t, m_t).

    Numbers that are observed, and rewards, are in units of how far they go in the collected episodes.
    """

    reward_unit: Tensor

    def __init__(self, spec: TaskSpec, memory: MemoryModel | None, config: dict[str, Any]) -> None:
        super().__init__()
        units = bool(config.get("units"))  # not in 0.1.0
        self.register_buffer("reward_unit", torch.ones(()), persistent=units)
        self.frozen = memory is not None
        sees_images = memory is not None and OBSERVATION in memory.inputs.images
        self.eyes = Eyes(memory) if memory is not None and sees_images and config.get("eyes") == "memory" else None
        self.observed = spec.observed
        self.inputs: FieldEncoder | SeenInputs | OutlookInputs
        if memory is None:
            self.inputs = FieldEncoder(spec, spec.memory_input, units=units)
        else:
            self.inputs = SeenInputs(spec, spec.memory_input) if self.eyes else memory.inputs
            if config.get("outlook"):
                self.inputs = OutlookInputs(spec, memory, self.inputs)
        self.core: Any
        if memory is None:
            self.core = imported(AGENTS.entry(config["agent"]).core)(self.inputs.size, config)
        else:
            self.core = Outlook(spec, memory) if config.get("outlook") else memory.memory
        if memory is not None:
            self.inputs.requires_grad_(False)
            self.core.requires_grad_(False)
        self.observation = FieldEncoder(spec, self.observed, units=units) if self.eyes is None else None
        if self.observation and memory is not None:
            for name, images in self.observation.images.items():
                images.load_state_dict(memory.context.query.images[name].state_dict())
        fields = {f.name: f for f in spec.fields}
        self.sights = tuple(fields[name] for name in self.observed)  # what is recorded of an observation
        if self.eyes:
            self.sights = (Field(OBSERVATION, "float32", (self.eyes.size,)),)
        self.row_bytes = sum(field.row_bytes for field in self.sights)
        self.seen = tuple(dict.fromkeys((*self.observed, PREVIOUS_ACTION, *spec.late(spec.memory_input))))
        self._seen = self.observation.size if self.observation else Eyes.size
        self.features = self._seen + self.core.size
        self._imitated = config.get("eyes") == "imitated"
        self.learns_to_see = bool(self.observation and self.observation.images) and not self._imitated
        self.open_eyes(False)
        sees_the_same = self.observation is not None and not self.observation.images
        self._sees_first = self.inputs.names[: len(self.observed)] == self.observed and sees_the_same

    def tell_units(self, found: Moments, reward: float) -> None:
        """How far the numbers that are observed go, and how far what an episode brings."""
        self.reward_unit.fill_(reward)
        if self.observation is not None:
            self.observation.tell_units(found)
        if not self.frozen and isinstance(self.inputs, FieldEncoder):
            self.inputs.tell_units(found)

    def open_eyes(self, learning: bool) -> None:
        """Whether eyes that only imitating trains learn now."""
        if self._imitated and self.observation:
            self.observation.requires_grad_(learning)

    def see(self, observation: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Observations (N, ...) as they are recorded: themselves, or what the memory's eyes make of images."""
        if self.eyes is None:
            return observation
        device = next(self.eyes.parameters()).device
        with torch.inference_mode():
            seen: np.ndarray = self.eyes(torch.from_numpy(observation[OBSERVATION]).to(device)).cpu().numpy()
        return {OBSERVATION: seen}

    def remember(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """m_t along (B, r, ...): (B, r, H), and the state after."""
        m, state = self.core(self.inputs(arrays), state)
        return m, state

    def look(self, arrays: dict[str, Tensor], m: Tensor) -> Tensor:
        """Features (..., F) of observations (...) and memory states (..., H)."""
        seen = arrays[OBSERVATION].float() if self.observation is None else self.observation(arrays)
        return torch.cat([seen, m], -1)

    def prepared(self) -> Callable[[dict[str, Tensor], State], tuple[Tensor, Tensor, State]]:
        """One step of N environments, for many calls with the same weights: features (N, F), m (N, H), the state."""
        core, encode, seen = prepared_cell(self.core), self.inputs.forward, self._seen
        units = self.observation.units if self.frozen and self.observation else None  # a core of its own has them
        in_units: nn.Module = nn.Identity() if units is None else units

        def call(arrays: dict[str, Tensor], state: State) -> tuple[Tensor, Tensor, State]:
            x = encode(arrays)
            m, state = core(x, state)
            if self._sees_first:  # the core's inputs begin with what look() would encode again
                return torch.cat([in_units(x[:, :seen]), m], -1), m, state
            return self.look(arrays, m), m, state

        return call

    def own_state(self) -> dict[str, Tensor]:
        """Weights that belong to the agent: a frozen memory stays where it was trained."""
        skipped = ("inputs.", "core.", "eyes.") if self.frozen else ()
        return {name: value for name, value in self.state_dict().items() if not name.startswith(skipped or "\0")}

    def load_own(self, weights: dict[str, Tensor]) -> None:
        missing = set(self.own_state()) ^ set(weights)
        if missing:
            raise KeyError(f"weights do not fit this agent: {', '.join(sorted(missing))}")
        self.load_state_dict(weights, strict=False)


def lstm_core(inputs: int, config: dict[str, Any]) -> LSTMCore:
    return LSTMCore(inputs, config["core_hidden"])


def amrl_core(inputs: int, config: dict[str, Any]) -> AMRLCore:
    return AMRLCore(inputs, config["core_hidden"], config["aggregate"])


def gtrxl_core(inputs: int, config: dict[str, Any]) -> GTrXLCore:
    how = {name: config[name] for name in ("layers", "heads", "span")}
    return GTrXLCore(inputs, config["core_hidden"], **how)


class ActorCritic(Body):
    """A policy over the classes of each number of an action or, for Box actions, a Gaussian; and a value."""

    def __init__(self, spec: TaskSpec, memory: MemoryModel | None, config: dict[str, Any]) -> None:
        super().__init__(spec, memory, config)
        counts = spec.counts("action")
        self.heads = Heads(counts) if counts else None
        self._shape = next(f for f in spec.fields if f.name == "action").shape
        outputs = sum(counts) or torch.Size(self._shape).numel()
        self.actor = _head(self.features, config["hidden"], outputs, scale=0.01)
        self.critic = _head(self.features, config["hidden"], 1, scale=1.0)
        self.log_std = nn.Parameter(torch.zeros(0 if self.heads else outputs))
        self.trust = nn.Parameter(torch.ones(1)) if config.get("outlook") else None

    def decider(self) -> Callable[[Tensor], Tensor]:
        act = prepared(self.actor)
        if self.trust is None:
            return act
        count = cast(nn.Linear, self.actor[-1]).out_features
        centred = torch.eye(count, device=self.trust.device) - 1 / count
        inclines = TRUST * self.trust.detach() * centred  # as _inclined(), in one product
        return lambda features: torch.addmm(act(features), features[:, -count:], inclines)

    def _inclined(self, out: Tensor, features: Tensor) -> Tensor:
        """The first policy does what the predictor promises most of; learning goes on from there."""
        if self.trust is None:
            return out
        promised = features[..., -out.shape[-1] :]
        return out + TRUST * self.trust * (promised - promised.mean(-1, keepdim=True))

    def choose(self, out: Tensor, generator: torch.Generator, greedy: bool) -> Tensor:
        """Actions (N,) or (N, *shape) from what the actor says: the most likely ones, or a sample."""
        if self.heads:
            if not greedy:  # Gumbel-max
                noise = torch.empty_like(out).exponential_(generator=generator)
                out = out - noise.log()
            return self.heads(out).argmax(-1).view(-1, *self._shape)
        if not greedy:
            noise = torch.empty_like(out).normal_(generator=generator)
            out = out + self.log_std.exp() * noise
        return out.view(-1, *self._shape)

    def value(self, features: Tensor) -> Tensor:
        value: Tensor = self.critic(features).squeeze(-1)
        return value

    def log_prob(self, features: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """log pi(a | o, m) and the entropy, both (...): sums over the numbers of an action."""
        out = self._inclined(self.actor(features), features)
        if self.heads:
            log_p = self.heads(out).log_softmax(-1)  # (..., count, most)
            taken = action.long().reshape(*log_p.shape[:-1], 1)
            return log_p.gather(-1, taken).squeeze(-1).sum(-1), -(log_p.exp() * log_p).sum((-2, -1))
        action = action.reshape(out.shape)
        z = (action - out) * torch.exp(-self.log_std)
        log_p = (-0.5 * z**2 - self.log_std - 0.5 * LOG_2PI).sum(-1)
        return log_p, (self.log_std + 0.5 * (1 + LOG_2PI)).sum().expand_as(log_p)


class QuantileNetwork(Body):
    """Quantiles of the return of every action (QR-DQN, Dabney et al. 2018). Actions of several numbers are numbered."""

    def __init__(self, spec: TaskSpec, memory: MemoryModel | None, config: dict[str, Any]) -> None:
        super().__init__(spec, memory, config)
        shape = next(f for f in spec.fields if f.name == "action").shape
        self.numbered = Combinations(spec.counts("action"), shape)
        self.actions, self.quantiles = len(self.numbered.rows), config["quantiles"]
        self.head = _head(self.features, config["hidden"], self.actions * self.quantiles, scale=0.1)

    def forward(self, features: Tensor) -> Tensor:
        """(..., F) -> (..., actions, quantiles)."""
        out: Tensor = self.head(features)
        return out.unflatten(-1, (self.actions, self.quantiles))

    def decider(self) -> Callable[[Tensor], Tensor]:
        return prepared(self.head)

    def choose(self, out: Tensor, _: torch.Generator, greedy: bool) -> Tensor:
        """The actions with the highest mean (N, *shape); it explores only as the player is told to."""
        return self.numbered.rows[out.unflatten(-1, (self.actions, self.quantiles)).mean(-1).argmax(-1)]


Policy = ActorCritic | QuantileNetwork


def build_policy(spec: TaskSpec, memory: MemoryModel | None, config: dict[str, Any]) -> Policy:
    policy: Policy = AGENTS.load(config["agent"]).policy_class(spec, memory, config)
    return policy
