"""Runs in a local store of Trackio. Its Pillow is older than the one the other tests have, so it is not among what they
install: `pip install 'memup[trackio]'` into an environment of its own runs these."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.publishing.conftest import curves, evaluated

pytestmark = pytest.mark.filterwarnings("ignore")  # of Trackio itself
EXPORT = ("export", "trackio", "--run", "run", "--to", "store")


@pytest.fixture(autouse=True)
def own(monkeypatch):
    for name in [name for name in os.environ if name.startswith("TRACKIO_")]:
        monkeypatch.delenv(name)


def tracked_run(folder: Path) -> tuple[dict[str, str], dict[tuple[str, int], float], dict[str, float]]:
    """The options of the only run, its curves and its figures; fails if a point is there twice."""
    with closing(sqlite3.connect(folder / "store" / "memup.db")) as store:
        rows = store.execute("SELECT run_id, run_name, step, metrics, log_id FROM metrics").fetchall()
        ((config,),) = store.execute("SELECT config FROM configs").fetchall()
    assert len({row[:2] for row in rows}) == 1
    points, figures = {}, {}
    for _, _, step, metrics, identity in rows:
        new = {(name, step): value for name, value in json.loads(metrics).items()}
        if identity.endswith(":figures"):
            assert not figures
            figures = {name: value for (name, _), value in new.items()}
        else:
            assert not set(new) & set(points)
            points |= new
    return json.loads(config), points, figures


def test_every_point_option_and_figure_is_there_once(memup, trained):
    first = memup(*EXPORT, "--json").json
    assert memup(*EXPORT, "--json").json == {**first, "added": 0}
    config, points, figures = tracked_run(memup.folder)
    assert first["added"] == len(points)
    assert points == curves(trained)
    assert {name: figures[name] for name in evaluated(trained)} == evaluated(trained)
    assert config["train-memory/hidden"] == 16


def test_more_training_and_a_restart_are_the_same_run(memup, trained):
    memup(*EXPORT)
    memup("train-memory", "--run", "run", "--updates", 200)
    memup(*EXPORT)
    assert tracked_run(memup.folder)[1] == curves(trained)
    memup("train-memory", "--run", "run", "--updates", 60, "--hidden", 8, "--restart")
    memup(*EXPORT)
    config, points, figures = tracked_run(memup.folder)
    assert points == curves(trained)
    assert config["train-memory/hidden"] == 8
    assert "evaluate/rmse" not in figures


@pytest.mark.parametrize("nth", [1, 6, 12])
def test_an_export_that_was_killed_is_made_whole_by_the_next(memup, trained, nth):
    memup.killed(*EXPORT, at="store/memup.db*", nth=nth)
    memup(*EXPORT)
    assert tracked_run(memup.folder)[1] == curves(trained)


def test_a_file_in_the_way_is_left_alone(memup, trained):
    (memup.folder / "store").write_text("mine")
    assert "is a file" in memup(*EXPORT, code=2).err
    assert (memup.folder / "store").read_text() == "mine"
