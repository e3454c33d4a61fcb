"""A slow average of a model's weights."""

import torch
from torch import nn


@torch.no_grad()
def move_towards(average: nn.Module, model: nn.Module, share: float) -> None:
    """Move an average of a model's weights a share of the way to those it has now."""
    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), share)
