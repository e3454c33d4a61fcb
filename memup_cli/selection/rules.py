"""Whose stored scores select the targets: a detector's (surprise), or the probe's (utility)."""

from collections.abc import Callable

from stores.manifest import Manifest
from stores.schedule import Visit

from ..errors import StageMissing, UsageProblem
from ..options.stage_options import TrainMemoryOptions
from ..records.lifecycle import require
from ..records.runs import quoted
from ..registries import PROBE
from ..selection.choosing import Exploring, chooser, stored_scores, uniform_scores
from ..tasks.spec import TaskSpec, default_detector, detectors_of
from .gains import candidates_wanted
from .gumbel import SuffixTop
from .importance import recorded_scale, separates

USEFUL = 0.1  # of the largest gain: with less, a step is noise as far as memory is concerned


def scored_by(manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions) -> str:
    """The detector whose stored scores select the targets; empty: none.

    Of utility it is the probe, or the detector of surprise where the probe cannot tell.
    """
    utility = options.select == "utility"
    if utility and options.scores == "online":
        raise UsageProblem("--select utility takes the scores of `memup score --detector probe`, not --scores online")
    if utility and options.detector is not None:
        raise UsageProblem(f"--select utility takes the scores of the probe, not of --detector {options.detector}")
    if not (utility or options.select == "surprise") or options.scores == "online":
        return ""
    if options.detector is not None and not spec.suits(options.detector):
        raise UsageProblem(f"--detector {options.detector} does not fit this task; use {spec.detectors[0]}")
    wanted = PROBE if utility else options.detector
    command = f"memup score --detector {wanted} --run {quoted(manifest.run)}"
    if utility and "score" not in manifest.stages:
        raise StageMissing(f"--select utility takes the scores of the probe; run `{command}` first")
    entry = require(manifest, "score")
    stored = detectors_of(entry["config"]["detector"], spec)
    if wanted not in (None, *stored):
        raise StageMissing(
            f"{manifest.run} has scores of the {stored[-1]} detector, not of the {wanted}; run `{command} --restart` "
            "first"
        )
    if utility and not probe_tells(manifest):
        return stored[0]
    return wanted or stored[0]


def probe_tells(manifest: Manifest) -> bool:
    """Whether a probe was trained, and found what the past explains."""
    return bool(manifest.stages.get("score", {}).get("metrics", {}).get(PROBE, {}).get("tells"))


def stored_choice(
    manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions, detector: str, seed: int
) -> Callable[[Visit], SuffixTop]:
    """Selection by the scores of a detector; without one, uniform. The temperature is in units of their spread."""
    told = detector == PROBE or (detector and separates(manifest))
    scores = stored_scores(manifest.run, detector) if told else uniform_scores
    temperature = options.temperature * recorded_scale(manifest, detector).spread
    exploring = Exploring(uniform_scores, options.explore, temperature)
    if detector == PROBE:
        surprise = default_detector(spec)
        scale = recorded_scale(manifest, surprise)
        wider = stored_scores(manifest.run, surprise)
        exploring = Exploring(wider, options.explore, options.temperature * scale.spread, USEFUL)
    return chooser(scores, candidates_wanted(options), temperature, seed, exploring, options.reach, options.near)


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
