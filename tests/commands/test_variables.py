"""MEMUP_* variables: options of any command, and nothing else."""

import re
from pathlib import Path

import pytest

from tests.plugins import install

ROOT = Path(__file__).parents[2]
SMALL = ["collect", "tmaze", "--length", 20, "--episodes", 4, "--test-episodes", 1, "--run", "run"]


@pytest.mark.parametrize("command", [["status"], ["score"], ["collect", "copy"], ["evaluate", "memory"], ["doctor"]])
def test_a_variable_that_nothing_reads_is_an_error_with_the_nearest_name(memup, command):
    failed = memup(*command, env={"MEMUP_SCORE_UDPATES": "3"}, code=2)
    assert "MEMUP_SCORE_UDPATES; the nearest that is read is MEMUP_SCORE_UPDATES" in failed.err
    assert failed.err.strip().count("\n") == 0
    assert list(memup.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("MEMUP_COLLECT_ENVID", "MEMUP_COLLECT_ENV_ID"),  # of a task
        ("MEMUP_COLLECT_DATADIR", "MEMUP_COLLECT_DATA_DIR"),
        ("MEMUP_COLLECT_EPISODE", "MEMUP_COLLECT_EPISODES"),
        ("MEMUP_SCORE_SEED", "MEMUP_SCORE_SCORE"),  # those of every stage have none
        ("MEMUP_MNIST_MIRROR", "MEMUP_MNIST_MIRRORS"),
    ],
)
def test_names_of_tasks_and_others_are_near_too(memup, name, near):
    assert f"{name}; the nearest that is read is {near}. " in memup("status", env={name: "x"}, code=2).err


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BATCH", "MEMUP_TRAIN_MEMORY_BATCH or MEMUP_TRAIN_BASELINE_BATCH"),
        ("STEPS", "MEMUP_TRAIN_AGENT_STEPS"),
        ("BINS", "MEMUP_EVALUATE_MEMORY_BINS"),
        ("TEST_EPISODES", "MEMUP_COLLECT_TEST_EPISODES"),
        ("DATA_DIR", "MEMUP_COLLECT_DATA_DIR"),  # of a task
    ],
)
def test_a_variable_without_its_stage_is_told_with_the_new_name(memup, old, new):
    err = memup("status", env={f"MEMUP_{old}": "3"}, code=2).err
    assert err.startswith(f"memup: the environment variable MEMUP_{old} is now {new}. ")


def test_variables_are_for_their_stage_and_flags_come_before_them(memup, maze):
    """Those of every stage have no stage in the name."""
    given = {"MEMUP_TRAIN_MEMORY_BATCH": "3", "MEMUP_TRAIN_BASELINE_BATCH": "5", "MEMUP_RUN": "run", "MEMUP_SEED": "4"}
    given |= {"MEMUP_SCORE_GAMMA": "0.5", "MEMUP_DRY_RUN": "1", "MEMUP_JSON": "1"}
    given |= {"MEMUP_TRAIN_BASELINE_UNTIL": "rmse < 0.1", "MEMUP_EVALUATE_MEMORY_BINS": "7"}
    memory = memup("train-memory", "--select", "uniform", "--restart", env=given).json["config"]
    assert (memory["batch"], memory["seed"], memory["until"]) == (3, 4, None)
    baseline = memup("train-baseline", env=given).json["config"]
    assert (baseline["batch"], baseline["seed"], baseline["until"]) == (5, 4, "rmse<0.1")
    assert memup("train-baseline", "--batch", 6, env=given).json["config"]["batch"] == 6
    assert memup("score", "--restart", env=given).json["config"]["gamma"] == 0.5


def test_options_of_other_stages_and_tasks_are_fine(memup):
    memup(*SMALL)
    others = {"SCORE_UPDATES": "3", "COLLECT_ENV_ID": "x", "COLLECT_MATTERS": "x", "COLLECT_TEST_SHARE": "x"}
    others |= {"TRAIN_AGENT_AGENT": "ppo", "TRAIN_BASELINE_MODEL": "lstm", "EVALUATE_MEMORY_BINS": "4"}
    others |= {"COLLECT_LENGTH": "9", "COLLECT_EPISODES": "5"}
    memup("status", "--run", "run", env={f"MEMUP_{name}": value for name, value in others.items()})
    memup("status", "--run", "run", env={"MEMUP_UDPATES": ""})  # as good as none


def test_options_of_plugins_are_fine(memup):
    source = "from memup_cli.tasks.adding import *\nclass Own(AddOptions):\n    lamps: int = 3\n"
    plugin = install(memup.folder / "site", source + "class Lamps(Add):\n    Options = Own\n", {"lamps": "Lamps"})
    memup(*SMALL, env={**plugin, "MEMUP_COLLECT_LAMPS": "3"})
    assert "MEMUP_COLLECT_LAMPS" in memup(*SMALL, env={**plugin, "MEMUP_COLLECT_LAMP": "3"}, code=2).err


def test_help_is_shown_all_the_same(memup):
    assert "--updates" in memup("score", "--help", env={"MEMUP_UDPATES": "3"}).out


def test_what_examples_and_ci_set_breaks_no_command(memup):
    memup(*SMALL)
    files = [ROOT / ".ci/run", ROOT / "Makefile", *(ROOT / "examples").rglob("*")]
    text = "".join(
        path.read_text() for path in files if path.suffix in (".sh", ".sbatch", ".py", "") and path.is_file()
    )
    names = set(re.findall(r"\bMEMUP_[A-Z_]+\b", text))
    assert {"MEMUP_SEED", "MEMUP_COLLECT_DATA_DIR", "MEMUP_TESTS_SKIP_NOTHING"} <= names
    memup("status", env=dict.fromkeys(names, "1") | {"MEMUP_RUN": "run"})
