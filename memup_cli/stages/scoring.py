"""The score stage: train the detector on a balanced sample, then write one uncertainty score per step.

With the probe it does so twice: utility is written beside the surprise that it is to correct.
"""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from stores import lease as leases
from stores.errors import DamagedData
from stores.files import read_file, read_json, remove_file, remove_tree, to_json, write_durably
from stores.layout import json_checksum
from stores.manifest import Manifest
from stores.scores import missing_groups, score_path

from .. import console
from ..compute.devices import weights_digest
from ..detector.detection import ScoreConfig, train_detector
from ..detector.discounts import choose_gamma
from ..detector.examining import examine
from ..detector.fitting import Saving
from ..detector.network import Detector
from ..detector.pasts import sample_events
from ..detector.probe import Probe
from ..detector.probing import LEAST_EPISODES, check_enough, train_probe
from ..detector.reservoir import sample
from ..detector.uncertainty import summary, write_scores
from ..interrupts import StopFlag
from ..records import checkpoint
from ..records.opening import digests, open_run, require_validation, spec_of, split_of, stored_of
from ..records.runs import STORED, altered_weights
from ..records.tensors import from_bytes, to_bytes
from ..registries import PROBE
from ..tasks.spec import TaskSpec, default_detector, detectors_of
from .lifecycle import attempting, is_up_to_date

TRIED = "gammas.json"  # what was found with each gamma so far
NETWORKS = 2  # of detectors; those of 0.1.0, the first, saw numbers in the units in which they came


def score(run: Path | None, config: ScoreConfig, device: torch.device, restart: bool, quiet: bool) -> dict[str, Any]:
    """Run the stage; returns the summary to print."""
    manifest = open_run(run)
    spec = spec_of(manifest)
    require_validation(manifest)
    inputs = digests(manifest, *STORED)
    values = dict(vars(config))
    parts = [replace(config, detector=name) for name in detectors_of(config.detector, spec)]
    if config.detector == PROBE:
        check_enough(len(split_of(manifest, "train")))  # before anything is trained
    begun = any((manifest.run / "scores" / part.detector).is_dir() for part in parts)
    done = is_up_to_date(manifest, "score", values, inputs, restart, begun)
    if done and all(_all_there(manifest, p.detector) for p in parts) and not altered_weights(manifest, "score"):
        return {"run": str(manifest.run), "outcome": "up to date", **manifest.stages["score"]["metrics"]}
    if restart:
        leases.refuse_living(manifest.run / "memory")  # which reads the scores
    total = sum(len(stored_of(manifest, split)) for split in STORED) * len(parts)
    progress = {"done": 0, "total": total}
    with attempting(manifest, "score", manifest.run / "detector", quiet) as attempt:
        stop, still_ours = attempt.stop, attempt.still_ours
        attempt.note("running", config=values, inputs=inputs, progress=progress, outputs={}, weights={})
        if restart:
            _discard(manifest.run, [part.detector for part in parts])
        metrics: dict[str, Any] = {}
        kept: dict[str, str] = {}
        if config.gamma is None:
            choice = choose_gamma(partial(_with_gamma, manifest, spec, config, device, stop, still_ours, quiet))
            if choice is None:
                raise attempt.interrupted("what was found of gamma is saved", progress=progress)
            config, metrics["gammas"] = replace(config, gamma=choice[0]), choice[1]
            parts = [replace(part, gamma=choice[0]) for part in parts]
        metrics["gamma"] = config.gamma
        for part in parts:
            found = _trained_detector(manifest, spec, part, device, stop, still_ours, quiet)
            if found is None:
                what = "probe" if part.detector == PROBE else "detector"
                raise attempt.interrupted(f"a checkpoint of the {what} is saved", progress=progress)
            detector, kept[part.detector], training = found
            source = {"detector": weights_digest(detector), "inputs": inputs}
            progress["done"] += write_scores(manifest, spec, part, detector, source, stop, still_ours, quiet)
            if stop and progress["done"] < total:
                where = f"{progress['done']:,} of {total:,} episodes are scored"
                raise attempt.interrupted(where, progress=progress)
            if part.detector == PROBE:
                metrics["probe"] = training
            else:
                metrics |= {**training, **summary(manifest, part.detector)}
                metrics |= examine(split_of(manifest, "validation"), spec, detector, part.discount)
        outputs = {"scores": {"path": f"scores/{config.detector}", "digest": source["detector"]}}
        attempt.note("complete", progress=progress, metrics=metrics, outputs=outputs, weights=kept)
    return {"run": str(manifest.run), "outcome": "scored", **metrics}


def _discard(run: Path, detectors: list[str]) -> None:
    checkpoint.clear(run / "detector")
    for detector in detectors:
        remove_file(run / "detector" / f"{detector}.json")
        remove_tree(run / "scores" / detector)
    remove_file(run / "detector" / TRIED)


def _with_gamma(
    manifest: Manifest,
    spec: TaskSpec,
    config: ScoreConfig,
    device: torch.device,
    stop: StopFlag,
    still_ours: Callable[[], None],
    quiet: bool,
    gamma: float,
) -> dict[str, Any] | None:
    """What targets would be like with a gamma; found once, and kept for an attempt that goes on."""
    config = replace(config, gamma=gamma, detector=default_detector(spec))
    path = manifest.run / "detector" / TRIED
    made_from = json_checksum({"config": {**vars(config), "gamma": None}, "inputs": digests(manifest, *STORED)})
    kept: dict[str, Any] = {}
    with contextlib.suppress(DamagedData):  # missing, or damaged: found again
        kept = read_json(path)
    kept = kept if kept.get("made_from") == made_from else {"made_from": made_from}
    if str(gamma) in kept:
        found: dict[str, Any] = kept[str(gamma)]
        return found
    console.note(f"trying gamma {gamma:g}", quiet)
    trained = _trained_detector(manifest, spec, config, device, stop, still_ours, quiet)
    if trained is None:
        return None
    train = split_of(manifest, "train")
    gains: Detector | None = None
    probed: dict[str, Any] = {}
    if len(train) >= LEAST_EPISODES:
        torch.manual_seed(config.seed)
        gains = Detector(spec, PROBE, config.window, config.hidden).to(device)
        events = sample_events(train, spec, gamma, config.window, config.seed)
        saving = Saving(path.parent, f"{made_from} {gamma}", stop, still_ours)
        probe = Probe(spec, config.window, config.hidden).to(device)
        told = train_probe(gains, probe, events, config, device, saving, quiet)
        if told is None:
            return None
        probed = {name: told[name] for name in ("explained", "significance")}
        checkpoint.clear(path.parent)
    found = {**probed, **examine(split_of(manifest, "validation"), spec, trained[0], gamma, gains)}
    write_durably(path, to_json({**kept, str(gamma): found}), still_ours)
    return found


def _all_there(manifest: Manifest, detector: str) -> bool:
    """Whether every group still has its scores; a file that was deleted is made again."""
    for split in STORED:
        for shard in stored_of(manifest, split).shards:
            path = score_path(manifest.run, detector, shard)
            if not (path / "zarr.json").exists() or missing_groups(path, shard):
                return False
    return True


def _trained_detector(
    manifest: Manifest,
    spec: TaskSpec,
    config: ScoreConfig,
    device: torch.device,
    stop: StopFlag,
    still_ours: Callable[[], None],
    quiet: bool,
) -> tuple[Detector, str, dict[str, Any]] | None:
    """A detector, the digest of its weights file and how its training went; None if stopped before it was trained.

    One that an interrupted attempt with the same config and data has trained, wholly or in part, is taken up.
    """
    torch.manual_seed(config.seed)
    detector = Detector(spec, config.detector, config.window, config.hidden, config.score).to(device)
    weights = manifest.run / "detector" / f"{config.detector}.safetensors"
    described = weights.with_suffix(".json")
    made_from = {"config": vars(config), "inputs": digests(manifest, *STORED), "networks": NETWORKS}
    data = read_file(weights) if weights.exists() else b""
    digest = hashlib.sha256(data).hexdigest()
    with contextlib.suppress(DamagedData):  # a damaged detector is made again
        found = read_json(described)
        whole = found.pop("checksum", None) == json_checksum(found)
        if whole and found.get("made_from") == made_from and found.get("digest") == digest:
            detector.load_state_dict(from_bytes(data, weights))
            return detector, digest, found["training"]
    saving = Saving(weights.parent, json_checksum(made_from), stop, still_ours)
    if config.detector == PROBE:
        events = sample_events(split_of(manifest, "train"), spec, config.discount, config.window, config.seed)
        probe = Probe(spec, config.window, config.hidden).to(device)
        training = train_probe(detector, probe, events, config, device, saving, quiet)
    else:
        reservoir = sample(split_of(manifest, "train"), spec, config.discount, config.window, config.seed)
        training = train_detector(detector, reservoir, config, device, saving, quiet)
    if training is None:
        return None
    data = to_bytes(detector.state_dict())
    digest = hashlib.sha256(data).hexdigest()
    write_durably(weights, data, still_ours)
    described_by = {"made_from": made_from, "digest": digest, "training": training}
    write_durably(described, to_json({**described_by, "checksum": json_checksum(described_by)}), still_ours)
    checkpoint.clear(weights.parent)
    return detector, digest, training
