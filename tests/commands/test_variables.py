"""MEMUP_* variables: options of any command, and nothing else."""

import re
from pathlib import Path

import pytest

from tests.plugins import install

ROOT = Path(__file__).parents[2]
SMALL = ["collect", "tmaze", "--length", 20, "--episodes", 4, "--test-episodes", 1, "--run", "run"]


@pytest.mark.parametrize("command", [["status"], ["score"], ["collect", "copy"], ["evaluate", "memory"], ["doctor"]])
def test_a_variable_that_nothing_reads_is_an_error_with_the_nearest_name(memup, command):
    failed = memup(*command, env={"MEMUP_UDPATES": "3"}, code=2)
    assert "MEMUP_UDPATES; the nearest that is read is MEMUP_UPDATES" in failed.err
    assert failed.err.strip().count("\n") == 0
    assert list(memup.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("MEMUP_ENVID", "MEMUP_ENV_ID"),  # of a task
        ("MEMUP_DATADIR", "MEMUP_DATA_DIR"),
        ("MEMUP_EPISODE", "MEMUP_EPISODES"),  # an option, but of a command that takes no variable for it
        ("MEMUP_MNIST_MIRROR", "MEMUP_MNIST_MIRRORS"),
    ],
)
def test_names_of_tasks_and_others_are_near_too(memup, name, near):
    assert f"{name}; the nearest that is read is {near}." in memup("status", env={name: "x"}, code=2).err


def test_options_of_other_stages_and_tasks_are_fine(memup):
    memup(*SMALL)
    others = {"MEMUP_UPDATES": "3", "MEMUP_ENV_ID": "x", "MEMUP_MATTERS": "x", "MEMUP_TEST_SHARE": "x"}
    others |= {"MEMUP_AGENT": "ppo", "MEMUP_MODEL": "lstm", "MEMUP_BINS": "4", "MEMUP_LENGTH": "9"}
    memup("status", "--run", "run", env=others)
    memup("status", "--run", "run", env={"MEMUP_UDPATES": ""})  # as good as none


def test_options_of_plugins_are_fine(memup):
    source = "from memup_cli.tasks.adding import *\nclass Own(AddOptions):\n    lamps: int = 3\n"
    plugin = install(memup.folder / "site", source + "class Lamps(Add):\n    Options = Own\n", {"lamps": "Lamps"})
    memup(*SMALL, env={**plugin, "MEMUP_LAMPS": "3"})
    assert "MEMUP_LAMPS" in memup(*SMALL, env={**plugin, "MEMUP_LAMP": "3"}, code=2).err


def test_help_is_shown_all_the_same(memup):
    assert "--updates" in memup("score", "--help", env={"MEMUP_UDPATES": "3"}).out


def test_what_examples_and_ci_set_breaks_no_command(memup):
    memup(*SMALL)
    files = [ROOT / ".ci/run", ROOT / "Makefile", *(ROOT / "examples").rglob("*")]
    text = "".join(
        path.read_text() for path in files if path.suffix in (".sh", ".sbatch", ".py", "") and path.is_file()
    )
    names = set(re.findall(r"\bMEMUP_[A-Z_]+\b", text))
    assert {"MEMUP_SEED", "MEMUP_DATA_DIR", "MEMUP_TESTS_SKIP_NOTHING"} <= names
    memup("status", env=dict.fromkeys(names, "1") | {"MEMUP_RUN": "run"})


@pytest.mark.parametrize("stage", ["score", "train-memory", "train-agent"])
def test_the_help_of_a_stage_fits_and_all_of_it_can_be_had(memup, stage):
    def options(text: str) -> set[str]:
        return set(re.findall(r"^│\s+(--[a-z-]+)", text, re.MULTILINE)) - {"--help", "--help-all"}

    shown = options(memup(stage, "--help").out)
    assert len(shown) <= 20
    if stage != "score":
        every = options(memup(stage, "--help-all").out)
        assert len(every) > len(shown)
        assert shown < every
