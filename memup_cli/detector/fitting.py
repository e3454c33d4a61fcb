"""The training loop of the score stage's networks: until the held-out loss no longer falls; resumable."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .. import console
from ..compute.adam import Adam
from ..errors import BadInput
from ..interrupts import StopFlag
from ..records import checkpoint

EVALUATE_EVERY = 100
LR = 2e-3
SAVE_EVERY = 30.0  # seconds between two checkpoints


@dataclass(frozen=True)
class Fitting:
    """How long a network is trained, and what it is called meanwhile."""

    name: str
    updates: int  # at most
    patience: int  # evaluations in which the held-out loss does not fall
    quiet: bool


@dataclass(frozen=True)
class Saving:
    """Where checkpoints go. Only those with the same mark are taken up."""

    folder: Path
    mark: str
    stop: StopFlag
    still_ours: Callable[[], None]


def fit(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    held_out_loss: Callable[[], float],
    generator: torch.Generator,
    how: Fitting,
    saving: Saving | None = None,
) -> tuple[int, float] | None:
    """Updates made, and the lowest held-out loss; None if stopped before the end. `generator` draws the batches."""
    optimiser = Adam(model.parameters(), lr=LR, fused=False)
    best, stale, update = float("inf"), 0, 0
    if saving:
        saved = checkpoint.load_latest(saving.folder, next(model.parameters()).device)
        if saved is not None and saved.get("mark") == saving.mark:
            with checkpoint.fitting(saving.folder):
                model.load_state_dict(saved["detector"])
                optimiser.load_state_dict(saved["optimiser"])
                generator.set_state(saved["generator"].cpu())
                best, stale, update = saved["best"], saved["stale"], saved["update"]
            console.resuming("score", f"update {update:,} of the {how.name}", how.quiet)
        else:
            checkpoint.clear(saving.folder)
    saved_at = time.monotonic()
    with console.Progress(how.name, "update", how.updates, update, quiet=how.quiet) as bar:
        while update < how.updates and stale < how.patience:
            optimiser.zero_grad()
            loss().backward()
            optimiser.step()
            update += 1
            if update % EVALUATE_EVERY == 0 or update == how.updates:
                with torch.no_grad():
                    held = held_out_loss()
                if not math.isfinite(held):
                    raise BadInput(
                        f"the {how.name}'s loss is no longer finite ({held}) at update {update:,} with learning rate "
                        f"{LR}; no scores were written. Check the data for extreme values."
                    )
                stale = 0 if held < 0.995 * best else stale + 1
                best = min(best, held)
                bar.advance(update - bar.done, f"held-out loss {held:.4g}")
            if saving and (saving.stop or time.monotonic() - saved_at >= SAVE_EVERY):
                content: dict[str, Any] = {"mark": saving.mark, "update": update, "best": best, "stale": stale}
                content |= {"detector": model.state_dict(), "optimiser": optimiser.state_dict()}
                content["generator"] = generator.get_state()
                checkpoint.save(saving.folder, update, content, saving.still_ours)
                saved_at = time.monotonic()
            if saving and saving.stop:
                return None
    return update, best
