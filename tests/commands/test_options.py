"""Options: few in the help and all in the long one, in groups; goals; names of 0.1.0, and what they are now."""

import json
import re
import tarfile
from itertools import pairwise
from pathlib import Path

import pytest

from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.options.old_names import renewed, renewed_words
from memup_cli.options.presets import PAPER, paper
from memup_cli.options.until import Goal, parse
from stores.manifest import Manifest

STAGES = [["score"], ["train-memory"], ["train-baseline"], ["train-agent"]]
STAGES += [["evaluate", of] for of in ("memory", "agent", "baselines")]
STAGES += [["collect", task] for task in ("tmaze", "endless-tmaze", "copy", "scattered-copy", "add", "pmnist")]
STAGES += [["collect", "gym"], ["collect", "two-colors"], ["import", "arrays"]]
STAGES += [["import", "lerobot"], ["import", "minari"]]


def options(text: str) -> dict[str, set[str]]:
    """The options of a help text, by their group."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if title := re.match(r"╭─ (.*?) ─+╮", line):
            found[title[1]] = set()
        elif flag := re.match(r"│\s+(--[a-z-]+)", line):
            found[list(found)[-1]].add(flag[1])
    return found


@pytest.mark.parametrize("stage", STAGES, ids=" ".join)
def test_the_help_of_a_stage_is_short_and_the_long_one_has_every_option_in_the_same_groups(memup, stage):
    short, every = options(memup(*stage, "--help").out), options(memup(*stage, "--help-all").out)
    assert short.pop("Options") == every.pop("Options") == {"--help", "--help-all"}
    assert 0 < sum(map(len, short.values())) <= 20
    assert all(shown <= every[group] for group, shown in short.items())
    assert {"--threads", "--quiet", "--verbose"} == every["Every stage"] - short["Every stage"]
    assert list(short) == [group for group in every if group in short]  # in the same order


def test_the_long_help_of_a_stage_has_all_that_it_takes(memup):
    every = set().union(*options(memup("train-memory", "--help-all").out).values())
    fields = {name for name, field in TrainMemoryOptions.model_fields.items() if field.description}
    assert {f"--{name.replace('_', '-')}" for name in fields} <= every
    assert {"--temperature", "--stretch", "--until"} <= every
    assert not {"--ema", "--reach", "--until-rmse"} & every


@pytest.mark.parametrize(
    ("text", "goal"),
    [
        ("rmse<0.1", Goal("rmse", "<", 0.1)),
        (" mse <=  1e-3 ", Goal("mse", "<=", 0.001)),
        ("accuracy>0.99", Goal("accuracy", ">", 0.99)),
        ("success >= 1", Goal("success", ">=", 1.0)),
    ],
)
def test_goals(text, goal):
    assert parse(text) == goal
    assert parse(str(goal)) == goal
    assert " " not in str(goal)


@pytest.mark.parametrize(
    ("sense", "below", "same", "above"),
    [("<", True, False, False), ("<=", True, True, False), (">", False, False, True), (">=", False, True, True)],
)
def test_a_goal_means_what_it_says(sense, below, same, above):
    goal = Goal("x", sense, 0.5)
    assert [goal.holds(value) for value in (0.4, 0.5, 0.6)] == [below, same, above]
    assert not goal.reached({"y": 0.4})


@pytest.mark.parametrize(
    ("stage", "goal", "told"),
    [
        ("train-memory", "rmse", '"rmse<0.1", "mse<0.001" or "accuracy>0.99", in quotes'),
        ("train-memory", "rmse<<0.1", "a number above 0"),
        ("train-memory", "rmse=0.1", "in quotes"),
        ("train-memory", "success>0.5", '"rmse<0.1", "mse<0.001" or "accuracy>0.99"'),
        ("train-baseline", "rmse>0.1", "as in rmse<0.1"),
        ("train-baseline", "rmse<nan", "a number above 0"),
        ("train-baseline", "mse<0", "a number above 0"),
        ("train-agent", "accuracy>0.9", 'such as "success>0.95"'),
        ("train-agent", "success<0.9", "as in success>0.95"),
        ("train-agent", "success>1", "success>=1 is all"),
        ("train-agent", "success>=95", "success>=1 is all"),
    ],
)
def test_a_goal_that_is_none_is_told_with_those_that_there_are(memup, stage, goal, told):
    err = memup(stage, "--until", goal, code=2).err
    assert err.startswith(f"memup: --until {goal}: ")
    assert told in err


OLD = [
    ("train-memory", "until-rmse", "0.1", '--until "rmse<0.1"'),
    ("train-memory", "until-mse", "1e-3", '--until "mse<1e-3"'),
    ("train-baseline", "until-accuracy", "0.99", '--until "accuracy>=0.99"'),
    ("train-agent", "until-success", "0.95", '--until "success>=0.95"'),
]
GONE = [("reach", "--near"), ("input-scale", "in units"), ("context-scale", "in units")]
GONE += [("replay-size", "--replay"), ("lr-end", "--lr"), ("ema", "0.99")]


@pytest.mark.parametrize(("stage", "old", "value", "new"), OLD, ids=[f"{o[0]} {o[1]}" for o in OLD])
def test_old_goals_are_told_with_what_they_are_now(memup, stage, old, value, new):
    for words in (["--" + old, value], [f"--{old}={value}"]):
        assert memup(stage, *words, code=2).err.strip() == f"memup: --{old} {value} is now {new}"
    (memup.folder / "old.toml").write_text(f"[{stage}]\n{old.replace('-', '_')} = {value}\n")
    told = memup(stage, "--config", "old.toml", code=2).err
    assert f"{old} = {float(value)} is now until = " in " ".join(told.split())
    name = f"MEMUP_{old.replace('-', '_').upper()}"
    told = memup("status", env={name: value}, code=2).err
    assert f"_UNTIL={new.removeprefix('--until ')}" in told


@pytest.mark.parametrize(("old", "told"), GONE)
def test_options_that_are_gone_are_told_with_what_there_is(memup, old, told):
    err = memup("train-memory", f"--{old}", "3", code=2).err
    assert err.startswith(f"memup: --{old} is gone: ")
    assert told in err
    (memup.folder / "old.toml").write_text(f"[train-memory]\n{old} = 3\n")
    assert f"{old} is gone" in memup("train-memory", "--config", "old.toml", code=2).err


def test_an_option_is_gone_only_where_it_was(memup, maze):
    assert (
        memup("train-baseline", "--run", "run", "--dry-run", "--lr-end", 0.5, "--json").json["config"]["lr_end"] == 0.5
    )
    assert "No such option" in memup("train-agent", "--until-rmse", 0.5, code=2).err


def test_what_was_recorded_is_read_in_todays_names():
    plain = {"lr": 0.1, "until_rmse": None, "until_mse": None, "until_accuracy": None}
    assert renewed(plain) == {"lr": 0.1, "until": None}
    assert renewed({**plain, "until_rmse": 0.1}) == {"lr": 0.1, "until": "rmse<0.1"}
    assert renewed({**plain, "until_accuracy": 1}) == {"lr": 0.1, "until": "accuracy>=1"}
    assert renewed({"until_success": 0.95}) == {"until": "success>=0.95"}
    assert renewed({**plain, "until_rmse": 0.1, "until_mse": 0.04})["until"] == "rmse<0.2"  # whichever came first
    assert renewed({"lr": 0.1, "until": "rmse<0.1"}) == {"lr": 0.1, "until": "rmse<0.1"}


def test_a_recorded_command_is_repeated_in_todays_names():
    words = ["memup", "train-memory", "--until-rmse", "0.1", "--ema=0.9", "--reach", "5", "--batch", "3"]
    assert list(renewed_words("train-memory", words)) == [*words[:2], "--until", "rmse<0.1", "--batch", "3"]
    words = ["memup", "train-baseline", "--lr-end", "0.5"]
    assert list(renewed_words("train-baseline", words)) == words


def in_old_names(run: Path, stage: str, folder: str, **goals: float | None) -> None:
    """Make a run as versions before --until left it."""
    manifest, described = Manifest.load(run), run / folder / "config.json"
    config = manifest.stages[stage]["config"]
    assert config.pop("until") is not None
    config |= goals
    manifest.save()
    described.write_text(json.dumps({**json.loads(described.read_text()), "config": config}))


OLD_RUNS = [
    (["train-baseline", "--updates", 1], "/lstm", "baseline/lstm", "rmse<9", {"until_rmse": 9.0, "until_mse": None}),
    (
        ["train-agent", "--agent", "ppo-lstm", "--steps", 1, "--iteration-steps", 50, "--envs", 2],
        "/ppo-lstm",
        "agent/ppo-lstm",
        "success>=0.5",
        {"until_success": 0.5},
    ),
]


@pytest.mark.parametrize(("train", "which", "folder", "goal", "old"), OLD_RUNS, ids=["baseline", "agent"])
def test_a_stage_with_old_names_is_up_to_date_with_the_same_goal_only(memup, maze, train, which, folder, goal, old):
    train = [*train, "--run", "run"]
    memup(*train, "--until", goal)
    in_old_names(memup.folder / "run", f"{train[0]}{which}", folder, **old)
    for given in ([], ["--until", goal]):
        assert "up to date" in memup(*train, *given).out
    assert f"until was '{goal}' and is now" in memup(*train, "--until", goal.replace("=", "") + "1", code=2).err


def test_a_run_with_old_names_is_up_to_date_and_goes_on_and_is_judged_by_its_goal(memup, maze):
    train = ["train-memory", "--run", "run", "--updates", 20]
    memup(*train, "--until", "rmse<90")
    in_old_names(memup.folder / "run", "train-memory", "memory", until_rmse=90.0, until_mse=None, until_accuracy=None)
    assert "up to date" in memup(*train, "--until", "rmse < 90").out
    assert "up to date" in memup(*train).out  # as it was begun
    assert "until was 'rmse<90' and is now 'rmse<80'" in memup(*train, "--until", "rmse<80", code=2).err
    memup("verify", "--run", "run")
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert (found["solved"], found["threshold"]) == (True, {"rmse": 90})
    assert "below 90" in memup("report", "run", "--format", "md", "--output", "-").out
    more = [*train[:-1], 40]
    assert memup(*more, "--json").json["updates"] == 40
    config = Manifest.load(memup.folder / "run").stages["train-memory"]["config"]
    assert config["until"] == "rmse<90"
    assert "until_rmse" not in config


def test_a_memory_of_0_1_0_is_up_to_date_with_its_own_options(memup):
    with tarfile.open(Path(__file__).parents[1] / "data" / "run-0.1.0.tar.gz") as packed:
        packed.extractall(memup.folder, filter="data")
    assert "up to date" in memup("train-memory", "--run", "run").out
    assert "until was None" in memup("train-memory", "--run", "run", "--until", "rmse<0.1", code=2).err


def test_presets_are_options_and_cover_every_length():
    for sizes in PAPER.values():
        assert 0 in sizes
        for values in sizes.values():
            TrainMemoryOptions(**values)
    rollouts = [paper(task, length, {})["rollout"] for task, length in (("copy", 999), ("copy", 1000), ("pmnist", 784))]
    assert rollouts == [10, 20, 30]
    assert paper("lamps", 10, {"paper": {"rollout": 3}}) == {"rollout": 3}
    assert all(a < b for sizes in PAPER.values() for a, b in pairwise(sizes))


def test_a_preset_is_read_when_the_memory_is_trained(memup):
    """Not when the task was collected."""
    memup("collect", "copy", "--length", 30, "--episodes", 4, "--test-episodes", 1, "--run", "run")
    manifest = Manifest.load(memup.folder / "run")
    assert manifest.task["spec"]["recipes"] == {}
    manifest.task["spec"]["recipes"] = {"paper": {"rollout": 7}}  # of an older version
    manifest.save()
    plan = ["train-memory", "--run", "run", "--select", "uniform", "--preset", "paper", "--dry-run", "--json"]
    assert memup(*plan).json["config"]["rollout"] == 10
