"""The weights of a trained memory or baseline: safetensors, with the task and options that made them beside them."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import nn

from stores.errors import DamagedData
from stores.files import make_folder, read_file, to_json, write_durably
from stores.manifest import Manifest

from ..baselines.networks import Baseline
from ..compute.devices import tensors_digest
from ..options.memory_options import TrainMemoryOptions
from ..predictor.predictor import MemoryModel
from ..records.opening import require, spec_of
from ..records.runs import again, altered_weights
from ..records.tensors import from_bytes, header, to_bytes
from ..tasks.spec import TaskSpec


def build_model(spec: TaskSpec, config: dict[str, Any], horizon: int) -> MemoryModel:
    return MemoryModel(spec, {**TrainMemoryOptions().model_dump(), **config}, horizon)


def load_model(manifest: Manifest, which: str) -> MemoryModel:
    """The trained memory and predictor of a run: its best or its last weights."""
    folder = manifest.run / "memory"
    described = require(manifest, "train-memory")
    path = folder / f"{which}.safetensors"
    data = read_file(path) if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != described["weights"][which]:
        raise DamagedData(
            f"{path} is missing, damaged or not what was trained. Run "
            f"`{again(manifest, 'train-memory', restart=True)}` to train it again."
        )
    return restore(spec_of(manifest), described["config"], data)


def restore(spec: TaskSpec, config: dict[str, Any], data: bytes) -> MemoryModel:
    """A memory from its options and its weights file."""
    model = build_model(spec, config, horizon=2)
    fill(model, from_bytes(data, "the trained memory"))
    return model.eval()


def fill(model: nn.Module, weights: dict[str, Any]) -> None:
    """Load weights or, if they are of other networks than this version builds from the same options, say so."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise DamagedData(
            "the trained weights do not fit the networks that this version of memup builds from the same options; "
            "another version trained them. Use that version, or train again with --restart."
        ) from error


def build_baseline(spec: TaskSpec, config: dict[str, Any], horizon: int = 2) -> Baseline:
    return Baseline(spec, config["model"], config["hidden"], config["layers"], config["heads"], horizon)


def load_baseline(manifest: Manifest, name: str, which: str) -> Baseline:
    """A trained baseline of a run: its best or its last weights."""
    stage = f"train-baseline/{name}"
    config = require(manifest, stage)["config"]
    if found := altered_weights(manifest, stage):
        raise DamagedData(
            f"{found[0]} is missing, damaged or not what was trained. Run "
            f"`{again(manifest, stage, restart=True)}` to train it again."
        )
    model = build_baseline(spec_of(manifest), config)
    path = manifest.run / "baseline" / name / f"{which}.safetensors"
    fill(model, from_bytes(read_file(path), path))
    return model.eval()


def save_model(
    folder: Path,
    model: nn.Module,
    task: dict[str, Any],
    config: dict[str, Any],
    which: str,
    still_ours: Callable[[], None],
) -> str:
    """Write the best or the last weights, unless another attempt has taken over; returns their digest."""
    make_folder(folder)
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    data = to_bytes(weights, digest=tensors_digest(weights))
    write_durably(folder / f"{which}.safetensors", data, still_ours)
    write_durably(folder / "config.json", to_json({"task": task, "config": config}), still_ours)
    return hashlib.sha256(data).hexdigest()


def saved_digest(folder: Path, which: str, expected: str = "") -> str:
    """Digest of a weights file that an earlier attempt may have left; DamagedData if it is not what that one wrote."""
    path = folder / f"{which}.safetensors"
    data = read_file(path) if path.exists() else b""
    try:
        intact = header(data).get("digest") == tensors_digest(from_bytes(data, path))
    except SafetensorError:
        intact = False
    if not intact:
        raise DamagedData(f"{path} was damaged since it was written. Train again with --restart.")
    digest = hashlib.sha256(data).hexdigest()
    if expected not in ("", digest):
        raise DamagedData(f"{path} is not what this training wrote. Train again with --restart.")
    return digest
