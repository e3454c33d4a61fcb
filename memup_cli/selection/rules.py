"""What a selection rule says: whose scores it takes, and how it draws the targets of an episode by them.

Each rule is a module of its own; a line in registries.py plugs one in.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stores.manifest import Manifest
from stores.schedule import Visit

from ..errors import StageMissing, UsageProblem
from ..options.memory_options import TrainMemoryOptions
from ..records.opening import require
from ..records.runs import quoted
from ..registries import SELECTIONS
from ..tasks.spec import TaskSpec, detectors_of
from .gumbel import SuffixTop

OF_SCORES = ("scores", "detector", "temperature", "explore")  # options that are about scores

Choice = Callable[[Visit], SuffixTop]  # the targets of a visit to an episode


def as_they_are(scores: np.ndarray | None, length: int) -> np.ndarray | None:
    return scores


@dataclass(frozen=True)
class Rule:
    """A way of selecting targets."""

    scored_by: Callable[[Manifest, TaskSpec, TrainMemoryOptions], str]  # whose stored scores; empty: none are used
    # How they are drawn, by the scores of that detector, with a seed; None: every step is predicted as it is read.
    choice: Callable[[Manifest, TaskSpec, TrainMemoryOptions, str, int], Choice] | None
    shown: Callable[[np.ndarray | None, int], np.ndarray | None] = as_they_are  # what a timeline draws by, of scores
    idle: tuple[str, ...] = ()  # options of train-memory that have no effect then, ...
    because: str = ""  # ... and why
    online: bool = False  # --scores online may take the place of stored ones
    narrows: bool = False  # among more candidates than are needed, the running gain draws (gains.py)


def rule_of(select: str) -> Rule:
    found: Rule = SELECTIONS.load(select)
    return found


def scored_by(manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions) -> str:
    """The detector whose stored scores select the targets; empty: none."""
    rule = rule_of(options.select)
    detector = rule.scored_by(manifest, spec, options)
    if options.scores == "online" and not rule.online and "scores" not in rule.idle:
        raise UsageProblem(f"--select {options.select} takes stored scores, not --scores online")
    return detector


def stored_detectors(manifest: Manifest, spec: TaskSpec, wanted: str | None) -> tuple[str, ...]:
    """Whose scores the run has; an error if those that are wanted are not among them."""
    stored = detectors_of(require(manifest, "score")["config"]["detector"], spec)
    if wanted not in (None, *stored):
        raise StageMissing(
            f"{manifest.run} has scores of the {stored[-1]} detector, not of the {wanted}; run `memup score --detector "
            f"{wanted} --run {quoted(manifest.run)} --restart` first"
        )
    return stored


def discount(manifest: Manifest, spec: TaskSpec, given: float | None, scored: bool) -> float:
    """Gamma of what is predicted: that of the scores if there are any, else what is given, else the task's."""
    entry = manifest.stages.get("score", {})
    known = entry.get("status") == "complete" and spec.target_kind == "return"
    made_with = entry["metrics"].get("gamma", entry["config"]["gamma"]) if known else None
    if scored and given is not None and made_with is not None and given != made_with:
        raise UsageProblem(
            f"--gamma {given:g}: the scores of {manifest.run} were made with gamma {made_with:g}, and targets are "
            "chosen by them. Leave --gamma out, or score again: memup score "
            f"--gamma {given:g} --run {quoted(manifest.run)} --restart"
        )
    return next((gamma for gamma in (given, made_with, spec.gamma) if gamma is not None), 0.0)
