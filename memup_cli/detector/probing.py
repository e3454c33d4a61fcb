"""Training the pooled-past probe, and from its gains on held-out episodes the detector of what memory is useful for.

The gain of an event is how much better y_k is predicted with the pooled past than without. One event's gain is noisy,
and the probe can learn noise of its training episodes by heart; so gains are measured on episodes it has not seen, and
a small network regresses them on the event's local input: all events of a kind share one estimate.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import randomness
from ..errors import UsageProblem
from .detection import PATIENCE, ScoreConfig, batch_size
from .fitting import Fitting, Saving, fit
from .network import Detector
from .pasts import Events
from .probe import Probe
from .reservoir import Reservoir

LEAST_EPISODES, MOST_HELD_OUT = 10, 512
PROBE_PATIENCE = 10  # what depends on two things at once is learned after a plateau
GAIN_UPDATES = 3000  # at most
SMALLEST_GAIN = 0.01  # of the variance of y, or in nats: less is not worth a memory
SIGNIFICANT = 4.0  # standard errors
EXPLAINED = 1 / 3  # of its local loss that the past must explain of the best kind of event, for the probe to be trusted


def train_probe(
    gain: Detector,
    probe: Probe,
    events: Events,
    config: ScoreConfig,
    device: torch.device,
    saving: Saving,
    quiet: bool,
) -> dict[str, Any] | None:
    """Train the probe, then `gain`; returns what it found, None if stopped before.

    `tells` says whether the probe can stand in for a memory here. Where order matters it cannot: all it has seen is
    which inputs there were.
    """
    rng = randomness.stream(config.seed, randomness.PROBE_SPLIT)
    order = rng.permutation(events.episodes)
    order = order[events.count[order] > 0]
    check_enough(len(order))
    held_out = min(MOST_HELD_OUT, max(2, len(order) // 5))
    held, train = order[:held_out], order[held_out:]
    batches = _Batches(events, probe.kind != "classes", device)
    probe.tell_units(events.past, events.steps.windows)
    gain.tell_units(events.steps.windows)
    generator = torch.Generator().manual_seed(config.seed)
    at_once = batch_size(events.steps)
    size = int(np.clip(at_once * events.episodes / len(events.seen), 2, 64))  # episodes

    def loss() -> Tensor:
        rows = torch.randint(len(train), (size,), generator=generator)
        without, with_past = probe.losses(**batches(train[rows.numpy()]))
        return without.mean() + with_past.mean()

    events_held = batches.rows(held)
    kinds = np.unique(events.kinds[events_held], return_inverse=True)[1]

    def losses() -> tuple[np.ndarray, np.ndarray]:
        """Of the held-out events, without and with the past."""
        pieces = [held[first : first + 4 * size] for first in range(0, held_out, 4 * size)]
        with torch.no_grad():
            found = [probe.losses(**batches(piece)) for piece in pieces]
        without, with_past = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
        return without, with_past

    def unexplained() -> float:
        """Held-out loss, each kind of event with the past only if that is surely better."""
        without, with_past = losses()
        count, mean, error = _by_kind(kinds, without - with_past)
        return float(without.mean() - (count * np.maximum(mean - error, 0)).sum() / count.sum())

    found = fit(probe, loss, unexplained, generator, Fitting("probe", config.updates, PROBE_PATIENCE, quiet), saving)
    if found is None:
        return None
    without, with_past = losses()
    gains = without - with_past
    _, mean, error = _by_kind(kinds, gains)
    largest = max(float((mean - error).max()), SMALLEST_GAIN)
    half = int(events.count[held[: held_out // 2]].sum())  # events that `gain` is fitted to; the others check it
    estimate = _fit_gain(gain, events.steps.take(events_held), gains / largest, half, config, at_once, quiet)
    best = estimate >= 0.5 * estimate[half:].max()
    best[:half] = False
    owner = np.repeat(np.arange(held_out), events.count[held])
    return {"probe_updates": found[0], **_verdict(gains[best], without[best], owner[best])}


def check_enough(episodes: int) -> None:
    if episodes < LEAST_EPISODES:
        raise UsageProblem(f"--detector probe needs at least {LEAST_EPISODES} training episodes, to hold some out")


def _verdict(gains: np.ndarray, without: np.ndarray, owner: np.ndarray) -> dict[str, Any]:
    """Whether the gain of the events said to be the best is real, and large enough to rank events by."""
    if not len(gains):  # no event is said to gain anything
        return {"gain": 0.0, "explained": 0.0, "significance": 0.0, "tells": False}
    # Events of an episode are not independent of each other; episodes are.
    _, mean, _ = _by_kind(np.unique(owner, return_inverse=True)[1], gains)
    error = float(mean.std() / np.sqrt(max(len(mean) - 1, 1)))
    significance = float(mean.mean()) / max(error, 1e-6) if len(mean) > 2 else 0.0
    explained = float(gains.mean() / max(without.mean(), 1e-6))
    return {
        "gain": float(gains.mean()),
        "explained": explained,
        "significance": significance,
        "tells": bool(significance >= SIGNIFICANT and explained >= EXPLAINED and gains.mean() >= SMALLEST_GAIN),
    }


def _by_kind(kinds: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many values of each kind there are, their mean, and its standard error; of a kind seen once, its size."""
    count = np.bincount(kinds)
    mean = np.bincount(kinds, values) / count
    spread = np.bincount(kinds, (values - mean[kinds]) ** 2) / np.maximum(count - 1, 1)
    return count, mean, np.where(count > 1, np.sqrt(spread / count), np.abs(mean))


def _fit_gain(
    gain: Detector, steps: Reservoir, gains: np.ndarray, half: int, config: ScoreConfig, size: int, quiet: bool
) -> np.ndarray:
    """Fit g to the gains of the first `half` events, while it gets better at the others; returns g of all (n,)."""
    generator = torch.Generator().manual_seed(config.seed)
    device = next(gain.parameters()).device
    wanted = torch.from_numpy(gains.astype(np.float32)).to(device)

    def output(rows: np.ndarray) -> Tensor:
        windows = {name: torch.from_numpy(values[rows]).to(device) for name, values in steps.windows.items()}
        return gain(windows, torch.from_numpy(steps.real[rows]).to(device))

    def loss() -> Tensor:
        rows = torch.randint(half, (min(size, half),), generator=generator).numpy()
        return gain.loss(output(rows), wanted[torch.from_numpy(rows)])

    def estimate(first: int) -> Tensor:
        starts = range(first, len(steps), 4 * size)
        return torch.cat([output(np.arange(start, min(start + 4 * size, len(steps)))) for start in starts])

    def held_out_loss() -> float:
        return float(gain.loss(estimate(half), wanted[half:]))

    fit(gain, loss, held_out_loss, generator, Fitting("gains", min(config.updates, GAIN_UPDATES), PATIENCE, quiet))
    with torch.no_grad():
        found: np.ndarray = estimate(0).squeeze(-1).cpu().numpy()
    return found


class _Batches:
    """Events of some episodes, with their pasts, as the probe takes them."""

    def __init__(self, events: Events, scaled: bool, device: torch.device) -> None:
        self._events, self._device = events, device
        y = events.steps.y
        if scaled:  # so that a gain is a part of the variance
            y = ((y - y.mean()) / (float(y.std()) or 1.0)).astype(np.float32)
        self._y = torch.from_numpy(y)

    def rows(self, which: np.ndarray) -> np.ndarray:
        first = self._events.first
        return np.concatenate([np.arange(first[e], first[e + 1]) for e in which])

    def __call__(self, which: np.ndarray) -> dict[str, Any]:
        events, rows = self._events, self.rows(which)

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(values).to(self._device)

        return {
            "past": {name: tensor(values[which]) for name, values in events.past.items()},
            "episode": tensor(np.repeat(np.arange(len(which)), events.count[which])),
            "seen": tensor(events.seen[rows]),
            "windows": {name: tensor(values[rows]) for name, values in events.steps.windows.items()},
            "real": tensor(events.steps.real[rows]),
            "y": self._y[torch.from_numpy(rows)].to(self._device),
        }
