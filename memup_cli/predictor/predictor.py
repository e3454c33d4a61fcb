"""Memory and predictor together: q_phi(y_k | m_t, c_k), the model that train-memory trains and evaluate reads."""

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.cells import Shape, State, build_cell
from ..memory.encoders import FieldEncoder, mlp
from ..memory.standard import Standard
from ..streaming.moments import Moments
from ..tasks.spec import TaskSpec
from .contexts import build_context

LOG_VARIANCE = (-10.0, 3.0)  # of what a predictor can be sure of, in the units of the targets


def _first_layer(memory: int, context: int, hidden: int) -> tuple[nn.Linear, nn.Linear]:
    """One linear layer on [m, c], in two parts; torch's initial weights of the whole."""
    whole = nn.Linear(memory + context, hidden)
    parts = nn.Linear(memory, hidden), nn.Linear(context, hidden, bias=False)
    with torch.no_grad():
        parts[0].bias.copy_(whole.bias)
        for part, weights in zip(parts, whole.weight.split([memory, context], 1), strict=True):
            part.weight.copy_(weights)
    return parts


Promise = Callable[[Tensor, Tensor], Tensor]  # m (N, H), the beginnings of contexts (N, C - D) -> (N, A)


def _for_choices(layer: nn.Linear, choices: Tensor, memory: nn.Linear | None = None) -> Callable[[Tensor], Tensor]:
    """A linear layer on contexts that end with each of some choices (A, D): (N, C - D) -> (N, A, hidden).

    What the choices give is computed once for all calls. With a layer on memory states, its sum with that one: on
    (N, H + C - D), states before contexts.
    """
    begin, end = layer.weight.detach().split([layer.in_features - choices.shape[1], choices.shape[1]], 1)
    fixed = choices @ end.t()
    if layer.bias is not None:
        fixed = fixed + layer.bias.detach()
    if memory is not None:
        begin, fixed = torch.cat([memory.weight.detach(), begin], 1), fixed + memory.bias.detach()
    begin = begin.t().contiguous()
    return lambda asked: (asked @ begin).unsqueeze(1) + fixed


def _first_output(rest: nn.Sequential) -> Callable[[Tensor], Tensor]:
    """The last layers on what comes before their first ReLU, (N, A, hidden) -> (N, A): only the first output."""
    hidden, last = cast(nn.Linear, rest[0]), cast(nn.Linear, rest[-1])
    weight, bias = hidden.weight.detach().t().contiguous(), hidden.bias.detach()
    out, offset = last.weight.detach()[0], last.bias.detach()[0]

    def call(before: Tensor) -> Tensor:
        x = torch.addmm(bias, before.relu_().flatten(0, 1), weight).relu_()
        return (x @ out).add_(offset).view(before.shape[:2])

    return call


class PlainMLP(nn.Module):
    """Three layers on [m, c]; the first in two parts: what a state gives is computed once for all its targets."""

    def __init__(self, memory: int, context: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.memory, self.context = _first_layer(memory, context, hidden)
        self.rest = mlp(hidden, hidden, outputs, layers=1)

    def forward(self, m: Tensor, c: Tensor) -> Tensor:
        out: Tensor = self.rest(F.relu(self.memory(m) + self.context(c)))
        return out

    def prepared(self, choices: Tensor) -> Promise:
        """The first output for contexts that end with each of the choices (A, D); for many calls."""
        first, last = _for_choices(self.context, choices, self.memory), _first_output(self.rest)
        return lambda m, asked: last(first(torch.cat([m, asked], 1)))


class GatedMLP(nn.Module):
    """The three layers of the plain predictor, the first one multiplied by a linear function of the context.

    The context says which part of the memory is asked for; a product picks it out where a sum must learn to.
    """

    def __init__(self, memory: int, context: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.memory, self.context = _first_layer(memory, context, hidden)
        self.gate = nn.Linear(context, hidden)
        self.rest = mlp(hidden, hidden, outputs, layers=1)

    def forward(self, m: Tensor, c: Tensor) -> Tensor:
        out: Tensor = self.rest(F.relu((self.memory(m) + self.context(c)) * self.gate(c)))
        return out

    def prepared(self, choices: Tensor) -> Promise:
        """As PlainMLP.prepared()."""
        first, last = _for_choices(self.context, choices, self.memory), _first_output(self.rest)
        gate = _for_choices(self.gate, choices)
        return lambda m, asked: last(first(torch.cat([m, asked], 1)).mul_(gate(asked)))


PREDICTORS: dict[str, type[GatedMLP] | type[PlainMLP]] = {"mlp": PlainMLP, "gated": GatedMLP}


class MemoryModel(nn.Module):
    """Memory over the memory inputs, context encoder over the query fields, predictor over [m_t, c_k]."""

    usual: Tensor
    unit: Tensor

    def __init__(self, spec: TaskSpec, config: dict[str, Any], horizon: int) -> None:
        super().__init__()
        self.kind = spec.target_kind
        horizon = round(horizon * config["horizon"])
        common = {name: config[name] for name in ("layers", "embedding", "dropout")}
        standard = config.get("standardised", False)  # not in 0.1.0
        closed = standard and config.get("novelty_gates", False)
        self.inputs = FieldEncoder(spec, spec.memory_input, standard=standard)
        shape = Shape(config["hidden"], **common, input_scale=config["input_scale"], standard=standard, closed=closed)
        self.memory = build_cell(config["cell"], self.inputs.size, shape, horizon)
        shape = Shape(config["context_hidden"], **common, input_scale=config["context_scale"])
        self.context = build_context(spec, config["context"], shape, config["window"], horizon, units=standard)
        self.spread = config.get("spread", "fixed")
        numbers = standard and self.kind != "classes"  # the predictor is about numbers in units of how much they vary
        self.register_buffer("usual", torch.zeros(()), persistent=numbers)
        self.register_buffer("unit", torch.ones(()), persistent=numbers)
        outputs = spec.classes[spec.target] if self.kind == "classes" else 1 + (self.spread == "learned")
        predictor = PREDICTORS[config["predictor"]]
        self.predictor = predictor(config["hidden"], self.context.size, config["predictor_hidden"], outputs)

    def standardise(self, found: Moments, targets: tuple[float, float]) -> None:
        """Tell how much the inputs vary (mean and spread of what each field holds), and targets do."""
        moments = self.inputs.moments(found)
        self.context.query.tell_units(found)
        if isinstance(standard := getattr(self.memory, "standard", None), Standard):
            standard.tell(*moments)
        self.usual.fill_(targets[0])
        self.unit.fill_(targets[1])

    def rollout(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """m_t along a window: (B, r, ...) -> (B, r, H)."""
        m, state = self.memory(self.inputs(arrays), state)
        return m, state

    def predict(self, m: Tensor, c: Tensor) -> Tensor:
        """Logits (..., classes) or values (...) for contexts (..., K, C) from memory states (..., 1 or K, H)."""
        out = self.predictor(m, c)
        return out if self.kind == "classes" else out[..., 0] * self.unit + self.usual

    @torch.no_grad()
    def predict_always(self, constant: Tensor) -> None:
        """Make every prediction this one: logits (classes), or a number ()."""
        last = cast(nn.Linear, self.predictor.rest[-1])
        last.weight.zero_()
        last.bias[: max(constant.numel(), 1)] = (
            constant if self.kind == "classes" else (constant - self.usual) / self.unit
        )

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        return prediction_losses(self.kind, prediction, y)

    def training_losses(self, m: Tensor, c: Tensor, y: Tensor) -> Tensor:
        """-log q(y_k | m_t, c_k), or with a learned spread: that of a Gaussian, times the spread.

        What cannot be known yet then hides less of what can. The factor keeps targets that are easy from drowning the
        others (Seitzer et al. 2022, beta = 1/2).
        """
        if self.spread == "fixed":
            return self.losses(self.predict(m, c), y) / self.unit**2
        mean, log_variance = self.predictor(m, c).unbind(-1)
        y = (y - self.usual) / self.unit
        log_variance = log_variance.clamp(*LOG_VARIANCE)
        nll = (log_variance + (mean - y) ** 2 * torch.exp(-log_variance)) / 2
        weighted: Tensor = nll * torch.exp(log_variance.detach() / 2)
        return weighted


def prediction_losses(kind: str, prediction: Tensor, y: Tensor) -> Tensor:
    """-log q(y_k | m_t, c_k) per target (eq. 5): cross-entropy, or squared error (a unit-variance Gaussian)."""
    if kind == "classes":
        flat = F.cross_entropy(prediction.flatten(0, -2), y.long().flatten(), reduction="none")
        return flat.view(y.shape)
    return (prediction - y) ** 2
