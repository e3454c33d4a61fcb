"""A run as an offline run of Weights & Biases, for `wandb sync` to upload whenever the user wants.

Its folder is written aside as a whole and takes the place of the one before it. Both have the same id, under which
an upload replaces what an earlier one brought. Nothing here uses the network.
"""

import hashlib
import json
import os
import warnings
from dataclasses import astuple
from pathlib import Path
from typing import Any

from stores.files import make_folder, move, read_file, remove_tree, write_durably

from ..errors import BadInput, UsageProblem
from ..extras import needs
from ..records.runs import quoted
from .tracked import PROJECT, TrackedRun

TOLD = "memup.json"  # in the folder: a digest of what it was made from
MISLEADING = ("MODE", "DISABLED", "RUN_ID", "RESUME", "RUN_GROUP", "SWEEP_ID", "NAME", "SERVICE")  # variables


def export_wandb(run: TrackedRun, to: str | None) -> dict[str, Any]:
    """Write the offline run, unless it is there already; returns the summary to print."""
    root = Path(to or os.environ.get("WANDB_DIR") or run.folder.absolute().parent).absolute()
    if root.exists() and not root.is_dir():
        raise UsageProblem(f"--to {root} is a file; give the folder that is to hold wandb/")
    home = root / "wandb"
    if home.exists() and not home.is_dir():
        raise UsageProblem(f"{home} is a file, and W&B keeps its runs in a folder of that name; move it away")
    project = os.environ.get("WANDB_PROJECT") or PROJECT
    digest = hashlib.sha256(json.dumps([project, *map(str, astuple(run))]).encode()).hexdigest()
    earlier = sorted(home.glob(f"offline-run-*-{run.key}"))
    same = [folder for folder in earlier if _digest(folder) == digest]
    place = same[-1] if same else _write(run, project, home, digest)
    for other in home.glob(f"offline-run-*-{run.key}*"):
        if (whole := other.with_name(other.name.partition(".")[0])) != place:  # it may be deleted in part
            remove_tree(whole)
    remove_tree(home / _aside(run))
    added = 0 if same else len(run.points)
    done = {"experiment": project, "id": run.key, "points": len(run.points), "added": added}
    return {"tracker": "wandb", "store": str(place), **done, "next": f"wandb sync {quoted(place)}"}


def _digest(folder: Path) -> str:
    try:
        return str(json.loads(read_file(folder / TOLD))["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""


def _write(run: TrackedRun, project: str, home: Path, digest: str) -> Path:
    for name in MISLEADING:
        os.environ.pop(f"WANDB_{name}", None)
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # which would use the network
    with warnings.catch_warnings(), needs("wandb"):
        warnings.simplefilter("ignore")
        import wandb
    aside = home / _aside(run)
    remove_tree(aside)
    make_folder(aside)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _log(wandb, run, project, aside)
    except (wandb.errors.Error, OSError) as error:
        raise BadInput(
            f"W&B could not write an offline run into {aside}: {error}. Give another folder with --to."
        ) from error
    (made,) = (aside / "wandb").glob(f"offline-run-*-{run.key}")
    write_durably(made / TOLD, json.dumps({"digest": digest}).encode())
    place = home / made.name
    remove_tree(place)  # of the same second
    move(made, place)
    return place


def _aside(run: TrackedRun) -> str:
    return f".memup-{run.key}.partial"


def _log(wandb: Any, run: TrackedRun, project: str, folder: Path) -> None:
    quiet = {"silent": True, "console": "off", "save_code": False, "disable_git": True}
    quiet |= {"x_disable_stats": True, "x_disable_meta": True, "x_save_requirements": False}
    with wandb.init(
        mode="offline",
        project=project,
        id=run.key,
        name=run.name,
        job_type=run.task,
        config=run.params,
        dir=str(folder),
        settings=wandb.Settings(**quiet),
    ) as log:
        for stage, axis in dict.fromkeys((line.stage, line.axis) for line in run.lines):
            log.define_metric(f"{stage}/{axis}", hidden=True)
            log.define_metric(f"{stage}/*", step_metric=f"{stage}/{axis}")
        for line in run.lines:
            log.log({f"{line.stage}/{line.axis}": line.step, **line.values})
        log.summary.update(run.figures)
