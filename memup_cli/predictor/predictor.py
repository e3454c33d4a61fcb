"""Memory and predictor together: q_phi(y_k | m_t, c_k), the model that train-memory trains and evaluate reads."""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.cells import Shape, State, build_cell
from ..memory.encoders import FieldEncoder
from ..memory.standard import Standard
from ..registries import PREDICTORS
from ..streaming.moments import Moments
from ..tasks.spec import TaskSpec
from .contexts import Context, build_context

LOG_VARIANCE = (-10.0, 3.0)  # of what a predictor can be sure of, in the units of the targets


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
        self.context: Context = build_context(spec, config["context"], shape, config["window"], horizon, units=standard)
        self.spread = config.get("spread", "fixed")
        numbers = standard and self.kind != "classes"  # the predictor is about numbers in units of how much they vary
        self.register_buffer("usual", torch.zeros(()), persistent=numbers)
        self.register_buffer("unit", torch.ones(()), persistent=numbers)
        outputs = spec.classes[spec.target] if self.kind == "classes" else 1 + (self.spread == "learned")
        predictor = PREDICTORS.load(config["predictor"])
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
