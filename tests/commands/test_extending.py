"""Trainings that are asked for more updates or steps go on, whatever happens to them on the way."""

import json
import shutil
import signal
import tomllib
from pathlib import Path

import pytest

from memup_cli.records.extending import Extent
from tests.cli import Memup, files_of

MEMORY = ["train-memory", "--rollout", 5, "--batch", 8, "--hidden", 8, "--evaluate-every", 20, "--run", "run"]
BASELINE = ["train-baseline", "--model", "lstm", "--truncate", 6, "--batch", 8, "--hidden", 8, "--evaluate-every", 20]
BASELINE += ["--run", "run"]
STAGES = {"train-memory": (MEMORY, "memory"), "train-baseline/lstm-tr6": (BASELINE, "baseline/lstm-tr6")}
EVERY = ["--checkpoint-every", 15]
VARYING = {"updates_per_second", "data_wait_share"}


def results(run: Path, folder: str, logs: str) -> dict[str, object]:
    """Weights, and the curve without what clocks say."""
    found: dict[str, object] = {
        n: d for n, d in files_of(run / folder).items() if n.endswith((".safetensors", ".json"))
    }
    lines = [json.loads(line) for line in (run / "logs" / logs / "metrics.jsonl").read_text().splitlines()]
    return {**found, "curve": [{k: v for k, v in line.items() if k not in VARYING} for line in lines]}


def entry(memup: Memup, stage: str) -> dict:
    return json.loads((memup.folder / "run/manifest.json").read_text())["stages"][stage]


@pytest.mark.parametrize("stage", STAGES)
def test_more_updates_go_on_from_the_last_ones(memup, maze, stage):
    command, folder = STAGES[stage]
    memup(*command, *EVERY, "--updates", 40)
    shutil.copytree(maze, memup.folder / "finished")
    assert "extend the training of" in memup(*command, "--updates", 70, "--dry-run").out
    done = memup(*command, *EVERY, "--updates", 70)
    assert "extended at 40 to 70 updates" in done.err
    assert "follows the cosine over 70 updates" in done.err
    assert "not exactly that of 70 from the start" in done.err
    assert (entry(memup, stage)["config"]["updates"], entry(memup, stage)["progress"]["done"]) == (70, 70)
    expected = results(maze, folder, stage)
    assert "up to date" in memup(*command, "--updates", 70).out
    refused = memup(*command, "--updates", 69, code=2).err
    assert "updates was 70 and is now 69" in refused
    assert "none can be taken back" in refused
    assert memup("verify", "--run", "run", "--json").json["ok"]
    assert len(list((maze / folder).glob("checkpoint-*.pt"))) == 2

    shutil.rmtree(maze)
    shutil.copytree(memup.folder / "finished", maze)
    memup.killed(*command, *EVERY, "--updates", 70, at=f"run/logs/{stage}/metrics.jsonl")
    stopped = memup.held(*command, *EVERY, "--updates", 70, at=f"run/{folder}/checkpoint-000000045-*.pt").interrupt()
    assert stopped.code == 75, stopped.err
    assert "extended" not in stopped.err, "that was said"
    memup.killed(*command, *EVERY, "--updates", 70, at=f"run/{folder}/checkpoint-000000060-*.pt")
    for path in (maze / folder).glob("checkpoint-*.pt"):
        if not path.name.startswith("checkpoint-000000045"):
            path.write_bytes(b"damaged")
    memup(*command, *EVERY, "--updates", 70)
    assert results(maze, folder, stage) == expected
    for path in (maze / folder).glob("checkpoint-*.pt"):
        path.unlink()
    memup(*command, *EVERY, "--updates", 90)
    assert results(maze, folder, stage)["curve"][: len(expected["curve"])] == expected["curve"], "all over again"


def test_an_interrupted_training_goes_on_to_more_updates(memup, maze):
    stopped = memup.held(*MEMORY, *EVERY, "--updates", 40, at="run/memory/checkpoint-000000015-*.pt").interrupt()
    assert stopped.code == 75, stopped.err
    shutil.copytree(maze, memup.folder / "stopped")
    memup(*MEMORY, *EVERY, "--updates", 60)
    expected = results(maze, "memory", "train-memory")
    shutil.rmtree(maze)
    shutil.copytree(memup.folder / "stopped", maze)
    memup.killed(*MEMORY, *EVERY, "--updates", 60, at="run/memory/checkpoint-000000045-*.pt")
    memup(*MEMORY, *EVERY, "--updates", 60)
    assert results(maze, "memory", "train-memory") == expected


def test_what_was_good_enough_is_up_to_date_until_more_is_asked(memup, maze):
    goal = [*MEMORY, "--until", "rmse<100"]
    assert memup(*goal, "--updates", 40, "--json").json["updates"] == 20
    assert "up to date" in memup(*goal, "--updates", 40).out
    more = memup(*goal, "--updates", 100, "--json").json
    assert (more["updates"], more["early"]) == (40, True)
    assert entry(memup, "train-memory")["earlier"] == [[40, 20]]


def test_what_comes_after_an_extended_memory_is_stale(memup, maze):
    memup(*MEMORY, "--updates", 20)
    memup("evaluate", "memory", "--run", "run")
    memup(*MEMORY, "--updates", 40)
    assert memup("status", "--run", "run", "--json").json["stages"]["evaluate"]["stale"] == ["memory"]
    restarted = memup(*MEMORY, "--updates", 40, "--restart")
    assert "extended" not in restarted.err
    assert entry(memup, "train-memory")["earlier"] == []


def test_what_was_done_counts_as_it_was_done_however_often_more_is_asked():
    """Also if what was asked for in between had not begun."""
    twice = Extent(40).extended(40, 70).extended(40, 90)
    assert twice == Extent(90, ((40, 40),))
    assert (twice.share(39), twice.share(40)) == (39 / 40, 40 / 90)
    assert twice.extended(60, 120) == Extent(120, ((40, 40), (90, 60)))


def test_a_line_of_the_log_is_about_the_updates_since_the_one_before_it():
    """There is one where all that was asked for was done, too, but none where more was asked before that."""
    extent = Extent(90, ((40, 40), (70, 55)))
    assert [extent.since_line(done, 50) for done in (40, 50, 90)] == [40, 10, 40]


def test_what_is_left_out_is_as_it_was_begun(memup, maze):
    memup(*MEMORY, "--updates", 20, "--lr", 2e-3)
    memup(*BASELINE, "--updates", 20)
    memup("train-agent", "--run", "run", "--envs", 4, "--hidden", 8, "--iteration-steps", 200, "--steps", 400)
    before = entry(memup, "train-memory")
    for command in (["score"], MEMORY[:1], BASELINE[:5], ["train-agent"]):
        assert "up to date" in memup(*command, "--run", "run").out
    assert entry(memup, "train-memory") == before
    (memup.folder / "plan.toml").write_text(memup("train-memory", "--run", "run", "--dry-run").out)
    assert "up to date" in memup("train-memory", "--run", "run", "--config", "plan.toml").out
    given = memup("train-memory", "--run", "run", "--config", "plan.toml", "--updates", 30, "--dry-run").out
    assert tomllib.loads(given)["train-memory"]["updates"] == 30
    assert "lr was 0.002 and is now 0.001" in memup("train-memory", "--run", "run", "--lr", 1e-3, code=2).err
    more = memup("train-memory", "--run", "run", "--updates", 30)
    assert "train-agent/ppo: on another memory; to be trained again after this" in more.err
    assert (entry(memup, "train-memory")["config"]["lr"], entry(memup, "train-memory")["config"]["updates"]) == (
        2e-3,
        30,
    )
    assert memup("verify", "--run", "run", "--json").json["ok"], "the agent is stale, its memory is not damaged"


@pytest.mark.parametrize("agent", ["ppo", "qrdqn"])
def test_an_agent_plays_more_steps(memup, maze, agent):
    memup(*MEMORY, "--updates", 20)
    command = ["train-agent", "--run", "run", "--agent", agent, "--envs", 4, "--hidden", 8, "--iteration-steps", 200]
    command += ["--minibatch", 32, "--checkpoint-every", 0]
    first = memup(*command, "--steps", 500, "--json").json["steps"]
    shutil.copytree(maze, memup.folder / "finished")
    assert "Would extend" in memup(*command, "--steps", 1500, "--dry-run").out
    done = memup(*command, "--steps", 1500)
    assert f"extended at {first:,} to 1,500 steps" in done.err
    expected = results(maze, f"agent/{agent}", f"train-agent-{agent}")
    assert "up to date" in memup(*command, "--steps", 1500).out
    assert "none can be taken back" in memup(*command, "--steps", 400, code=2).err

    shutil.rmtree(maze)
    shutil.copytree(memup.folder / "finished", maze)
    command_again = [*command, "--steps", 1500]
    memup.killed(*command_again, at=f"run/agent/{agent}/checkpoint-*.pt")
    stopped = memup.held(*command_again, at=f"run/agent/{agent}/checkpoint-*.pt").interrupt(signal.SIGTERM)
    assert stopped.code == 75, stopped.err
    for path in (maze / f"agent/{agent}").glob("checkpoint-*.pt"):
        path.unlink()
    memup(*command_again)
    assert results(maze, f"agent/{agent}", f"train-agent-{agent}") == expected


def test_rounds_get_no_more_steps(memup, maze):
    memup(*MEMORY, "--updates", 20)
    command = ["train-agent", "--run", "run", "--agent", "ppo", "--envs", 4, "--hidden", 8, "--iteration-steps", 200]
    memup.killed(*command, "--alternate", 1, "--steps", 400, at="run/rounds/*")
    refused = memup(*command, "--alternate", 1, "--steps", 800, code=2).err
    assert "the steps of every round" in refused
