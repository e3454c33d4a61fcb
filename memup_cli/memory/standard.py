"""Inputs in units: what is rare is loud to a memory; for the rest, numbers are of a size that networks cope with."""

import torch
from torch import Tensor, nn

LOUD = 30.0  # what is rare arrives as about this, however rare it is
ORDINARY = (0.01, 100.0)  # how far numbers go that networks take as they are
LOUDEST = 90.0  # nothing is louder: three times as far as what is rare usually is


class Standard(nn.Module):
    """(x - mean) / sd, feature by feature, from the training split; until it is told that, x as it is.

    A cue that is 1 in 200 steps, and else 0, arrives as 14; noise of any size as 1. What is rarer is hardly louder,
    and still tells how large it is: with 1 in a million steps, sizes 1 and 2 arrive as 30 and 60, not both as the same.
    A feature that never varied in training says nothing: whatever it is later, it arrives as 0.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    @torch.no_grad()
    def tell(self, mean: Tensor, sd: Tensor, kurtosis: Tensor) -> None:
        """Of each feature (size,). The root of its kurtosis is about how far the rare values are, in units of sd."""
        varies = sd > 1e-6 * mean.abs()
        quieter = (LOUD / kurtosis.clamp(min=1).sqrt()).clamp(max=1)
        self.mean.copy_(mean)
        self.scale.copy_(torch.where(varies, quieter / sd.clamp(min=1e-30), 0.0))

    def forward(self, x: Tensor) -> Tensor:
        """(..., F) -> (..., F)."""
        return ((x - self.mean) * self.scale).clamp(-LOUDEST, LOUDEST)


class Units(Standard):
    """Numbers of an extraordinary size in units of how far they go; others, and classes, as they are.

    A flag stays 0 or 1, and codes such as 0 to 20 stay as far apart as they are; pressures of 100,000 become about 1.
    """

    @torch.no_grad()
    def tell(self, mean: Tensor, sd: Tensor, kurtosis: Tensor) -> None:
        """Of each feature (size,)."""
        far = sd * kurtosis.clamp(min=1).sqrt()
        ordinary = (far + mean.abs() <= ORDINARY[1]) & ((far >= ORDINARY[0]) | (sd == 0))
        varies = sd > 1e-6 * mean.abs()
        self.mean.copy_(torch.where(ordinary, 0.0, mean))
        self.scale.copy_(torch.where(ordinary, 1.0, torch.where(varies, 1 / far.clamp(min=1e-30), 0.0)))

    def first(self, size: int) -> "Units":
        """The same for the first so many features."""
        part = Units(size)
        part.mean, part.scale = self.mean[:size].clone(), self.scale[:size].clone()
        return part

    def forward(self, x: Tensor) -> Tensor:
        """(..., F) -> (..., F)."""
        return (x - self.mean) * self.scale
