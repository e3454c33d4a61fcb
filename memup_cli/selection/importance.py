"""The steps that matter, and how much: those of the task's rule, or where targets are drawn from earlier steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stores.manifest import Manifest
from stores.reader import Shard
from stores.scores import ScoreReader, score_path

from ..registries import PROBE
from ..tasks.spec import StepRule, TaskSpec, default_detector

KEPT = 0.999  # of an episode's mass: the steps with the rest are left out
STANDS_OUT = 0.5  # of the way from the usual score to the highest ones
ALIKE = 1 / 20  # of the highest scores: what is nearer to them than that is told from them by errors of the detector


@dataclass(frozen=True)
class Scale:
    """What scores look like: the usual one, and how far above it the highest one of an episode lies."""

    usual: float = 0.0
    spread: float = 1.0

    @staticmethod
    def of(usual: float, top: float) -> "Scale":
        """Where nothing stands out, what errors of the detector may be."""
        return Scale(usual, max(top - usual, top * ALIKE, 1e-6))

    @property
    def standing_out(self) -> float:
        """The score from which a step stands out."""
        return self.usual + STANDS_OUT * self.spread


def recorded_scale(manifest: Manifest, detector: str) -> Scale:
    """That of stored scores. The probe's go from 0 to 1; scores of runs of 0.1.0 count as they are."""
    metrics = manifest.stages.get("score", {}).get("metrics", {})
    if detector in ("", PROBE) or "spread" not in metrics:
        return Scale()
    return Scale(metrics["usual_score"], metrics["spread"])


def separates(manifest: Manifest) -> bool:
    """Whether stored scores tell some steps from others; if not, any step is as good a target as another."""
    return bool(manifest.stages.get("score", {}).get("metrics", {}).get("separates", True))


def selection_mass(scores: np.ndarray, temperature: float, standing_out: float) -> np.ndarray:
    """How likely each step (T,) is to be drawn from an earlier step that has something surprising ahead of it.

    p(k | t) ~ exp(s_k / temperature) for k >= t, averaged over those t; over all t if nothing stands out.
    """
    logits = scores.astype(np.float64) / temperature
    ahead = np.maximum.accumulate(scores[::-1])[::-1] >= standing_out
    if not ahead.any():
        ahead[:] = True
    totals = np.logaddexp.accumulate(logits[::-1])[::-1]  # (T,) log of the sum over what follows each t
    chances = np.logaddexp.accumulate(np.where(ahead, -totals, -np.inf))
    mass: np.ndarray = np.exp(logits + chances - np.log(ahead.sum()))
    return mass


def main_steps(mass: np.ndarray, share: float) -> np.ndarray:
    """The fewest steps that hold a share of the mass, in ascending order."""
    order = np.argsort(-mass, kind="stable")
    count = int(np.searchsorted(np.cumsum(mass[order]), (share - 1e-9) * mass.sum())) + 1
    return np.sort(order[:count])


class Matters:
    """Weights of the steps of episodes: what an evaluation is about."""

    def __init__(self, manifest: Manifest, spec: TaskSpec, config: dict[str, Any]) -> None:
        """config: that of a training; says whose scores draw targets, and how sharply."""
        self._run, self._rule = manifest.run, spec.evaluate
        self._detector = "" if self._rule else _detector(manifest, spec, config)
        scale = recorded_scale(manifest, self._detector)
        self._temperature = config.get("temperature", 0.02) * scale.spread
        self._standing_out = scale.standing_out
        self._readers: dict[int, ScoreReader] = {}

    @property
    def by(self) -> str:
        """What says which steps matter: rule, scores, or every step as much as any other."""
        return "rule" if self._rule else "scores" if self._detector else "all"

    def episode(self, shard: Shard, row: np.ndarray) -> "EpisodeMatters":
        if not self._detector:
            return EpisodeMatters(self._rule)
        if id(shard) not in self._readers:
            self._readers[id(shard)] = ScoreReader(score_path(self._run, self._detector, shard), shard)
        mass = selection_mass(self._readers[id(shard)].episode(row), self._temperature, self._standing_out)
        steps = main_steps(mass, KEPT)
        return EpisodeMatters(None, steps, mass[steps] / mass[steps].sum())


@dataclass(frozen=True)
class EpisodeMatters:
    """Weights of one episode's steps."""

    rule: StepRule | None
    steps: np.ndarray | None = None  # ascending
    weights: np.ndarray | None = None

    def __call__(self, arrays: dict[str, np.ndarray], start: int, stop: int) -> np.ndarray:
        """Of steps [start, stop), whose fields are given; 0: it does not matter."""
        if self.steps is None or self.weights is None:
            return np.ones(stop - start) if self.rule is None else self.rule(arrays).astype(np.float64)
        found = np.zeros(stop - start)
        here = slice(*np.searchsorted(self.steps, [start, stop]))
        found[self.steps[here] - start] = self.weights[here]
        return found


def _detector(manifest: Manifest, spec: TaskSpec, config: dict[str, Any]) -> str:
    """Whose stored scores say where targets are drawn; empty if there are none that belong to these episodes."""
    if config.get("scores") == "online":
        return ""
    entry = manifest.stages.get("score", {})
    if entry.get("status") != "complete" or manifest.stale("score") or not separates(manifest):
        return ""
    stored: str = entry["config"]["detector"]
    return config.get("detector") or (default_detector(spec) if stored == PROBE else stored)
