"""Training the detector on a balanced sample of steps; resumable, and checked at the end."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import console
from ..errors import BadInput
from ..interrupts import StopFlag
from ..models.detectors import Detector
from . import checkpoint
from .reservoir import Reservoir
from .stages import note_resume

BATCH, BATCH_BYTES = 1024, 4 << 20  # of steps that the detector learns from at a time, at most
EVALUATE_EVERY, PATIENCE = 100, 5
LR = 2e-3
SAVE_EVERY = 30.0  # seconds between two checkpoints of the detector
SEPARATION = 2.0  # the tenth of steps with the highest scores must be this many times as uncertain as the rest


@dataclass(frozen=True)
class ScoreConfig:
    detector: str
    gamma: float
    window: int
    hidden: int
    updates: int
    score: str
    seed: int


def train_detector(
    detector: Detector,
    reservoir: Reservoir,
    config: ScoreConfig,
    device: torch.device,
    folder: Path,
    mark: str,
    stop: StopFlag,
    still_ours: Callable[[], None],
    quiet: bool,
) -> dict[str, Any] | None:
    """Train until the held-out loss no longer falls; then check that the scores separate. None if stopped before.

    Checkpoints go to the folder; only those with the same mark are taken up.
    """
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence((config.seed, 12)))).permutation(len(reservoir))
    shuffled = torch.from_numpy(order)
    windows = {name: torch.from_numpy(values) for name, values in reservoir.windows.items()}
    row_bytes = sum(values[0].nbytes for values in reservoir.windows.values())
    batch = min(BATCH, max(32, BATCH_BYTES // row_bytes))

    def steps(rows: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        found = shuffled[rows]
        real, y = (torch.from_numpy(values)[found].to(device) for values in (reservoir.real, reservoir.y))
        return {name: values[found].to(device) for name, values in windows.items()}, real, y

    held_out = max(1, len(reservoir) // 10)
    held = steps(torch.arange(held_out))
    y = held[2]
    generator = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.Adam(detector.parameters(), lr=LR)
    best, stale, update = float("inf"), 0, 0
    saved = checkpoint.load_latest(folder, device)
    if saved is not None and saved.get("mark") == mark:
        with checkpoint.fitting(folder):
            detector.load_state_dict(saved["detector"])
            optimiser.load_state_dict(saved["optimiser"])
            generator.set_state(saved["generator"].cpu())
            best, stale, update = saved["best"], saved["stale"], saved["update"]
        note_resume("score", f"update {update:,} of the detector", quiet)
    else:
        checkpoint.clear(folder)
    saved_at = time.monotonic()
    with console.Progress("detector", "update", config.updates, update, quiet=quiet) as bar:
        while update < config.updates and stale < PATIENCE:
            rows = torch.randint(held_out, max(len(reservoir), held_out + 1), (batch,), generator=generator)
            local, real, wanted = steps(rows.clamp(max=len(reservoir) - 1))
            optimiser.zero_grad(set_to_none=True)
            detector.loss(detector(local, real), wanted).backward()
            optimiser.step()
            update += 1
            if update % EVALUATE_EVERY == 0 or update == config.updates:
                with torch.no_grad():
                    loss = float(detector.loss(detector(*held[:2]), y))
                if not math.isfinite(loss):
                    raise BadInput(
                        f"the detector's loss is no longer finite ({loss}) at update {update:,} with learning rate "
                        f"{LR}; no scores were written. Check the data for extreme values."
                    )
                stale = 0 if loss < 0.995 * best else stale + 1
                best = min(best, loss)
                bar.advance(update - bar.done, f"held-out loss {loss:.4g}")
            if stop or time.monotonic() - saved_at >= SAVE_EVERY:
                content: dict[str, Any] = {"mark": mark, "update": update, "best": best, "stale": stale}
                content |= {"detector": detector.state_dict(), "optimiser": optimiser.state_dict()}
                checkpoint.save(folder, update, {**content, "generator": generator.get_state()}, still_ours)
                saved_at = time.monotonic()
            if stop:
                return None
    with torch.no_grad():
        output = detector(*held[:2])
    scores = detector.score(output, y).detach()
    return {"detector_updates": update, "held_out_loss": best, **separation(detector, output, y, scores)}


def separation(detector: Detector, output: torch.Tensor, y: torch.Tensor, scores: torch.Tensor) -> dict[str, Any]:
    """The stated check: are held-out steps with high scores those that really vary?

    Deviation = what remains unexplained by the detector's best guess. `separation` compares its mean over the tenth of
    the steps with the highest scores with that over the rest.
    """
    if detector.kind == "quantile":
        deviation = (y - output.median(-1).values).abs()
    elif detector.kind == "classifier":
        deviation = torch.nn.functional.cross_entropy(output, y.long(), reduction="none")
    else:
        deviation = (y - output.squeeze(-1)).abs()
    deviation = deviation.detach()
    count = max(1, len(scores) // 10)
    order = scores.argsort(descending=True)
    high = float(deviation[order[:count]].mean())
    rest = float(deviation[order[count:]].mean()) if len(order) > count else high  # a single step shows nothing
    ratio = high / max(rest, 1e-6)
    return {"separation": ratio, "separates": bool(ratio >= SEPARATION)}
