"""The steps of an episode that the scores found most surprising, with what happened there. Imports no torch."""

from typing import Any

import numpy as np

from stores.manifest import Manifest
from stores.reader import Trajectories
from stores.scores import ScoreReader, score_path

from ..options.memory_options import TrainMemoryOptions
from ..registries import PROBE
from ..selection.importance import recorded_scale, selection_mass
from ..tasks.own.matters import labels
from ..tasks.spec import TaskSpec, default_detector

SHOWN = 10


def surprises(
    manifest: Manifest, trajectories: Trajectories, episode: int, arrays: dict[str, np.ndarray]
) -> dict[str, Any] | None:
    """The most surprising steps of an episode, the most surprising first; None if the run has no scores of it."""
    entry = manifest.stages.get("score", {})
    if entry.get("status") != "complete" or manifest.stale("score"):
        return None
    spec = TaskSpec.from_json(manifest.task["spec"])
    detector = entry["config"]["detector"]
    if detector == PROBE:
        detector = default_detector(spec)
    shard, row = trajectories.place(episode)
    scores = ScoreReader(score_path(manifest.run, detector, shard), shard).episode(row)
    scale = recorded_scale(manifest, detector)
    temperature = _temperature(manifest, spec) * scale.spread
    shares = selection_mass(scores, temperature, scale.standing_out)
    steps = [
        {"step": int(k), "score": float(scores[k]), "share": float(shares[k]), **_values(spec, arrays, int(k))}
        for k in np.argsort(-scores, kind="stable")[:SHOWN]
    ]
    return {"detector": detector, "temperature": temperature, "steps": steps}


def _temperature(manifest: Manifest, spec: TaskSpec) -> float:
    """That of the memory's training; before there is one, the usual one."""
    trained = manifest.stages.get("train-memory", {}).get("config", {})
    return float({**TrainMemoryOptions().model_dump(), **trained}["temperature"])


def _values(spec: TaskSpec, arrays: dict[str, np.ndarray], step: int) -> dict[str, Any]:
    """All fields at a step: of rows what is not zero, by the names of their columns; of images the shape."""
    found: dict[str, Any] = {}
    for field in spec.fields:
        value = arrays[field.name][step]
        if not field.shape or field.name in spec.components:
            found[field.name] = value.tolist()
        elif names := labels(spec, field):
            found[field.name] = {name: v.item() for name, v in zip(names, value, strict=False) if v != 0}
        else:
            found[field.name] = "x".join(map(str, field.shape)) + " numbers"
    return found
