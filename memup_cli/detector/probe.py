"""The pooled-past probe: how much what came before step k helps to predict y_k, without training a memory.

A running max over encoded inputs stands in for the ideal memory: no recurrence, so no long gradients. It knows what
has been seen, but not in which order. q(y_k | pooled_k, x_k) against q(y_k | x_k) estimates I(y_k ; m*_k | x_k), the
utility of memory, where the uncertainty of y_k alone takes noise for something to remember.
"""

import numpy as np
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.encoders import FieldEncoder, mlp
from ..predictor.predictor import prediction_losses
from ..tasks.spec import TaskSpec
from .network import Detector


class Probe(nn.Module):
    def __init__(self, spec: TaskSpec, window: int, hidden: int) -> None:
        super().__init__()
        self.kind = spec.target_kind
        kind = "classifier" if self.kind == "classes" else "regression"
        self.inputs = FieldEncoder(spec, spec.memory_input, units=True)
        self.encoder = mlp(self.inputs.size, hidden, hidden, layers=1)
        self.without = Detector(spec, kind, window, hidden)  # q(y_k | x_k)
        self.with_past = Detector(spec, kind, window, hidden, past=hidden)  # q(y_k | pooled_k, x_k)

    def tell_units(self, past: dict[str, np.ndarray], windows: dict[str, np.ndarray]) -> None:
        """How far the numbers go of past inputs (E, S, *row) and of windows (N, W, *row)."""
        self.inputs.tell_units_of({name: rows.reshape(-1, *rows.shape[2:]) for name, rows in past.items()})
        for each in (self.without, self.with_past):
            each.tell_units(windows)

    def pooled(self, past: dict[str, Tensor]) -> Tensor:
        """Running max of E episodes' encoded inputs (E, S, ...): (E, S + 1, H), the first before any of them."""
        encoded = F.relu(self.encoder(self.inputs(past)))
        return F.pad(encoded.cummax(1).values, (0, 0, 1, 0))

    def losses(
        self,
        past: dict[str, Tensor],
        episode: Tensor,
        seen: Tensor,
        windows: dict[str, Tensor],
        real: Tensor,
        y: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """-log q(y_k) without and with the past, of events (n,): each of an episode of which it has seen so much."""
        pooled = self.pooled(past)[episode, seen]  # (n, H)
        outputs = self.without(windows, real), self.with_past(windows, real, pooled)
        if self.kind != "classes":
            outputs = outputs[0].squeeze(-1), outputs[1].squeeze(-1)
        return prediction_losses(self.kind, outputs[0], y), prediction_losses(self.kind, outputs[1], y)
