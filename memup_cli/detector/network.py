"""Detectors d_psi: how uncertain y_k is, given only the local input of step k. kinds.py says what each predicts.

All see the last `window` steps of the query fields, padded with zeros at an episode's start. Numbers that are seen
(if they are of an extraordinary size) or predicted are in units of how far they go in the sample.
"""

import numpy as np
import torch
from torch import Tensor, nn

from ..memory.encoders import FieldEncoder, mlp, row_moments
from ..registries import DETECTORS
from ..tasks.spec import TaskSpec
from .kinds import DetectorKind


class Detector(nn.Module):
    usual: Tensor
    unit: Tensor

    def __init__(
        self, spec: TaskSpec, kind: str, window: int, hidden: int, score: str = "entropy", past: int = 0
    ) -> None:
        """past: numbers about what came before, besides the local window."""
        super().__init__()
        self.window = window
        self.kind: DetectorKind = DETECTORS.load(kind)(spec, score)
        self.query = FieldEncoder(spec, spec.query, units=True)
        features = self.query.size + 1  # one more tells steps from padding
        self.recurrent = nn.GRU(features, hidden, batch_first=True) if window > 1 else None
        self.head = mlp((hidden if self.recurrent else features) + past, hidden, self.kind.outputs)
        self.register_buffer("usual", torch.zeros(()), persistent=self.kind.numbers)
        self.register_buffer("unit", torch.ones(()), persistent=self.kind.numbers)

    def tell_units(self, windows: dict[str, np.ndarray], y: np.ndarray | None = None) -> None:
        """How far numbers go in a sample: windows (N, W, *row) of the query fields, and y (N,), unless it has units."""
        self.query.tell_units_of({name: rows[:, -1] for name, rows in windows.items()})
        if y is not None and self.kind.numbers:
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
        return out * self.unit + self.usual if self.kind.numbers else out

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        return self.kind.loss(output, y, self.unit)

    @property
    def looks_at_y(self) -> bool:
        """Whether a score depends on what y was, besides the local input."""
        return self.kind.looks_at_y

    def deviation(self, output: Tensor, y: Tensor) -> Tensor:
        return self.kind.deviation(output, y)

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        return self.kind.score(output, y)
