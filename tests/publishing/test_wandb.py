"""Runs as offline runs of W&B, read from the files that `wandb sync` would upload."""

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.publishing.conftest import curves, evaluated

pytest.importorskip("wandb")
pytestmark = pytest.mark.filterwarnings("ignore")  # of W&B itself
EXPORT = ("export", "wandb", "--run", "run")
BLOCK, HEAD = 32768, 7  # of W&B's files, which are LevelDB logs: records in blocks, each piece with a head


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


def records(file: Path) -> list[Any]:
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, found, piece = file.read_bytes(), HEAD, [], b""
    while at < len(data):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + HEAD])
        piece += data[at + HEAD : at + HEAD + size]
        at += HEAD + size
        if kind in (1, 4):  # whole, or the last piece
            found.append(Record.FromString(piece))
            piece = b""
    return found


def items(pairs: Any) -> dict[str, Any]:
    return {pair.key or "/".join(pair.nested_key): json.loads(pair.value_json) for pair in pairs}


def tracked_run(folder: Path) -> tuple[Any, dict[tuple[str, int], float], dict[str, Any]]:
    """The only offline run in a folder, its curves and its summary; fails if a point is there twice."""
    (made,) = (folder / "wandb").iterdir()
    (file,) = made.glob("run-*.wandb")
    found, points, summary = records(file), {}, {}
    assert found[-1].WhichOneof("record_type") == "exit"
    for record in found:
        if record.WhichOneof("record_type") == "history":
            row = items(record.history.item)
            (axis,) = [name for name in row if name.endswith(("/update", "/steps"))]
            new = {(name, row[axis]): row[name] for name in row if name != axis and not name.startswith("_")}
            assert not set(new) & set(points)
            points |= new
        elif record.WhichOneof("record_type") == "summary":
            summary |= items(record.summary.update)
    (run,) = [record.run for record in found if record.WhichOneof("record_type") == "run"]
    return run, points, summary


def test_every_point_option_and_figure_is_there_once(memup, trained):
    first = memup(*EXPORT, "--json", env={"WANDB_MODE": "online", "WANDB_RUN_ID": "another"}).json
    assert memup(*EXPORT, "--json").json == {**first, "added": 0}
    run, points, summary = tracked_run(memup.folder)
    assert points == curves(trained)
    assert {name: summary[name] for name in evaluated(trained)} == evaluated(trained)
    assert summary["train-memory/updates"] == 120
    assert (run.run_id, run.display_name, run.project) == (first["id"], "run", "memup")
    assert items(run.config.update)["train-memory/hidden"] == 16
    assert first["next"] == f"wandb sync {first['store']}"
    assert sorted(path.name for path in memup.folder.iterdir()) == ["run", "wandb"]


def test_more_training_and_a_restart_take_the_place_of_the_old_under_the_same_id(memup, trained):
    before = memup(*EXPORT, "--json").json
    memup("train-memory", "--run", "run", "--updates", 200)
    assert memup(*EXPORT, "--json").json["id"] == before["id"]
    assert tracked_run(memup.folder)[1] == curves(trained)
    memup("train-memory", "--run", "run", "--updates", 60, "--hidden", 8, "--restart")
    memup(*EXPORT)
    run, points, summary = tracked_run(memup.folder)
    assert points == curves(trained)
    assert items(run.config.update)["train-memory/hidden"] == 8
    assert "evaluate/rmse" not in summary


@pytest.mark.parametrize(
    "at",
    [pytest.param("wandb/*", marks=pytest.mark.learning), "wandb/.memup-*/memup.json*", "wandb/offline-run-*"],
)
def test_an_export_that_was_killed_is_made_whole_by_the_next(memup, trained, at):
    memup(*EXPORT)
    memup("train-memory", "--run", "run", "--updates", 150)
    memup.killed(*EXPORT, at=at)
    memup(*EXPORT)
    assert tracked_run(memup.folder)[1] == curves(trained)


def test_a_file_in_the_way_is_left_alone(memup, trained):
    (memup.folder / "wandb").write_text("mine")
    assert "move it away" in memup(*EXPORT, code=2).err
    assert "is a file" in memup(*EXPORT, "--to", "wandb", code=2).err
    assert (memup.folder / "wandb").read_text() == "mine"
