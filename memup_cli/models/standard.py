"""Inputs in units of how much they vary: what is rare is loud to a memory, and a number like any other to the rest."""

import torch
from torch import Tensor, nn

LOUD = 30.0  # what is rare arrives as about this, however rare it is
LOUDEST = 90.0  # nothing is louder: three times as far as what is rare usually is
QUIET = 1.0  # for whom what is rare is no louder than the rest: the far values of any number arrive as about this


class Standard(nn.Module):
    """(x - mean) / sd, feature by feature, from the training split; until it is told that, x as it is.

    A cue that is 1 in 200 steps, and else 0, arrives as 14; noise of any size as 1. What is rarer is hardly louder,
    and still tells how large it is: with 1 in a million steps, sizes 1 and 2 arrive as 30 and 60, not both as the same.
    A feature that never varied in training says nothing: whatever it is later, it arrives as 0.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int, loud: float = LOUD) -> None:
        super().__init__()
        self.loud = loud
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    @torch.no_grad()
    def tell(self, mean: Tensor, sd: Tensor, kurtosis: Tensor) -> None:
        """Of each feature (size,). The root of its kurtosis is about how far the rare values are, in units of sd."""
        varies = sd > 1e-6 * mean.abs()
        quieter = (self.loud / kurtosis.clamp(min=1).sqrt()).clamp(max=1)
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(varies, quieter / sd.clamp(min=1e-30), 0.0))

    def first(self, size: int) -> "Standard":
        """The same for the first so many features."""
        part = Standard(size, self.loud)
        part.mean, part.scale = self.mean[:size].clone(), self.scale[:size].clone()
        return part

    def forward(self, x: Tensor) -> Tensor:
        """(..., F) -> (..., F)."""
        return ((x - self.mean) * self.scale).clamp(-LOUDEST, LOUDEST)
