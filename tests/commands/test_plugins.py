"""Plug-ins that are not what a task is: told before anything is collected, and no harm to the others."""

import pytest

from tests.plugins import install

SOURCE = """
from dataclasses import replace
from memup_cli.tasks.adding import Add, AddOptions
from memup_cli.tasks.spec import StepRule, TaskOptions
from stores.layout import Field
import numpy as np

WAYS = {
    "memory_input": lambda spec: dict(memory_input=("inputs",)),
    "action": lambda spec: dict(memory_input=("input", "previous_action")),
    "word": lambda spec: dict(memory_input="input"),
    "query": lambda spec: dict(query=("input", "act")),
    "target": lambda spec: dict(target="targets"),
    "rows": lambda spec: dict(target="input"),
    "kind": lambda spec: dict(target_kind="returns"),
    "uncounted": lambda spec: dict(target_kind="classes"),
    "gamma": lambda spec: dict(gamma=2.0),
    "classes": lambda spec: dict(classes={"akshun": 4}),
    "floats": lambda spec: dict(classes={"input": 4}),
    "rule": lambda spec: dict(evaluate=StepRule("obs", 1)),
    "column": lambda spec: dict(evaluate=StepRule("input", 1, column=70)),
    "columns": lambda spec: dict(evaluate=StepRule("input", 1)),
    "components": lambda spec: dict(components={"input": (2, 2)}),
    "few": lambda spec: dict(fields=(*spec.fields, Field("act", "uint8", (3,))), components={"act": (2, 2)}),
    "preset": lambda spec: dict(recipes={"quick": {}}),
    "option": lambda spec: dict(recipes={"hints": {"rolout": 10}}),
    "value": lambda spec: dict(recipes={"score": {"updates": "ten"}}),
    "agent": lambda spec: dict(recipes={"ppo": {"lr": -1}}),
    "dtype": lambda spec: dict(fields=(Field("input", "float33"),)),
    "fails": lambda spec: {}["whoops"],
    "numpy": lambda spec: dict(near=np.float32(1)),
}

class Ways(AddOptions):
    way: str = "target"

class Bad(Add):
    Options = Ways

    @property
    def spec(self):
        return replace(super().spec, **WAYS[self.options.way](super().spec))

class Escape(Add):
    run_name = "../escape"

class Bare:
    pass

class Lists(Add):
    class Options(TaskOptions):
        lengths: list[int] = [1]

class Mine(Add):
    summary = "A task from elsewhere."
    run_name = "mine"

class Pickled(Add):
    vectorised = False
    def __init__(self, options):
        super().__init__(options)
        self.make = lambda: 0

class Typical(Add):
    def typical_length(self, seed): return 1 // 0

class Loads(Add):
    def load(self, seed, episodes, note): return 1 // 0

class Pair(Add):
    default_episodes = 5

class Longest(Add):
    max_length = "long"

def function(options): ...
"""
TASKS = {"bad": "Bad", "escape": "Escape", "bare": "Bare", "lists": "Lists", "fun": "function", "add": "Mine"}
TASKS |= {kind.lower(): kind for kind in ("Pickled", "Typical", "Loads", "Pair", "Longest")}
FIELDS = "input, target"
SMALL = ["--length", 8, "--episodes", 4, "--test-episodes", 1]
WRONG = {
    "memory_input": f"`memory_input` names 'inputs'; it can have: {FIELDS}.",
    "action": f"`memory_input` names 'previous_action'; it can have: {FIELDS}.",
    "word": "`memory_input` is 'input'; it must be a tuple",
    "query": f"`query` names 'act'; it can have: {FIELDS}.",
    "target": f"`target` is 'targets'; the fields are: {FIELDS}.",
    "rows": "`target` is 'input', whose rows have shape (2,)",
    "kind": "`target_kind` is 'returns'; it can be: classes, scalar, return.",
    "uncounted": "`classes` does not say how many 'target' has",
    "gamma": "`gamma` is 2.0; it must be a number from 0 to 1",
    "classes": f"`classes` names 'akshun'; the fields are: {FIELDS}.",
    "floats": "`classes` names 'input', whose rows are float32",
    "rule": f"`evaluate` names the field 'obs'; the fields are: {FIELDS}.",
    "column": "`evaluate` has the column 70 of 'input'; it can be 0 to 1",
    "columns": "`evaluate` has no column, but the rows of 'input' have shape (2,)",
    "components": "`components` names 'input', whose rows are float32",
    "few": "`components` has (2, 2) for 'act'; it must be a tuple of 3 ints",
    "preset": "`recipes` has 'quick'; it can have: hints, paper, score, ppo",
    "option": "`recipes['hints']` has 'rolout'; it can have: targets, select",
    "value": "`recipes['score']` has a wrong updates",
    "agent": "`recipes['ppo']` has a wrong lr",
    "dtype": "field 'input' has dtype float33, which the store does not take",
    "fails": "fails at its `spec`: KeyError('whoops')",
    "numpy": "the manifest cannot hold it",
}


@pytest.fixture
def plugin(memup):
    return install(memup.folder / "site", SOURCE, TASKS)


@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_spec_is_told_before_the_first_episode(memup, plugin, way):
    refused = memup("collect", "bad", "--way", way, *SMALL, code=2, env=plugin).err
    assert WRONG[way] in refused
    assert "task bad" in refused
    assert not (memup.folder / "runs").exists()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pickled", "cannot be sent to worker processes"),
        ("typical", "fails at its `typical_length`: ZeroDivisionError"),
        ("loads", "fails at its `load`: ZeroDivisionError"),
        ("pair", "`default_episodes`"),
        ("longest", "the `max_length` of the task longest is 'long'; it must be an int"),
    ],
)
def test_so_are_other_members(memup, plugin, name, problem):
    assert problem in memup("collect", name, *SMALL, code=2, env=plugin).err
    assert not (memup.folder / "runs").exists()


def test_what_is_no_task_is_told_and_does_not_harm_the_others(memup, plugin):
    shown = memup("collect", "--help", env=plugin).out
    assert "(does not load)" in shown
    assert "Two marked numbers" in shown
    for name, problem in (("bare", "`Options`"), ("fun", "not a class"), ("lists", "list[int]")):
        refused = memup("collect", name, "--length", 8, code=2, env=plugin).err
        assert f"the task {name!r}" in refused
        assert problem in refused


def test_a_task_with_the_name_of_a_built_in_one_is_said_to_be_unused(memup, plugin):
    said = memup("collect", "add", *SMALL, env=plugin).err
    assert "add is the task of the package memup; that of plugin has the same name and is not used" in said
    assert (memup.folder / "runs/add-8").is_dir()


def test_a_run_name_that_leads_out_of_runs_is_refused(memup, plugin):
    assert "run_name of the task escape" in memup("collect", "escape", *SMALL, code=77, env=plugin).err
    assert not (memup.folder / "escape").exists()
    memup("collect", "escape", *SMALL, "--run", "here", env=plugin)
