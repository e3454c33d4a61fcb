"""Targets by uncertainty, as MemUP has them: by the stored scores of a detector, or the model's own errors."""

from stores.manifest import Manifest

from ..errors import UsageProblem
from ..options.memory_options import TrainMemoryOptions
from ..tasks.spec import TaskSpec
from .choosing import Exploring, chooser, stored_scores, uniform_scores
from .gains import candidates_wanted
from .importance import recorded_scale, separates
from .rules import Choice, Rule, stored_detectors


def scored_by(manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions) -> str:
    if options.scores == "online":
        return ""
    if options.detector is not None and not spec.suits(options.detector):
        raise UsageProblem(f"--detector {options.detector} does not fit this task; use {spec.detectors[0]}")
    stored = stored_detectors(manifest, spec, options.detector)
    return options.detector or stored[0]


def choice(manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions, detector: str, seed: int) -> Choice:
    """By scores that tell some steps from others, else uniform. The temperature is in units of their spread."""
    told = detector and separates(manifest)
    scores = stored_scores(manifest.run, detector) if told else uniform_scores
    temperature = options.temperature * recorded_scale(manifest, detector).spread
    exploring = Exploring(uniform_scores, options.explore, temperature)
    return chooser(scores, candidates_wanted(options), temperature, seed, exploring, options.reach, options.near)


SURPRISE = Rule(scored_by, choice, online=True)
