"""A run in an MLflow store: a database file, or whatever MLFLOW_TRACKING_URI names.

MLflow's parameters cannot be changed. So what is there is read first. If it is a part of the run as it is now, the rest
is added. If not (a stage was trained anew), a new MLflow run takes its place, and the old one goes to MLflow's trash.

Folders of files (mlruns) are refused: MLflow has given them up, and one kill at the wrong moment makes them unreadable.
"""

import logging
import os
import sqlite3
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from stores.files import make_folder, move, remove_file

from ..errors import BadInput, UsageProblem
from ..extras import needs
from ..options.common import STAGES
from ..records.runs import quoted
from .tracked import PROJECT, TrackedRun, is_figure

TAG = "memup.run"
SQLITE = "sqlite:///"
AT_ONCE = 900  # points in a request; MLflow takes 1,000 things, of which 100 may be parameters
PARAMS_AT_ONCE = 100


def export_mlflow(run: TrackedRun, to: str | None) -> dict[str, Any]:
    """Bring the run into a store, or what is new of it; returns the summary to print."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # which would use the network
    uri = _store(to or os.environ.get("MLFLOW_TRACKING_URI") or str(run.folder.absolute().parent / "mlflow.db"))
    with warnings.catch_warnings(), needs("mlflow"):
        warnings.simplefilter("ignore")
        import mlflow  # noqa: F401
        from mlflow.exceptions import MlflowException

        if uri.startswith(SQLITE):
            import alembic  # noqa: F401
            import sqlalchemy  # noqa: F401
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _export(run, uri)
    except MlflowException as error:
        first = str(error).strip().splitlines()[0][:300]
        raise BadInput(
            f"MLflow cannot use the store {uri}: {first}. Give another one with --to, such as --to mlflow.db."
        ) from error
    show = f"mlflow ui --backend-store-uri {quoted(uri)}"
    return {"tracker": "mlflow", "store": uri, **found, "next": "" if uri.startswith("http") else show}


def _store(to: str) -> str:
    """The store's address. What is in the way of a database is refused, before anything is written."""
    if not to.startswith(SQLITE) and ("://" in to or to.startswith("databricks")) and not to.startswith("file:"):
        return to
    path = Path(to.removeprefix(SQLITE)).absolute()
    if to.startswith("file:") or path.is_dir():
        raise UsageProblem(
            f"{to} is a folder, and MLflow no longer keeps runs in folders. Give a database file: --to mlflow.db. "
            "`mlflow migrate-filestore` turns an mlruns folder into one."
        )
    if path.exists():
        _refuse_other_file(path)
    return f"{SQLITE}{path}"


def _refuse_other_file(path: Path) -> None:
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.Error as error:
        raise UsageProblem(
            f"--to {path} is no SQLite database ({error}); give another name, or move it away"
        ) from error
    if tables and "experiments" not in tables:
        raise UsageProblem(f"--to {path} is the database of another program; give another name")


@contextmanager
def _client(uri: str) -> Iterator[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    try:
        yield client
    finally:
        if engine := getattr(client._tracking_client.store, "engine", None):
            engine.dispose()


def _export(run: TrackedRun, uri: str) -> dict[str, Any]:
    if uri.startswith(SQLITE):
        _make_database(Path(uri.removeprefix(SQLITE)))
    with _client(uri) as client:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or PROJECT
        experiment = client.get_experiment_by_name(name)
        if experiment and experiment.lifecycle_stage != "active":
            raise UsageProblem(
                f"the experiment {name} of {uri} was deleted in MLflow. Restore it there, or choose another with the "
                "variable MLFLOW_EXPERIMENT_NAME."
            )
        number = experiment.experiment_id if experiment else client.create_experiment(name)
        found = client.search_runs([number], f"tags.`{TAG}` = '{run.key}'")  # two, where an export was killed
        earlier = [each.info.run_id for each in found]
        there = {each: points for each in earlier if (points := _written(client, each, run)) is not None}
        kept = next(iter(there), None)
        if kept is None:
            began = int(run.began.timestamp() * 1000) if run.began else None
            tags = {TAG: run.key, "memup.task": run.task}
            kept = client.create_run(number, start_time=began, tags=tags, run_name=run.name).info.run_id
        added = _add(client, kept, run, there.get(kept, set()))
        for other in earlier:
            if other != kept:
                client.delete_run(other)
    return {"experiment": name, "id": kept, "points": len(run.points), "added": added}


def _make_database(path: Path) -> None:
    """MLflow makes its tables one by one, and cannot go on with a part of them: so aside, and renamed when whole."""
    if path.exists() and path.stat().st_size:
        return
    make_folder(path.parent)
    aside = path.with_name(f".{path.name}.partial")
    for ending in ("", "-journal", "-wal", "-shm"):
        remove_file(aside.with_name(aside.name + ending))
    with _client(f"{SQLITE}{aside}") as client:
        client.search_experiments(max_results=1)
    move(aside, path)


def _written(client: Any, number: str, run: TrackedRun) -> set[tuple[str, int]] | None:
    """The points that are there; None if anything that earlier exports wrote is not so any more."""
    data, points = client.get_run(number).data, run.points
    params = {name: value for name, value in data.params.items() if _is_ours(name)}
    if any(str(run.params.get(name)) != value for name, value in params.items()):
        return None
    found: set[tuple[str, int]] = set()
    for name in data.metrics:
        if _is_ours(name) and not is_figure(name):
            for point in client.get_metric_history(number, name):
                if (name, point.step) in found or points.get((name, point.step)) != point.value:
                    return None
                found.add((name, point.step))
    return found


def _is_ours(name: str) -> bool:
    """The user may add what is named otherwise."""
    return name.partition("/")[0] in STAGES


def _add(client: Any, number: str, run: TrackedRun, there: set[tuple[str, int]]) -> int:
    """What is not there yet; returns how many points of curves that are."""
    from mlflow.entities import Metric, Param

    now, data = int(time.time() * 1000), client.get_run(number).data
    params = [Param(name, str(value)) for name, value in run.params.items() if name not in data.params]
    for first in range(0, len(params), PARAMS_AT_ONCE):
        client.log_batch(number, params=params[first : first + PARAMS_AT_ONCE])
    new = [Metric(name, value, now, step) for (name, step), value in run.points.items() if (name, step) not in there]
    figures = [Metric(name, value, now, 0) for name, value in run.figures.items() if data.metrics.get(name) != value]
    for first in range(0, len(new) + len(figures), AT_ONCE):
        client.log_batch(number, metrics=[*new, *figures][first : first + AT_ONCE])
    client.set_terminated(number, "RUNNING" if run.running else "FINISHED", now)
    return len(new)
