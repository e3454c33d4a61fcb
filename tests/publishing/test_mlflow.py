"""Runs in real MLflow stores: every point once, however often a run is exported and wherever an export was killed."""

import json
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.publishing.conftest import curves, evaluated

pytest.importorskip("mlflow")
pytest.importorskip("alembic")
pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow itself
EXPORT = ("export", "mlflow", "--run", "run")


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")


def tracked_run(store: str) -> tuple[Any, dict[tuple[str, int], float]]:
    """The only run in a store, and all its curves; fails if there is a second run or a point twice."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=store)
    (run,) = client.search_runs([client.get_experiment_by_name("memup").experiment_id])
    found = {}
    for name in run.data.metrics:
        points = client.get_metric_history(run.info.run_id, name)
        if not name.startswith("evaluate") and name.rpartition("/")[2] not in ("updates", "steps", "episodes",
                                                                                "test_episodes"):  # fmt: skip
            assert len({point.step for point in points}) == len(points), name
            found |= {(name, point.step): point.value for point in points}
    return run, found


@pytest.fixture(scope="session")
def empty(tmp_path_factory) -> Path:
    """A database without runs, as MLflow makes it, which takes it many seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def store(memup, empty) -> str:
    """A copy of it beside the run, and its address."""
    shutil.copy(empty, memup.folder / "mlflow.db")
    return f"sqlite:///{memup.folder / 'mlflow.db'}"


def test_every_point_option_and_figure_is_there_once(memup, trained, store):
    first = memup(*EXPORT, "--json").json
    again = memup(*EXPORT, "--json").json
    assert (first["store"], first["added"], again["added"]) == (store, len(curves(trained)), 0)
    assert again["problems"] == []
    run, points = tracked_run(store)
    assert points == curves(trained)
    assert run.info.run_id == again["id"] == first["id"]
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert {name: run.data.metrics[name] for name in evaluated(trained)} == evaluated(trained)
    assert run.data.metrics["train-memory/updates"] == 120
    wanted = {
        "collect/task": "tmaze",
        "collect/length": "40",
        "train-memory/hidden": "16",
        "train-agent/ppo/agent": "ppo",
    }
    assert wanted.items() <= run.data.params.items()


def test_more_training_is_added_to_the_same_run(memup, trained, store):
    before = memup(*EXPORT, "--json").json
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=store).log_metric(before["id"], "of the user", 7)
    memup("train-memory", "--run", "run", "--updates", 200)
    assert "evaluate is stale" in memup(*EXPORT).out
    memup("evaluate", "memory", "--run", "run")
    after = memup(*EXPORT, "--json").json
    run, points = tracked_run(store)
    assert points.pop(("of the user", 0)) == 7
    figures = {name: value for name, value in evaluated(trained).items() if "ppo" not in name}
    assert {name: run.data.metrics[name] for name in figures} == figures
    assert run.data.metrics["train-memory/updates"] == 200
    assert points == curves(trained)
    assert len(points) > before["points"]
    assert after["id"] == before["id"]


def test_a_stage_that_was_trained_anew_takes_the_place_of_the_old(memup, trained, store):
    before = memup(*EXPORT, "--json").json
    memup("train-memory", "--run", "run", "--updates", 60, "--hidden", 8, "--restart")
    after = memup(*EXPORT, "--json").json
    run, points = tracked_run(store)
    assert after["id"] != before["id"]
    assert points == curves(trained)
    assert run.data.params["train-memory/hidden"] == "8"


@pytest.mark.parametrize("nth", [1, 12, *(pytest.param(n, marks=pytest.mark.learning) for n in (5, 20))])
def test_an_export_that_was_killed_is_made_whole_by_the_next(memup, trained, store, nth):
    memup.killed(*EXPORT, at="mlflow.db*", nth=nth)
    memup(*EXPORT)
    run, points = tracked_run(store)
    assert points == curves(trained)
    assert {name: run.data.metrics[name] for name in evaluated(trained)} == evaluated(trained)


def test_a_database_that_was_not_finished_is_not_there(memup, trained):
    memup.killed(*EXPORT, at=".mlflow.db.partial*", nth=40)
    assert not (memup.folder / "mlflow.db").exists()
    memup(*EXPORT)
    assert tracked_run(f"sqlite:///{memup.folder / 'mlflow.db'}")[1] == curves(trained)
    assert sorted(path.name for path in memup.folder.iterdir()) == ["mlflow.db", "run"]


def test_the_store_can_come_from_mlflows_own_variables(memup, trained, store):
    (memup.folder / "mlflow.db").rename(memup.folder / "there.db")
    env = {"MLFLOW_TRACKING_URI": "sqlite:///there.db", "MLFLOW_EXPERIMENT_NAME": "mazes"}
    found = memup(*EXPORT, "--json", env=env).json
    assert (found["store"], found["experiment"]) == (store.replace("mlflow.db", "there.db"), "mazes")


def test_garbled_lines_are_told_and_the_rest_is_exported(memup, trained, store):
    wanted = curves(trained)
    log = trained / "logs/train-memory/metrics.jsonl"
    odd = [{"update": 7, "../../out": 1.0, "loss": 10**400}, {"update": 10**30, "loss": 1}, {"update": 8, "loss": None}]
    lines = [*(json.dumps(row) for row in odd), "{", "[]", '{"update": 9, "loss": NaN}', '{"update": 10, "lo']
    log.write_text(log.read_text() + "\n".join(lines))
    found = memup(*EXPORT, "--json").json
    assert tracked_run(store)[1] == wanted
    assert any("2 lines of logs/train-memory/metrics.jsonl" in problem for problem in found["problems"])
    assert any("../../out" in problem for problem in found["problems"])


def test_what_cannot_be_exported_is_said(memup, scored):
    assert "not a run" in memup("export", "mlflow", "--run", "none", code=3).err
    shutil.copytree(scored, memup.folder / "run")
    assert "memup train-memory" in memup(*EXPORT, code=3).err
    assert sorted(path.name for path in memup.folder.iterdir()) == ["run"]


def test_a_target_in_the_way_is_left_alone(memup, trained):
    (memup.folder / "note.db").write_text("mine")
    with sqlite3.connect(memup.folder / "other.db") as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    for to, said in (("note.db", "no SQLite"), ("other.db", "another program"), ("run", "migrate-filestore")):
        before = sorted(memup.folder.rglob("*"))
        assert said in memup(*EXPORT, "--to", to, code=2).err
        assert sorted(memup.folder.rglob("*")) == before
    assert (memup.folder / "note.db").read_text() == "mine"
