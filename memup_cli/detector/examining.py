"""Whether scores are of use: looked at on validation episodes, which trained no detector."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stores.reader import Trajectories

from ..options.memory_options import TrainMemoryOptions
from ..selection.importance import ALIKE, Scale, main_steps, selection_mass
from ..streaming.blocks import Steps, Targets, blocks
from ..tasks.spec import TaskSpec
from .network import Detector
from .uncertainty import batch_steps, score_steps

EPISODES, STEPS = 100, 2_000_000  # looked at, at most; one episode at least ...
LONGEST = 1 << 18  # ... and of each its last steps
SEPARATION = 2.0  # steps that are drawn must deviate this many times as much as steps do on average
SLIGHT, FEW = 1.25, 0.1  # or this many times, if so few of the steps hold most of the mass
MOST = 0.9  # of the selection's mass
USEFUL = 0.25  # of the largest gain: the past explains such a step


@dataclass(frozen=True)
class Looked:
    """One episode: what the detector says of its steps, and what came."""

    scores: np.ndarray
    deviation: np.ndarray
    y: np.ndarray
    rule: np.ndarray | None  # the steps that matter, if the task has a rule
    gain: np.ndarray | None

    def part(self, a: int, b: int) -> "Looked":
        a = max(a, b - LONGEST)
        known = {name: values for name, values in vars(self).items() if values is not None}
        return replace(self, **{name: values[a:b] for name, values in known.items()})

    def extended(self, more: "Looked") -> "Looked":
        """With the steps that follow; no more than the last ones that are looked at."""
        known = {name: values for name, values in vars(self).items() if values is not None}
        joined = {name: np.concatenate([values, getattr(more, name)])[-LONGEST:] for name, values in known.items()}
        return replace(self, **joined)


def examine(
    split: Trajectories, spec: TaskSpec, detector: Detector, gamma: float, gains: Detector | None = None
) -> dict[str, Any]:
    """What would be drawn as targets: how few steps, how uncertain, and with gains how much of it the past explains.

    Where the scores do not separate, targets are drawn from all steps alike, and that is what is looked at.
    """
    looked = _look(split, spec, detector, gamma, gains)
    usual = float(np.median(np.concatenate([e.scores for e in looked])))
    top = float(np.mean([e.scores.max() for e in looked]))
    scale = Scale.of(usual, top)
    temperature = TrainMemoryOptions().temperature * scale.spread
    masses = [selection_mass(e.scores, temperature, scale.standing_out) for e in looked]
    few = [len(main_steps(mass, MOST)) for mass in masses]
    deviation = float(np.mean(np.concatenate([e.deviation for e in looked])))
    drawn = _mean(masses, [e.deviation for e in looked])
    found: dict[str, Any] = {
        "separation": drawn / max(deviation, 1e-6),
        "mass_steps": float(np.mean(few)),
        "mass_share": float(np.mean([n / len(mass) for n, mass in zip(few, masses, strict=True)])),
        "uncertain": _is_uncertain(drawn, np.concatenate([e.y for e in looked])),
    }
    rules = [e.rule for e in looked if e.rule is not None]
    if rules:
        found["mass_that_matters"] = _mean(masses, rules)
    found["separates"] = _separates(found, detector, top - usual >= top * ALIKE)
    if not found["separates"]:
        masses = [np.full(len(mass), 1 / len(mass)) for mass in masses]
        found["uncertain"] = _is_uncertain(deviation, np.concatenate([e.y for e in looked]))
    useful = [e.gain >= USEFUL for e in looked if e.gain is not None]
    if useful:
        found["useful"] = _mean(masses, useful)
    return found


def _is_uncertain(drawn: float, y: np.ndarray) -> bool:
    """Whether the targets deviate at all from what the step itself tells."""
    return bool(y.std() > 1e-6 * np.abs(y).mean() and drawn > max(0.1 * y.std(), 0.01 * np.abs(y).mean()))


def _separates(found: dict[str, Any], detector: Detector, differ: bool) -> bool:
    """Whether what is drawn stands out; a score that looked at y says less, because it looked for what went wrong."""
    if not found["uncertain"]:
        return False
    if found.get("mass_that_matters", 0) >= MOST:
        return True
    if not differ:
        return False
    if found["separation"] >= SEPARATION:
        return True
    return bool(not detector.looks_at_y and found["mass_share"] <= FEW and found["separation"] >= SLIGHT)


def _mean(masses: list[np.ndarray], values: list[np.ndarray]) -> float:
    """The mean over episodes of what is drawn."""
    return float(np.mean([mass @ value for mass, value in zip(masses, values, strict=True)]))


def _look(
    split: Trajectories, spec: TaskSpec, detector: Detector, gamma: float, gains: Detector | None
) -> list[Looked]:
    found: list[Looked] = []
    steps = 0
    for episode in _episodes(split, spec, detector, gamma, gains):
        found.append(episode)
        steps += len(episode.y)
        if len(found) >= EPISODES or steps >= STEPS:
            break
    return found


def _episodes(
    split: Trajectories, spec: TaskSpec, detector: Detector, gamma: float, gains: Detector | None
) -> Iterator[Looked]:
    """One after the other; of a long one, the last steps."""
    window, batch = max(detector.window, gains.window if gains else 1), batch_steps(spec, detector)
    fields = (*spec.query, spec.target, *([spec.evaluate.field] if spec.evaluate else []))
    for shard, group in split.groups():
        targets = Targets(shard, group, spec, gamma)
        begun: tuple[int, Looked] | None = None  # where it starts, and what was seen of it so far
        for block in blocks(shard, group, fields, window - 1, batch):
            seen = _see(block, targets(block), spec, detector, gains, batch)
            for a, b in block.episodes():
                start, here = block.first + int(block.starts[a]), seen.part(a, b)
                if begun and begun[0] == start:
                    begun = start, begun[1].extended(here)
                    continue
                if begun:
                    yield begun[1]
                begun = start, here
        if begun:
            yield begun[1]


def _see(block: Steps, y: np.ndarray, spec: TaskSpec, detector: Detector, gains: Detector | None, batch: int) -> Looked:
    rule = spec.evaluate
    return Looked(
        scores=score_steps(detector, block, y, spec.query, batch),
        deviation=score_steps(detector, block, y, spec.query, batch, deviations=True),
        y=y,
        rule=rule(block.rows((rule.field,))) if rule else None,
        gain=score_steps(gains, block, y, spec.query, batch) if gains else None,
    )
