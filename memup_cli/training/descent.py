"""The learning rate along training, and the check that training has not run away."""

import math
from pathlib import Path

import torch

from ..errors import BadInput
from . import checkpoint

FINAL_LR = 0.1


def learning_rate(lr: float, update: int, updates: int) -> float:
    """A cosine from lr to a tenth of it."""
    return lr * (FINAL_LR + (1 - FINAL_LR) * 0.5 * (1 + math.cos(math.pi * update / updates)))


def check_finite(folder: Path, loss: float, update: int, lr: float) -> None:
    """BadInput, which says what is kept, if the loss (or the largest weight) is not a number any more."""
    if math.isfinite(loss):
        return
    kept = checkpoint.load_latest(folder, torch.device("cpu"))
    where = f"the last good checkpoint, of update {kept['update']:,}, is kept" if kept else "there is no checkpoint yet"
    raise BadInput(
        f"the loss is no longer finite ({loss}) at update {update:,} with learning rate {lr:.3g}; {where}. Use a "
        "smaller --lr or --clip with --restart, and check the data for extreme values."
    )


def largest(model: torch.nn.Module) -> torch.Tensor:
    return torch.stack([p.detach().abs().max() for p in model.parameters()]).max()
