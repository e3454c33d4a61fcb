"""Training the detector on a balanced sample of steps; resumable."""

from dataclasses import dataclass
from typing import Any

import torch

from .. import randomness
from .fitting import Fitting, Saving, fit
from .network import Detector
from .reservoir import Reservoir

BATCH, BATCH_BYTES = 1024, 4 << 20  # of steps that the detector learns from at a time, at most
PATIENCE = 5


@dataclass(frozen=True)
class ScoreConfig:
    detector: str
    gamma: float | None  # None: score chooses it
    window: int
    hidden: int
    updates: int
    score: str
    seed: int

    @property
    def discount(self) -> float:
        return self.gamma or 0.0


def batch_size(reservoir: Reservoir) -> int:
    """Steps of an update: fewer if they are images."""
    row_bytes = sum(values[0].nbytes for values in reservoir.windows.values())
    return min(BATCH, max(32, BATCH_BYTES // row_bytes))


def train_detector(
    detector: Detector,
    reservoir: Reservoir,
    config: ScoreConfig,
    device: torch.device,
    saving: Saving,
    quiet: bool,
) -> dict[str, Any] | None:
    """Train until the held-out loss no longer falls; None if stopped before."""
    order = randomness.stream(config.seed, randomness.DETECTOR_ORDER).permutation(len(reservoir))
    shuffled = torch.from_numpy(order)
    windows = {name: torch.from_numpy(values) for name, values in reservoir.windows.items()}
    detector.tell_units(reservoir.windows, reservoir.y)
    batch = batch_size(reservoir)

    def steps(rows: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        found = shuffled[rows]
        real, y = (torch.from_numpy(values)[found].to(device) for values in (reservoir.real, reservoir.y))
        return {name: values[found].to(device) for name, values in windows.items()}, real, y

    held_out = max(1, len(reservoir) // 10)
    held = steps(torch.arange(held_out))
    generator = torch.Generator().manual_seed(config.seed)

    def loss() -> torch.Tensor:
        rows = torch.randint(held_out, max(len(reservoir), held_out + 1), (batch,), generator=generator)
        local, real, wanted = steps(rows.clamp(max=len(reservoir) - 1))
        return detector.loss(detector(local, real), wanted)

    def held_out_loss() -> float:
        return float(detector.loss(detector(*held[:2]), held[2]))

    how = Fitting("detector", config.updates, PATIENCE, quiet)
    found = fit(detector, loss, held_out_loss, generator, how, saving)
    if found is None:
        return None
    return {"detector_updates": found[0], "held_out_loss": found[1]}
