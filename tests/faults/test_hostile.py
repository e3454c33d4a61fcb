"""Files that somebody else made, moved, dated or damaged; options and data that lead nowhere."""

import io
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stores.layout import json_checksum
from stores.manifest import Manifest
from tests.cli import files_of
from tests.faults.stages import AGENT_STAGE, MAZE, MEMORY, MEMORY_STAGE, SCORE, SCORE_STAGE, STAGES, fresh, words

FOLDERS = {"score": "detector", "train-memory": "memory", "train-agent/ppo": "agent/ppo"}
LATER = [SCORE_STAGE, MEMORY_STAGE, AGENT_STAGE]
VERIFY = words("verify --run run")


def half_done(forks, places: Path, start: Path, stage, calls: int) -> Path:
    """A folder where the stage was stopped by a signal after it had committed something."""
    for at in range(calls // 2, calls, 4):
        folder = fresh(places, start)
        if forks.with_fault(folder, stage.command, at, "sig:15").code == 75 and stage.committed(folder / "run"):
            return folder
        shutil.rmtree(folder)
    raise AssertionError(f"{stage.name} could not be stopped half-way")


def write_checkpoint(folder: Path, content: Any) -> Path:
    from memup_cli.records import checkpoint

    buffer = io.BytesIO()
    torch.save(content, buffer)
    path = folder / checkpoint.file_name(999, buffer.getvalue())
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(buffer.getvalue())
    return path


class Hostile:
    """Unpickling it would leave a mark in the current folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("pwned"),)


def begin(run: Path, stage, forks, folder: Path) -> None:
    """Record the stage as begun, so that its checkpoints are looked at."""
    assert forks.with_fault(folder, stage.command, 30, "kill").code == -signal.SIGKILL
    assert stage.name in Manifest.load(run).stages


@pytest.mark.parametrize("stage", LATER, ids=lambda s: s.name)
def test_a_checkpoint_that_would_run_code_is_refused(forks, places, prepare, tally, stage):
    folder = fresh(places, prepare(stage))
    begin(folder / "run", stage, forks, folder)
    write_checkpoint(folder / "run" / FOLDERS[stage.name], {"update": Hostile(), "mark": ""})
    refused = forks(folder, stage.command)
    assert refused.code == 77, refused.err
    assert "not a weights-only file" in refused.err
    assert not (folder / "pwned").exists()
    tally(stage.name, faults=1)


@pytest.mark.parametrize("stage", [MEMORY_STAGE, AGENT_STAGE], ids=lambda s: s.name)
@pytest.mark.parametrize("content", [{"a": 1}, {"learner": {}, "update": 3, "iteration": 3}], ids=["other", "empty"])
def test_a_checkpoint_of_something_else_is_explained(forks, places, prepare, tally, stage, content):
    folder = fresh(places, prepare(stage))
    begin(folder / "run", stage, forks, folder)
    path = write_checkpoint(folder / "run" / FOLDERS[stage.name], content)
    refused = forks(folder, stage.command)
    assert refused.code == 65, refused.err
    assert "--restart" in refused.err
    path.unlink()
    assert forks(folder, stage.command).code == 0
    tally(stage.name, faults=1)


@pytest.mark.parametrize(
    "where",
    ["memory/checkpoint-000000999-00000000.pt", "scores/quantile", "scores/quantile/train", "logs/train-memory"],
)
def test_links_out_of_the_run_are_refused(forks, places, prepare, tally, where):
    folder = fresh(places, prepare(MEMORY_STAGE))
    begin(folder / "run", MEMORY_STAGE, forks, folder)
    path, outside = folder / "run" / where, folder / "outside"
    if path.is_dir():
        shutil.move(path, outside)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        outside.write_bytes(b"secret")
    path.symlink_to(outside)
    before = files_of(outside) if outside.is_dir() else outside.read_bytes()
    for command in (MEMORY_STAGE.command, [*SCORE, "--restart"]):
        refused = forks(folder, command)
        if command[0] == "train-memory" or where.startswith("scores"):
            assert refused.code == 77, refused.err
            assert "symbolic link" in refused.err
    assert (files_of(outside) if outside.is_dir() else outside.read_bytes()) == before
    tally("train-memory", faults=1)


def edit_manifest(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """As somebody would who knows how the checksum is made."""
    data = json.loads((run / "manifest.json").read_text())
    data.pop("checksum")
    change(data)
    (run / "manifest.json").write_text(json.dumps({**data, "checksum": json_checksum(data)}))


OUTSIDE = "../../elsewhere"
EDITS: dict[str, tuple[int, Callable[[dict[str, Any]], Any]]] = {
    "detector": (77, lambda d: d["stages"]["score"]["config"].update(detector=OUTSIDE)),
    "stage": (77, lambda d: d["stages"].update({f"train-agent/{OUTSIDE}": {"status": "complete"}})),
    "weights": (77, lambda d: d["stages"]["score"].update(weights={OUTSIDE: "0"})),
    "path": (77, lambda d: d["stages"]["score"]["outputs"]["scores"].update(path=OUTSIDE)),
    "stages": (65, lambda d: d.update(stages=[])),
    "entry": (65, lambda d: d["stages"].update(score=5)),
    "task": (65, lambda d: d.update(task=None)),
    "config": (65, lambda d: d["stages"]["score"].update(config="x")),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_manifest_that_somebody_made_leads_nowhere(forks, places, prepare, tally, edit):
    folder = fresh(places, prepare(MEMORY_STAGE))
    code, change = EDITS[edit]
    edit_manifest(folder / "run", change)
    before = files_of(folder)
    for command in (MEMORY, SCORE, words("status --run run"), VERIFY):
        refused = forks(folder, command)
        assert refused.code == code, refused.err
        assert "manifest.json" in refused.err
    assert files_of(folder) == before
    tally("manifest", faults=1)


@pytest.mark.parametrize("stage", LATER, ids=lambda s: s.name)
def test_a_newer_format_is_left_alone(forks, places, prepare, tally, stage):
    folder = fresh(places, prepare(stage))
    edit_manifest(folder / "run", lambda data: data.update(format=2))
    before = files_of(folder)
    refused = forks(folder, stage.command)
    assert refused.code == 65
    assert "version 2" in refused.err
    assert "version 1" in refused.err
    assert files_of(folder) == before
    tally(stage.name, faults=1)


def test_scores_of_a_newer_format_are_left_alone(forks, places, prepare, tally):
    folder = fresh(places, prepare(MEMORY_STAGE))
    (path,) = (folder / "run").glob("scores/*/train/*/zarr.json")
    data = json.loads(path.read_text())
    data["attributes"]["memup"]["format"] = 9
    path.write_text(json.dumps(data))
    before = files_of(folder / "run" / "scores")
    refused = forks(folder, MEMORY)
    assert refused.code == 65, refused.err
    assert "version 9" in refused.err
    assert files_of(folder / "run" / "scores") == before
    tally("train-memory", faults=1)


@pytest.mark.parametrize("name", ["agent", "memory", "logs"])
def test_a_file_where_a_folder_belongs_is_named(forks, places, prepare, tally, name):
    stage = AGENT_STAGE if name == "agent" else MEMORY_STAGE
    folder = fresh(places, prepare(stage))
    shutil.rmtree(folder / "run" / name, ignore_errors=True)
    (folder / "run" / name).write_text("notes")
    refused = forks(folder, stage.command)
    assert refused.code == 74, refused.err
    assert f"run/{name} is a file" in refused.err
    assert "move it out of the way" in refused.err
    assert (folder / "run" / name).read_text() == "notes"
    (folder / "run" / name).unlink()
    assert forks(folder, stage.command).code == 0
    tally(stage.name, faults=1)


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_clocks_that_are_wrong_do_not_matter(forks, places, prepare, undisturbed, tally, stage):
    calls, expected = undisturbed(stage)
    folder = half_done(forks, places, prepare(stage), stage, calls)
    for i, path in enumerate(sorted(folder.rglob("*"))):
        when = path.stat().st_mtime + (-1) ** i * 10**9 - 1000 * i  # in the future or the past, and in another order
        os.utime(path, (when, when))
    again = forks(folder, stage.command)
    assert again.code == 0, again.err
    assert stage.result(folder / "run") == expected
    tally(stage.name, faults=1)


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_run_can_be_moved_half_way(forks, places, prepare, undisturbed, tally, stage):
    calls, expected = undisturbed(stage)
    folder = half_done(forks, places, prepare(stage), stage, calls)
    moved = folder / "some where" / "else"
    moved.parent.mkdir()
    shutil.move(folder / "run", moved)
    command = [str(moved) if word == "run" else word for word in stage.command]
    again = forks(folder, command)
    assert again.code == 0, again.err
    assert stage.result(moved) == expected
    assert "up to date" in forks(folder, command).out
    tally(stage.name, faults=1)


def test_an_agent_whose_loss_is_not_finite_keeps_the_good_checkpoint(forks, places, prepare, tally):
    folder = fresh(places, prepare(AGENT_STAGE))
    failed = forks(folder, [*AGENT_STAGE.command, "--lr", "1e30", "--max-grad", "1e30", "--steps", "2000"])
    assert failed.code == 65, failed.err
    assert "no longer finite" in failed.err
    assert "learning rate 1e+30" in failed.err
    for path in (folder / "run/agent/ppo").glob("checkpoint-*.pt"):
        policy = torch.load(path, weights_only=True)["learner"]["policy"]
        assert all(weights.isfinite().all() for weights in policy.values())
    assert Manifest.load(folder / "run").stages["train-agent/ppo"]["status"] == "failed"
    assert forks(folder, [*AGENT_STAGE.command, "--restart"]).code == 0
    tally("train-agent/ppo", faults=1)


ENVIRONMENT = """
import gymnasium, numpy as np
class Extreme(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.step_number += 1
        return np.full(2, 0.1, np.float32), 3e38, self.step_number == 9, False, {}
gymnasium.register("Extreme-v0", Extreme)
"""


def test_a_detector_whose_loss_is_not_finite_writes_no_scores(memup, tally):
    (memup.folder / "extreme.py").write_text(ENVIRONMENT)
    memup("collect", "gym", "--import", "extreme", "--env-id", "Extreme-v0", "--episodes", 9, "--run", "run")
    failed = memup("score", "--run", "run", "--updates", 20, "--gamma", 1, code=65)
    assert "finite" in failed.err
    assert not list((memup.folder / "run").glob("scores/*/*/*/score/c.*"))
    assert memup("status", "--run", "run", "--json").json["stages"]["score"]["status"] == "failed"
    tally("score", faults=1)


def test_the_next_stage_names_what_a_failed_array_task_did_not_collect(forks, places, tally, tmp_path):
    parts = [[*MAZE, "--shard", f"{i}/3"] for i in range(3)]
    for part in parts[::2]:
        assert forks(tmp_path, part).code == 0
    for command in (SCORE, MEMORY):
        refused = forks(tmp_path, command)
        assert refused.code == 3
        assert "trajectories/train/0001.zarr" in refused.err
        assert "trajectories/train/0002.zarr" not in refused.err
    assert forks(tmp_path, parts[1]).code == 0
    assert forks(tmp_path, SCORE).code == 0
    tally("collect", faults=1)


def test_verify_covers_checkpoints_and_descriptions(forks, places, prepare, tally):
    folder = fresh(places, prepare(AGENT_STAGE))
    assert forks(folder, AGENT_STAGE.command).code == 0
    assert forks(folder, VERIFY).code == 0
    run = folder / "run"
    (checkpoint, *_) = sorted((run / "memory").glob("checkpoint-*.pt"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    (run / "agent/ppo/config.json").write_text("{}")
    (run / "memory/config.json").unlink()
    looked = forks(folder, VERIFY)
    assert looked.code == 65
    for name in (f"memory/{checkpoint.name}", "agent/ppo/config.json", "memory/config.json"):
        assert name in looked.out
    assert "--repair" in looked.out
    repaired = forks(folder, [*VERIFY, "--repair"])
    assert repaired.code == 0, repaired.out
    assert f"quarantine/memory-{checkpoint.name}.1" in repaired.out
    assert forks(folder, VERIFY).code == 0
    tally("train-memory", faults=3)


def test_damaged_scores_and_detectors_are_made_again(forks, places, prepare, undisturbed, tally):
    _, expected = undisturbed(SCORE_STAGE)
    folder = fresh(places, prepare(SCORE_STAGE))
    assert forks(folder, SCORE).code == 0
    (weights,) = (folder / "run/detector").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-4] + b"....")
    looked = forks(folder, VERIFY)
    assert looked.code == 65
    assert "memup score" in looked.out
    assert forks(folder, SCORE).code == 0
    assert SCORE_STAGE.result(folder / "run") == expected
    chunk = folder / "run/scores/quantile/train/0000.zarr/score/c.1"
    chunk.write_bytes(chunk.read_bytes()[:-3])
    assert forks(folder, VERIFY).code == 65
    assert forks(folder, [*SCORE, "--restart"]).code == 0
    assert forks(folder, VERIFY).code == 0
    assert SCORE_STAGE.result(folder / "run") == expected
    tally("score", faults=2)
