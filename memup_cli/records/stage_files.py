"""Files that stages leave beside their weights: checkpoints, whose names hold their checksums, config.json, logs."""

import json
import re
from pathlib import Path
from typing import Any

from stores.codec import checksum
from stores.files import inside, read_file
from stores.integrity import free_place
from stores.manifest import PREVIOUS, Manifest

from .runs import stage_folder

CHECKPOINT = re.compile(r"checkpoint-\d{9}-[0-9a-f]{8}\.pt")
FOLDERS = ("detector", "memory", "baseline/*", "agent/*", "rounds/*/*/memory", "rounds/*/*/agent")


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if CHECKPOINT.fullmatch(p.name))


def is_whole(path: Path, data: bytes) -> bool:
    """Whether a checkpoint's contents are what its name says."""
    return f"{checksum(data):08x}" == path.stem.rsplit("-", 1)[1]


def damaged_checkpoints(run: Path) -> list[Path]:
    found = [path for pattern in FOLDERS for folder in sorted(run.glob(pattern)) for path in checkpoints(folder)]
    return [path for path in found if not is_whole(path, read_file(path))]


def not_a_file(run: Path) -> list[Path]:
    """What must be a file and is none: then no stage can write it. It is the old manifest, or made again if missing."""
    made_again = ("made_from.json", "best.safetensors", "last.safetensors", "predictor.safetensors")
    names = [PREVIOUS, *(f"memoryless/{name}" for name in made_again)]
    paths = [inside(run, name, "manifest") for name in names]
    return [path for path in paths if path.exists() and not path.is_file()]


def quarantine_place(run: Path, path: Path) -> Path:
    return free_place(run / "quarantine" / "-".join(path.relative_to(run).parts))


def altered_descriptions(manifest: Manifest) -> dict[Path, dict[str, Any]]:
    """config.json of finished stages that are gone or not what the manifest says, and what they should hold."""
    found = {}
    for stage, entry in manifest.stages.items():
        name = stage.partition("/")[0]
        if entry.get("status") != "complete" or not entry.get("outputs"):
            continue
        if name in ("train-memory", "train-baseline"):
            expected = {"task": manifest.task, "config": entry["config"]}
        elif name == "train-agent":
            expected = {"config": entry["config"], "memory": entry.get("acts_on")}
        else:
            continue
        path = manifest.run / stage_folder(stage) / "config.json"
        try:
            same = json.loads(read_file(path)) == expected
        except (FileNotFoundError, ValueError, RecursionError):
            same = False
        if not same:
            found[path] = expected
    return found


def log_path(run: Path, stage: str) -> Path:
    folder = stage.replace("/", "-") if stage.startswith("train-agent") else stage
    return inside(run, f"logs/{folder}/metrics.jsonl", "logs")


def logged(run: Path, stage: str) -> tuple[list[dict[str, Any]], int]:
    """Lines of a stage's metrics.jsonl, and how many are garbled; a last one left half-written is only skipped."""
    path = log_path(run, stage)
    if not path.exists():
        return [], 0
    rows, unread = [], 0
    for line in read_file(path).splitlines(keepends=True):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and isinstance(row.get("update"), int):
            rows.append(row)
        elif line.endswith(b"\n"):
            unread += 1
    return rows, unread


def latest(run: Path, stage: str) -> dict[str, Any]:
    """How far a stage that is still running has come: the last value of everything that it logged."""
    found: dict[str, Any] = {}
    for row in logged(run, stage)[0]:
        found |= row
    return found
