"""Targets by how much of their uncertainty the past explains: by the scores of the probe."""

from stores.manifest import Manifest

from ..errors import StageMissing, UsageProblem
from ..options.memory_options import TrainMemoryOptions
from ..records.runs import quoted
from ..registries import PROBE
from ..tasks.spec import TaskSpec, default_detector
from . import surprise
from .choosing import Exploring, chooser, stored_scores
from .gains import candidates_wanted
from .importance import recorded_scale
from .rules import Choice, Rule, stored_detectors

USEFUL = 0.1  # of the largest gain: with less, a step is noise as far as memory is concerned


def scored_by(manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions) -> str:
    """The probe, or the detector of surprise where the probe cannot tell."""
    if options.scores == "online":
        raise UsageProblem("--select utility takes the scores of `memup score --detector probe`, not --scores online")
    if options.detector is not None:
        raise UsageProblem(f"--select utility takes the scores of the probe, not of --detector {options.detector}")
    if "score" not in manifest.stages:
        command = f"memup score --detector {PROBE} --run {quoted(manifest.run)}"
        raise StageMissing(f"--select utility takes the scores of the probe; run `{command}` first")
    stored = stored_detectors(manifest, spec, PROBE)
    return PROBE if probe_tells(manifest) else stored[0]


def probe_tells(manifest: Manifest) -> bool:
    """Whether a probe was trained, and found what the past explains."""
    return bool(manifest.stages.get("score", {}).get("metrics", {}).get("probe", {}).get("tells"))


def choice(manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions, detector: str, seed: int) -> Choice:
    """Exploring goes by surprise; what has no utility is no target, unless it is no surprise either."""
    if detector != PROBE:
        return surprise.choice(manifest, spec, options, detector, seed)
    scores, wider = stored_scores(manifest.run, PROBE), default_detector(spec)
    temperature = options.temperature * recorded_scale(manifest, wider).spread
    exploring = Exploring(stored_scores(manifest.run, wider), options.explore, temperature, USEFUL)
    temperature = options.temperature * recorded_scale(manifest, PROBE).spread
    return chooser(scores, candidates_wanted(options), temperature, seed, exploring, options.reach, options.near)


UTILITY = Rule(scored_by, choice, narrows=True)
