"""A run in the local store of Trackio: one SQLite file a project.

A row there can have an identity, and is written once however often it is given. Where what an earlier export wrote is
not a part of the run any more, it is deleted and written again.
"""

import os
import warnings
from pathlib import Path
from typing import Any

from stores.files import make_folder

from ..errors import BadInput, UsageProblem
from ..extras import needs
from ..records.runs import quoted
from .tracked import PROJECT, TrackedRun


def export_trackio(run: TrackedRun, to: str | None) -> dict[str, Any]:
    """Bring the run into the store, or what is new of it; returns the summary to print."""
    if to:
        if Path(to).exists() and not Path(to).is_dir():
            raise UsageProblem(f"--to {to} is a file; give the folder of a Trackio store, or a new one")
        os.environ["TRACKIO_DIR"] = str(Path(to).absolute())  # read when Trackio is imported
    os.environ["HF_HUB_OFFLINE"] = "1"
    with warnings.catch_warnings(), needs("trackio"):
        warnings.simplefilter("ignore")
        from trackio.sqlite_storage import SQLiteStorage
        from trackio.utils import TRACKIO_DIR
    make_folder(Path(TRACKIO_DIR))
    project = os.environ.get("TRACKIO_PROJECT") or PROJECT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            added = _bring(SQLiteStorage, project, run)
    except Exception as error:  # whatever SQLite, its lock or Trackio raise
        raise BadInput(f"Trackio cannot use the store {TRACKIO_DIR}: {error!r}. Give another one with --to.") from error
    show = f"TRACKIO_DIR={quoted(TRACKIO_DIR)} trackio show --project {quoted(project)}"
    found = {"experiment": project, "id": run.key, "points": len(run.points), "added": added}
    return {"tracker": "trackio", "store": str(TRACKIO_DIR), **found, "next": show}


def _bring(storage: Any, project: str, run: TrackedRun) -> int:
    wanted = {f"{run.key}:{line.stage}:{line.step}": (line.step, line.values) for line in run.lines}
    wanted[f"{run.key}:figures"] = (0, run.figures)
    storage.init_db(project)
    rows = [_row(log) for log in storage.get_logs(project, run.name, run_id=run.key)]
    current = {_row({"step": step, **values}) for step, values in wanted.values()}
    config = storage.get_run_config(project, run.name, run_id=run.key)
    if len(set(rows)) < len(rows) or not set(rows) <= current or (rows and config != run.params):
        storage.delete_run(project, run.name, run_id=run.key)
        rows = []
    storage.bulk_log(
        project=project,
        run=run.name,
        run_id=run.key,
        metrics_list=[values for _, values in wanted.values()],
        steps=[step for step, _ in wanted.values()],
        log_ids=list(wanted),  # rows that are there already are left as they are
        config=run.params,
    )
    there = set(rows)
    return sum(len(line.values) for line in run.lines if _row({"step": line.step, **line.values}) not in there)


def _row(log: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted((name, value) for name, value in log.items() if name != "timestamp"))
