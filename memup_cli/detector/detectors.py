"""Detectors d_psi: how uncertain y_k is, given only the local input of step k.

quantile     quantiles of the (discounted) return, as in QR-DQN; score = their spread
classifier   class probabilities from a local window; score = their entropy, or -log p(y_k)
regression   the value from a local window; score = the absolute error
probe        how much of the largest gain from the past steps of this kind have (models/probe.py); score = that, 0 to 1
All see the last `window` steps of the query fields, padded with zeros at an episode's start. Numbers that are seen
(if they are of an extraordinary size) or predicted are in units of how far they go in the sample.
"""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.encoders import FieldEncoder, mlp, row_moments
from ..tasks.spec import TaskSpec

Kind = Literal["quantile", "classifier", "regression", "probe"]
QUANTILES = 32


class Detector(nn.Module):
    levels: Tensor
    usual: Tensor
    unit: Tensor

    def __init__(
        self, spec: TaskSpec, kind: Kind, window: int, hidden: int, score: str = "entropy", past: int = 0
    ) -> None:
        """past: numbers about what came before, besides the local window."""
        super().__init__()
        self.kind, self.window, self.score_kind = kind, window, score
        self.query = FieldEncoder(spec, spec.query, units=True)
        features = self.query.size + 1  # one more tells steps from padding
        self.recurrent = nn.GRU(features, hidden, batch_first=True) if window > 1 else None
        outputs = {"quantile": QUANTILES, "regression": 1, "probe": 1}.get(kind) or spec.classes[spec.target]
        self.head = mlp((hidden if self.recurrent else features) + past, hidden, outputs)
        levels = (torch.arange(QUANTILES) + 0.5) / QUANTILES
        self.register_buffer("levels", levels, persistent=False)
        numbers = kind in ("quantile", "regression")
        self.register_buffer("usual", torch.zeros(()), persistent=numbers)
        self.register_buffer("unit", torch.ones(()), persistent=numbers)

    def tell_units(self, windows: dict[str, np.ndarray], y: np.ndarray | None = None) -> None:
        """How far numbers go in a sample: windows (N, W, *row) of the query fields, and y (N,), unless it has units."""
        self.query.tell_units_of({name: rows[:, -1] for name, rows in windows.items()})
        if y is not None and self.kind in ("quantile", "regression"):
            mean, sd, kurtosis = (each[0] for each in row_moments(y).values())
            self.usual.fill_(mean)
            if sd > 0:
                self.unit.fill_(sd * kurtosis**0.5)

    def forward(self, windows: dict[str, Tensor], real: Tensor, past: Tensor | None = None) -> Tensor:
        """Quantiles, logits or the value (N, outputs), from windows (N, W, ...) and which of their steps exist."""
        exists = real.unsqueeze(-1).float()
        x = torch.cat([self.query(windows) * exists, exists], -1)  # (N, W, F)
        encoded = (x if self.recurrent is None else self.recurrent(x)[0])[:, -1]
        out: Tensor = self.head(encoded if past is None else torch.cat([encoded, past], -1))
        return out if self.kind == "classifier" else out * self.unit + self.usual

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        if self.kind == "classifier":
            return F.cross_entropy(output, y.long())
        if self.kind in ("regression", "probe"):
            return F.mse_loss(output.squeeze(-1) / self.unit, y / self.unit)
        error = (y.unsqueeze(-1) - output) / self.unit  # (N, quantiles)
        return torch.maximum(self.levels * error, (self.levels - 1) * error).mean()  # pinball loss

    @property
    def looks_at_y(self) -> bool:
        """Whether a score depends on what y was, besides the local input."""
        return self.kind == "regression" or (self.kind == "classifier" and self.score_kind == "nll")

    def deviation(self, output: Tensor, y: Tensor) -> Tensor:
        """How far y is from the best guess (N,), or how unlikely its class was."""
        if self.kind == "classifier":
            return F.cross_entropy(output, y.long(), reduction="none")
        guess = output.median(-1).values if self.kind == "quantile" else output.squeeze(-1)
        return (y - guess).abs()

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        """Uncertainty s_k >= 0 of each step (N,)."""
        if self.kind == "quantile":
            return output.std(-1, unbiased=False)
        if self.kind == "probe":
            return output.squeeze(-1).clamp(0, 1)
        if self.kind == "regression":
            return (output.squeeze(-1) - y).abs()
        if self.score_kind == "entropy":
            return torch.distributions.Categorical(logits=output).entropy()
        return F.cross_entropy(output, y.long(), reduction="none")
