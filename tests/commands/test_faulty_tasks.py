"""What a task does wrong while it makes episodes is told as the task's, in one paragraph."""

import pytest

from tests.plugins import install

SOURCE = """
import sys
import numpy as np
from memup_cli.tasks.adding import Add, AddOptions
from stores.groups import Episode

class Ways(AddOptions):
    way: str = "fails"

class Bad(Add):
    Options = Ways
    checked = False

    def episode(self, seed):
        arrays = super().episode(seed).arrays
        way = self.options.way
        if way == "fails":
            raise ZeroDivisionError("my environment broke")
        if way == "stops":
            raise StopIteration
        if way == "opens":
            open("nowhere/data.bin")
        if way == "exits":
            sys.exit(5)
        if way == "dict":
            return arrays
        if way == "nothing":
            return None
        if way == "list":
            arrays["input"] = arrays["input"].tolist()
        if way == "shape":
            arrays["input"] = arrays["input"][:, :1]
        if way == "lengths":
            arrays["target"] = arrays["target"][:-3]
        if way == "missing":
            del arrays["target"]
        if way == "empty":
            arrays = {name: values[:0] for name, values in arrays.items()}
        if way == "words":
            arrays["target"] = arrays["target"].astype(str)
        return Episode(list(arrays) if way == "names" else arrays, "zero" if way == "seed" else seed)

class Vouched(Bad):
    checked = True

class Stepped(Bad):
    vectorised = False

class Blocks(Stepped):
    def blocks(self, seed, size):
        yield self.episode(seed).arrays
        return True
"""
TASKS = {"bad": "Bad", "vouched": "Vouched", "stepped": "Stepped", "blocks": "Blocks"}
SMALL = ["--length", 8, "--episodes", 4, "--test-episodes", 1, "--workers", 1, "--run", "run"]
FIRST = "episode 0 of the train split of the task {} "
WAYS = {
    "fails": "failed: ZeroDivisionError('my environment broke') in site/plugin.py, line 18. Its seed is ",
    "stops": "failed: ",
    "opens": "failed: FileNotFoundError(",
    "exits": "failed: SystemExit(5)",
    "list": "has list as 'input', not a numpy array",
    "shape": "has 'input' of shape (8, 1), not (steps, 2)",
    "lengths": "has fields of different lengths: input 8, target 5",
    "missing": "lacks the field 'target'; it has 'input'",
    "empty": "has no steps",
    "words": "has 'target' as <U",
    "names": "has list as its arrays, not a dict",
}


@pytest.fixture
def plugin(memup):
    return install(memup.folder / "site", SOURCE, TASKS)


def said(outcome) -> str:
    """Its one paragraph, on one line."""
    lines = outcome.err.strip().splitlines()
    assert "bug" not in outcome.err
    return " ".join(lines)


@pytest.mark.parametrize("way", WAYS)
def test_an_episode_that_goes_wrong_is_named(memup, plugin, way):
    task = "vouched" if way in ("fails", "shape", "names") else "bad"
    failed = memup("collect", task, "--way", way, *SMALL, code=65, env=plugin)
    assert said(failed).startswith("memup: " + FIRST.format(task) + WAYS[way])
    if WAYS[way].startswith("failed"):
        assert said(failed).endswith("Mend the task; committed episodes are kept.")


@pytest.mark.parametrize(
    ("way", "given"), [("dict", "no Episode but {'input'"), ("nothing", "None"), ("seed", "'zero'")]
)
def test_what_is_no_episode_is_named(memup, plugin, way, given):
    failed = said(memup("collect", "vouched", "--way", way, *SMALL, code=65, env=plugin))
    assert "episode 0 of the train split of the task vouched: the task gave" in failed
    assert given in failed


@pytest.mark.parametrize("task", ["stepped", "blocks"])
def test_so_it_is_in_worker_processes(memup, plugin, task):
    for way in ("fails", "exits", "lengths"):
        failed = memup("collect", task, "--way", way, *SMALL, "--restart", code=65, env=plugin)
        assert said(failed).startswith("memup: " + FIRST.format(task) + WAYS[way])


@pytest.mark.parametrize("task", ["bad", "stepped"])
def test_the_traceback_is_shown_on_request(memup, plugin, task):
    failed = memup.start("collect", task, "--way", "fails", *SMALL, "-v", env=plugin).wait()
    shown = failed.err
    assert failed.code == 65
    assert "Traceback" in shown
    assert "in episode" in shown
    assert "Please report it" not in shown
