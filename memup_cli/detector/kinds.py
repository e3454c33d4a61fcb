"""The kinds of detectors: what each predicts of y_k, the loss it learns from, and how uncertain it calls a step.

A kind is made for a task, and for `score --score`, which is about the classifier. A line in registries.py plugs it in.
"""

from typing import ClassVar, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..tasks.spec import TaskSpec

NUMBERS = ("scalar", "return")
QUANTILES = 32


class DetectorKind(Protocol):
    targets: ClassVar[tuple[str, ...]]  # kinds of target that it can predict: classes, scalar, return
    outputs: int  # numbers that the network says of a step
    numbers: bool  # they are about numbers like y: what the network says is in units of how far y goes
    looks_at_y: bool  # a score depends on what y was, besides the local input

    def __init__(self, spec: TaskSpec, score: str) -> None: ...

    def loss(self, output: Tensor, y: Tensor, unit: Tensor) -> Tensor:
        """Of steps (N, outputs) and their y (N,); unit: how far y goes, if these are numbers."""

    def deviation(self, output: Tensor, y: Tensor) -> Tensor:
        """How far y is from the best guess (N,), or how unlikely its class was."""

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        """Uncertainty s_k >= 0 of each step (N,)."""


class Quantile:
    """Quantiles of the (discounted) return, as in QR-DQN; score = their spread."""

    targets: ClassVar[tuple[str, ...]] = NUMBERS
    numbers, looks_at_y = True, False

    def __init__(self, spec: TaskSpec, score: str) -> None:
        self.outputs = QUANTILES

    def loss(self, output: Tensor, y: Tensor, unit: Tensor) -> Tensor:
        levels = (torch.arange(QUANTILES, device=y.device) + 0.5) / QUANTILES
        error = (y.unsqueeze(-1) - output) / unit  # (N, quantiles)
        return torch.maximum(levels * error, (levels - 1) * error).mean()  # pinball loss

    def deviation(self, output: Tensor, y: Tensor) -> Tensor:
        return (y - output.median(-1).values).abs()

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        return output.std(-1, unbiased=False)


class Classifier:
    """Class probabilities; score = their entropy, or -log p(y_k)."""

    targets: ClassVar[tuple[str, ...]] = ("classes",)
    numbers = False

    def __init__(self, spec: TaskSpec, score: str) -> None:
        self.outputs = spec.classes[spec.target]
        self.looks_at_y = score == "nll"

    def loss(self, output: Tensor, y: Tensor, unit: Tensor) -> Tensor:
        return F.cross_entropy(output, y.long())

    def deviation(self, output: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(output, y.long(), reduction="none")

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        if self.looks_at_y:
            return self.deviation(output, y)
        return torch.distributions.Categorical(logits=output).entropy()


class Regression:
    """The value; score = the absolute error."""

    targets: ClassVar[tuple[str, ...]] = NUMBERS
    numbers = looks_at_y = True

    def __init__(self, spec: TaskSpec, score: str) -> None:
        self.outputs = 1

    def loss(self, output: Tensor, y: Tensor, unit: Tensor) -> Tensor:
        return F.mse_loss(output.squeeze(-1) / unit, y / unit)

    def deviation(self, output: Tensor, y: Tensor) -> Tensor:
        return (y - output.squeeze(-1)).abs()

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        return (output.squeeze(-1) - y).abs()


class Gain(Regression):
    """How much of the largest gain from the past steps of this kind have (probing.py); score = that, 0 to 1."""

    targets: ClassVar[tuple[str, ...]] = ("classes", *NUMBERS)
    numbers = looks_at_y = False

    def score(self, output: Tensor, y: Tensor) -> Tensor:
        return output.squeeze(-1).clamp(0, 1)
