"""The score stage: train the detector on a balanced sample, then write one uncertainty score per step."""

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as load_weights
from safetensors.torch import save as save_weights

from stores.errors import DamagedData
from stores.files import make_folder, read_file, read_json, remove_tree, to_json, write_durably
from stores.layout import json_checksum
from stores.manifest import Manifest
from stores.scores import ScoreReader, ScoreWriter, missing_groups, score_path

from .. import console
from ..interrupts import StopFlag
from ..models.detectors import Detector
from ..runs import SPLITS
from ..tasks.spec import TaskSpec
from .reservoir import Reservoir, Steps, group_steps, row_codes, sample
from .stages import (
    continue_command,
    digests,
    is_up_to_date,
    open_run,
    owned,
    record,
    spec_of,
    split_of,
    weights_digest,
)

BATCH, BATCH_BYTES = 1024, 4 << 20  # of steps that the detector learns from at a time, at most
EVALUATE_EVERY, PATIENCE = 100, 5
BATCH_STEPS, SCORED_BYTES = 1 << 16, 64 << 20  # scored at a time, at most
PUBLISH_EVERY = 2.0  # seconds
SEPARATION = 2.0  # the tenth of steps with the highest scores must be this many times as uncertain as the rest
HISTOGRAM_EDGES = np.array([0, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1, 3, 10, np.inf])


@dataclass(frozen=True)
class ScoreConfig:
    detector: str
    gamma: float
    window: int
    hidden: int
    updates: int
    score: str
    seed: int


def default_detector(spec: TaskSpec) -> str:
    return {"return": "quantile", "classes": "classifier", "scalar": "regression"}[spec.target_kind]


def score(run: Path | None, config: ScoreConfig, device: torch.device, restart: bool, quiet: bool) -> dict[str, Any]:
    """Run the stage; returns the summary to print."""
    manifest = open_run(run)
    spec = spec_of(manifest)
    inputs = digests(manifest, *SPLITS)
    values = dict(vars(config))
    begun = (manifest.run / "scores" / config.detector).is_dir()
    if is_up_to_date(manifest, "score", values, inputs, restart, begun) and _all_there(manifest, config.detector):
        return {"run": str(manifest.run), "outcome": "up to date", **manifest.stages["score"]["metrics"]}
    total = sum(len(split_of(manifest, split)) for split in SPLITS)
    stop = StopFlag()
    with owned(manifest.run / "detector", quiet), stop:
        if restart and "score" in manifest.stages:
            (manifest.run / "detector" / f"{config.detector}.safetensors").unlink(missing_ok=True)
            remove_tree(manifest.run / "scores" / config.detector)
        record(
            manifest, "score", "running", config=values, inputs=inputs, progress={"done": 0, "total": total}, outputs={}
        )
        detector, training = _trained_detector(manifest, spec, config, device, quiet)
        source = {"detector": weights_digest(detector), "inputs": inputs}
        done = _write_scores(manifest, spec, config, detector, source, stop, quiet)
    progress = {"done": done, "total": total}
    if stop:
        record(manifest, "score", "interrupted", progress=progress)
        raise stop.error(f"{done:,} of {total:,} episodes are scored", continue_command())
    metrics = {**training, **_summary(manifest, config.detector)}
    output = {"path": f"scores/{config.detector}", "digest": source["detector"]}
    record(manifest, "score", "complete", progress=progress, metrics=metrics, outputs={"scores": output})
    return {"run": str(manifest.run), "outcome": "scored", **metrics}


def _all_there(manifest: Manifest, detector: str) -> bool:
    """Whether every group still has its scores; a file that was deleted is made again."""
    for split in SPLITS:
        for shard in split_of(manifest, split).shards:
            path = score_path(manifest.run, detector, shard)
            if not (path / "zarr.json").exists() or missing_groups(path, shard):
                return False
    return True


def _trained_detector(
    manifest: Manifest, spec: TaskSpec, config: ScoreConfig, device: torch.device, quiet: bool
) -> tuple[Detector, dict[str, Any]]:
    """The detector of an interrupted attempt with the same config and data, or a new one, trained and saved."""
    torch.manual_seed(config.seed)
    detector = Detector(spec, config.detector, config.window, config.hidden, config.score).to(device)  # type: ignore[arg-type]
    weights = manifest.run / "detector" / f"{config.detector}.safetensors"
    described = weights.with_suffix(".json")
    made_from = {"config": vars(config), "inputs": digests(manifest, *SPLITS)}
    if weights.exists() and described.exists():
        data, found = read_file(weights), _read_described(described)
        if found.get("made_from") == made_from and found.get("weights") == hashlib.sha256(data).hexdigest():
            detector.load_state_dict(load_weights(data))
            return detector, found["training"]
    reservoir = sample(split_of(manifest, "train"), spec, config.gamma, config.window, config.seed)
    training = train_detector(detector, reservoir, config, device, quiet)
    make_folder(weights.parent)
    data = save_weights({k: v.cpu() for k, v in detector.state_dict().items()})
    write_durably(weights, data)
    values = {"made_from": made_from, "training": training, "weights": hashlib.sha256(data).hexdigest()}
    write_durably(described, to_json({**values, "checksum": json_checksum(values)}))
    return detector, training


def _read_described(path: Path) -> dict[str, Any]:
    """What is known of a detector that an interrupted attempt left; nothing if that is damaged."""
    try:
        values = read_json(path)
    except DamagedData:
        return {}
    return values if values.pop("checksum", None) == json_checksum(values) else {}


def train_detector(
    detector: Detector, reservoir: Reservoir, config: ScoreConfig, device: torch.device, quiet: bool
) -> dict[str, Any]:
    """Train until the held-out loss no longer falls; then check that the scores separate."""
    order = np.random.Generator(np.random.PCG64(np.random.SeedSequence((config.seed, 12)))).permutation(len(reservoir))
    shuffled = torch.from_numpy(order)
    windows = {name: torch.from_numpy(values) for name, values in reservoir.windows.items()}
    row_bytes = sum(values[0].nbytes for values in reservoir.windows.values())
    batch = min(BATCH, max(32, BATCH_BYTES // row_bytes))

    def steps(rows: torch.Tensor) -> tuple[dict[str, torch.Tensor], torch.Tensor, torch.Tensor]:
        found = shuffled[rows]
        real, y = (torch.from_numpy(values)[found].to(device) for values in (reservoir.real, reservoir.y))
        return {name: values[found].to(device) for name, values in windows.items()}, real, y

    held_out = max(1, len(reservoir) // 10)
    held = steps(torch.arange(held_out))
    y = held[2]
    generator = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.Adam(detector.parameters(), lr=2e-3)
    best, stale, update = float("inf"), 0, 0
    with console.Progress("detector", "update", config.updates, quiet=quiet) as bar:
        while update < config.updates and stale < PATIENCE:
            for _ in range(min(EVALUATE_EVERY, config.updates - update)):
                rows = torch.randint(held_out, max(len(reservoir), held_out + 1), (batch,), generator=generator)
                local, real, wanted = steps(rows.clamp(max=len(reservoir) - 1))
                output = detector(local, real)
                optimiser.zero_grad(set_to_none=True)
                detector.loss(output, wanted).backward()
                optimiser.step()
                update += 1
            with torch.no_grad():
                output = detector(*held[:2])
                loss = float(detector.loss(output, y))
            stale = 0 if loss < 0.995 * best else stale + 1
            best = min(best, loss)
            bar.advance(update - bar.done, f"held-out loss {loss:.4g}")
    scores = detector.score(output, y).detach()
    return {"detector_updates": update, "held_out_loss": best, **separation(detector, output, y, scores)}


def separation(detector: Detector, output: torch.Tensor, y: torch.Tensor, scores: torch.Tensor) -> dict[str, Any]:
    """The stated check: are held-out steps with high scores those that really vary?

    Deviation = what remains unexplained by the detector's best guess. `separation` compares its mean over the tenth of
    the steps with the highest scores with that over the rest.
    """
    if detector.kind == "quantile":
        deviation = (y - output.median(-1).values).abs()
    elif detector.kind == "classifier":
        deviation = torch.nn.functional.cross_entropy(output, y.long(), reduction="none")
    else:
        deviation = (y - output.squeeze(-1)).abs()
    deviation = deviation.detach()
    count = max(1, len(scores) // 10)
    order = scores.argsort(descending=True)
    high = float(deviation[order[:count]].mean())
    rest = float(deviation[order[count:]].mean()) if len(order) > count else high  # a single step shows nothing
    ratio = high / max(rest, 1e-6)
    return {"separation": ratio, "separates": bool(ratio >= SEPARATION)}


def _write_scores(
    manifest: Manifest,
    spec: TaskSpec,
    config: ScoreConfig,
    detector: Detector,
    source: dict[str, Any],
    stop: StopFlag,
    quiet: bool,
) -> int:
    """Score every group of every split that is not scored yet; returns the episodes scored in all."""
    shards = [shard for split in SPLITS for shard in split_of(manifest, split).shards]
    total, done = sum(s.identity.episodes for s in shards), 0
    with console.Progress("score", "episode", total, quiet=quiet) as bar:
        for shard in shards:
            writer = ScoreWriter(score_path(manifest.run, config.detector, shard), shard, source)
            missing = writer.missing_groups()
            already = shard.identity.episodes - sum(len(shard.rows(g)) for g in missing)
            done += already
            bar.advance(already)
            published = time.monotonic()
            try:
                for group in missing:
                    if stop:
                        break
                    steps = group_steps(shard, group, spec, config.gamma)
                    writer.add(group, score_steps(detector, steps))
                    done += len(shard.rows(group))
                    bar.advance(len(shard.rows(group)))
                    if time.monotonic() - published >= PUBLISH_EVERY:
                        writer.publish()
                        published = time.monotonic()
                writer.publish()
            except BaseException:
                writer.discard()
                raise
    return done


def score_steps(detector: Detector, steps: Steps) -> np.ndarray:
    """Scores of all steps of a group (N,); each different local window is computed once, unless it is an image."""
    device = next(detector.parameters()).device
    scores = np.empty(len(steps.y), np.float32)
    row_bytes = sum(values[0].nbytes for values in steps.arrays.values()) * detector.window
    size = min(BATCH_STEPS, max(1, SCORED_BYTES // row_bytes))
    for first in range(0, len(scores), size):
        these = np.arange(first, min(first + size, len(scores)))
        windows, real = steps.windows(these, detector.window)
        y = steps.y[these]
        which = back = np.arange(len(these))
        if not detector.query.images:
            different = {**windows, "real": real, **({"y": y} if detector.kind != "quantile" else {})}
            _, which, back = np.unique(row_codes(different), return_index=True, return_inverse=True)
        with torch.no_grad():
            tensors = {name: torch.from_numpy(values[which]).to(device) for name, values in windows.items()}
            output = detector(tensors, torch.from_numpy(real[which]).to(device))
            found = detector.score(output, torch.from_numpy(y[which]).to(device))
        scores[these] = found.cpu().numpy()[back]
    return scores


def _summary(manifest: Manifest, detector: str, episodes: int = 1000) -> dict[str, Any]:
    """Histogram of the training scores, and where each episode's highest score lies, counted from its end."""
    counts = np.zeros(len(HISTOGRAM_EDGES) - 1, np.int64)
    from_end: list[int] = []
    top: list[float] = []
    for shard, group in split_of(manifest, "train").groups():
        scores = ScoreReader(score_path(manifest.run, detector, shard), shard)
        for row in shard.rows(group):
            values = scores.episode(row)
            counts += np.histogram(values, HISTOGRAM_EDGES)[0]
            from_end.append(len(values) - 1 - int(values.argmax()))
            top.append(float(values.max()))
        if len(from_end) >= episodes:
            break
    ends = np.array(from_end)
    return {
        "histogram": {"edges": HISTOGRAM_EDGES[:-1].tolist(), "counts": counts.tolist()},
        "top_score_mean": float(np.mean(top)),
        "top_steps_from_end": {
            "median": float(np.median(ends)),
            "p10": float(np.quantile(ends, 0.1)),
            "p90": float(np.quantile(ends, 0.9)),
            "at_end_share": float((ends == 0).mean()),
        },
    }
