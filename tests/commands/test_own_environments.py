"""Environments of the user's own: a file in the current folder, found, recorded, and blamed for what it does wrong."""

import json
import re

import gymnasium
import pytest

from memup_cli.tasks.spec import StepRule, TaskSpec
from tests.cli import assert_same_episodes, episodes, files_of

SAFE = {"PYTHONSAFEPATH": "1"}  # as the installed script: the current folder is not among those that Python searches
ENVIRONMENT = """
import os
import gymnasium
import numpy
from gymnasium import spaces

UNIT, PAYS = (2.0 ** int(os.environ.get(name, "0")) for name in ("UNIT", "PAYS"))

class Match(gymnasium.Env):
    observation_space = spaces.Dict(
        cue=spaces.Discrete(3),
        asked=spaces.Box(0, UNIT, (1,), numpy.float32),
        noise=spaces.Box(-UNIT, UNIT, (2 + int(os.environ.get("WIDER", "0")),), numpy.float32),
    )
    action_space = spaces.Discrete(2)

    def __init__(self):
        if os.environ.get("FAILS") == "start":
            raise ValueError("no licence")

    def _shown(self):
        return {
            "cue": self.cue if self.steps == 1 else 0,
            "asked": UNIT * numpy.full(1, self.steps == 6, numpy.float32),
            "noise": UNIT * self.np_random.uniform(-1, 1, self.observation_space["noise"].shape).astype(numpy.float32),
        }

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.cue = 0, int(self.np_random.integers(1, 3))
        if os.environ.get("FAILS") == "reset":
            raise KeyError("no map")
        return self._shown(), {}

    def step(self, action):
        if os.environ.get("FAILS") == "step" and self.steps == 4 and self.np_random.random() > 0.95:
            raise RuntimeError("simulator lost")
        if "CHATTY" in os.environ:
            print("hello from the environment")
        reward = float("nan") if os.environ.get("FAILS") == "nan" and self.steps == 3 else 0.0
        if self.steps == 6:
            reward = PAYS if action + 1 == self.cue else -PAYS
        self.steps += 1
        return self._shown(), reward, self.steps == 9, False, {}

gymnasium.register("Match-v0", Match)
"""
SMALL = ["--env-id", "Match-v0", "--episodes", 60, "--test-episodes", 2, "--workers", 2, "--run", "run"]
AGENT = ["--agent", "ppo-lstm", "--run", "run", "--steps", 400, "--envs", 2, "--iteration-steps", 100]


@pytest.fixture
def here(memup):
    (memup.folder / "match.py").write_text(ENVIRONMENT)
    return memup.folder


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(ENVIRONMENT.splitlines(), 1) if text in line)


@pytest.mark.parametrize("named", ["match", "match.py", "envs/match.py"])
def test_an_environment_next_to_the_user_goes_through_all_stages(memup, here, named):
    if "/" in named:
        (here / "envs").mkdir()
        (here / "match.py").rename(here / named)
    if named != "match.py":  # `python -m memup_cli`, as tests fork it, searches the current folder first
        (here / named).with_name("queue.py").write_text("raise OSError('not the queue that workers wait for')")
    how = {"new_interpreter": True, "env": SAFE} if named == "match" else {}
    memup("collect", "gym", "--import", named, *SMALL, **how)
    assert len(episodes(here / "run")) == 60
    assert json.loads((here / "run/manifest.json").read_text())["task"]["options"]["import"] == named
    memup("train-agent", *AGENT, **how)
    memup("evaluate", "agent", "--run", "run", "--episodes", 2, **how)
    (here / named.removesuffix(".py")).with_suffix(".py").unlink()
    gone = memup("evaluate", "agent", "--run", "run", "--episodes", 2, code=2)
    assert re.search(rf"--import {named}: there is no .*Run the command in the folder", gone.err)


def test_it_does_not_matter_in_what_an_environment_measures(memup, here):
    """Powers of two are exact, so all that is learned is the same to the last bits."""
    found = []
    for unit, pays in ((12, -9), (-10, 7)):
        how = {"env": {"UNIT": str(unit), "PAYS": str(pays)}}
        run = ["--run", f"run{len(found)}", "--json"]
        memup("collect", "gym", "--import", "match.py", *SMALL[:-2], *run, **how)
        scored = memup("score", *run, "--gamma", 0.5, "--detector", "probe", "--updates", 200).json
        memory = memup("train-memory", *run, "--updates", 80, "--evaluate-every", 40, "--select", "surprise").json
        command = ["train-agent", *run, "--steps", 800, "--envs", 4, "--iteration-steps", 200]
        for agent in ("ppo", "ppo-lstm", "qrdqn"):
            memup(*command, "--agent", agent, **how)
        played = [
            memup("evaluate", "agent", *run, "--agent", a, "--episodes", 20, **how).json for a in ("ppo", "qrdqn")
        ]
        returns = [each["return_mean"] / 2**pays for each in played]
        found.append([scored["separation"], scored["probe"]["explained"], memory["explained"], *returns])
    assert found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import gymnasium\nnumber = 1 / 0\n", r"ZeroDivisionError\('division by zero'\) in wrong.py, line 2"),
        ("import gymnasium\n\nx = = 1\n", r"SyntaxError\('invalid syntax'\) in wrong.py, line 3"),
        ("import json\njson.loads('{')\n", r"JSONDecodeError\(.*\) in wrong.py, line 2"),
        ("import nowhere\n", r"ModuleNotFoundError\(.*nowhere.*\) in wrong.py, line 1"),
    ],
)
def test_a_file_that_does_not_load_is_told_with_its_line(memup, source, told):
    (memup.folder / "wrong.py").write_text(source)
    for named in ("wrong.py", "wrong"):
        failed = memup("collect", "gym", "--import", named, *SMALL, code=2).err
        assert re.search(f"--import {named} failed: {told}", failed)
        assert failed.strip().count("\n") == 0


def test_what_is_neither_a_module_nor_a_file_is_told(memup):
    (memup.folder / "copy.py").write_text(ENVIRONMENT)
    for named, told in (
        ("envs/match", "Name one with dots"),
        ("envs.match", "no module 'envs', neither installed nor in"),
        ("copy.py", "another name"),
    ):
        assert told in memup("collect", "gym", "--import", named, *SMALL, code=2).err


@pytest.mark.parametrize("named", ["run/match.py", "run.match", "deep/../run/inner/match.py"])
def test_no_code_is_run_that_a_run_brings_along(memup, here, named):
    memup("collect", "gym", "--import", "match.py", *SMALL)
    (here / "run/inner").mkdir()
    (here / "deep").mkdir()
    for folder in ("run", "run/inner"):
        (here / folder / "match.py").write_text("open('was-run', 'w')\n" + ENVIRONMENT)
    (here / "run/__init__.py").write_text("open('was-run', 'w')\n")
    failed = memup("collect", "gym", "--import", named, *SMALL[:-1], "other", code=2)
    assert "no code from there" in failed.err
    assert not (here / "was-run").exists()


def test_a_crash_while_collecting_is_told_with_episode_seed_step_and_line(memup, here):
    failed = memup("collect", "gym", "--import", "match.py", *SMALL, "--quiet", env={"FAILS": "step"}, code=65).err
    place = rf"RuntimeError\('simulator lost'\) in match.py, line {line_of('simulator lost')}"
    told = re.search(
        r"episode (\d+) of the train split of the task gym: Match-v0 failed at step 4 of the episode of seed (\d+): "
        rf"{place}.*action_space.seed\((\d+)\), env.reset\(seed=(\d+)\)",
        failed,
    )
    assert told, failed
    assert failed.strip().count("\n") == 0
    assert told[2] == told[4]


def test_the_seed_that_is_told_makes_the_crash_again(memup, here, monkeypatch):
    failed = memup("collect", "gym", "--import", "match.py", *SMALL, env={"FAILS": "step"}, code=65).err
    actions, seed = map(int, re.search(r"action_space.seed\((\d+)\), env.reset\(seed=(\d+)\)", failed).groups())
    monkeypatch.setenv("FAILS", "step")
    monkeypatch.syspath_prepend(here)
    env = gymnasium.make("match:Match-v0", disable_env_checker=True)
    env.action_space.seed(actions)
    env.reset(seed=seed)
    for _ in range(4):
        env.step(env.action_space.sample())
    with pytest.raises(RuntimeError, match="simulator lost"):
        env.step(env.action_space.sample())


def test_an_environment_that_cannot_be_made_is_told_with_its_line(memup, here):
    failed = memup("collect", "gym", "--import", "match.py", *SMALL, env={"FAILS": "start"}, code=2).err
    assert f"ValueError('no licence') in match.py, line {line_of('no licence')}." in failed


@pytest.mark.parametrize(("way", "told"), [("reset", "failed in the reset of"), ("nan", "not finite at step 3 of")])
def test_a_crash_before_the_first_episode_is_told_too(memup, here, way, told):
    failed = memup("collect", "gym", "--import", "match.py", *SMALL, env={"FAILS": way}, code=65).err
    assert re.search(rf"an episode before the first.*Match-v0 .*{told} the episode of seed \d+", failed)


def test_a_crash_while_an_agent_plays_is_told_with_episode_seed_step_and_line(memup, here):
    memup("collect", "gym", "--import", "match.py", *SMALL)
    place = rf"RuntimeError\('simulator lost'\) in match.py, line {line_of('simulator lost')}"
    told = rf"the environment Match-v0 failed at step 4 of episode \d+ of seed \d+: {place}.*env.reset\(seed=\d+\)"
    assert re.search(told, memup("train-agent", *AGENT, env={"FAILS": "step"}, code=65).err)
    reset = memup("train-agent", *AGENT, "--restart", env={"FAILS": "reset"}, code=65).err
    assert re.search(r"in the reset of episode 0 of seed \d+: KeyError\('no map'\) in match.py, line", reset)
    memup("train-agent", *AGENT, "--restart")
    played = memup("evaluate", "agent", "--run", "run", "--episodes", 40, env={"FAILS": "step"}, code=65).err
    assert re.search(told, played)


@pytest.mark.parametrize(
    ("matters", "rule"),
    [
        ("reward=1", {"field": "reward", "value": 1.0, "column": None, "equal": True}),
        ("asked = 1", {"field": "observation", "value": 1.0, "column": 3, "equal": True}),
        ("cue[0]!=1", {"field": "observation", "value": 1.0, "column": 0, "equal": False}),
        ("noise[1]!=0", {"field": "observation", "value": 0.0, "column": 5, "equal": False}),
        ("observation[3]=1", {"field": "observation", "value": 1.0, "column": 3, "equal": True}),
        ("action=0", {"field": "action", "value": 0.0, "column": None, "equal": True}),
    ],
)
def test_the_steps_that_matter_can_be_named(memup, here, matters, rule):
    memup("collect", "gym", "--import", "match.py", *SMALL[:-4], "--run", "run", "--matters", matters)
    task = json.loads((here / "run/manifest.json").read_text())["task"]
    assert task["options"]["matters"] == matters
    assert task["spec"]["evaluate"] == rule
    assert TaskSpec.from_json(task["spec"]).evaluate == StepRule(**rule)


def test_the_memory_is_judged_by_the_steps_that_matter(memup, here):
    memup("collect", "gym", "--import", "match.py", *SMALL, "--matters", "asked=1")
    memup("score", "--run", "run", "--updates", 50)
    memup("train-memory", "--run", "run", "--updates", 2)
    assert memup("evaluate", "memory", "--run", "run", "--json").json["steps"] == 2  # one of each test episode


def test_without_the_option_nothing_of_it_is_recorded(memup, here):
    memup("collect", "gym", "--import", "match.py", *SMALL)
    task = json.loads((here / "run/manifest.json").read_text())["task"]
    assert "matters" not in task["options"]
    assert task["spec"]["evaluate"] is None
    told = memup("collect", "gym", "--import", "match.py", *SMALL, "--matters", "reward=1", code=2).err
    assert "matters was None and is now 'reward=1'" in told


@pytest.mark.parametrize(
    ("matters", "told"),
    [
        ("reward", "must be FIELD=NUMBER"),
        ("reward=high", "must be FIELD=NUMBER"),
        ("reward=nan", "must be FIELD=NUMBER"),
        (
            "price=1",
            "no number 'price'; it has observation[0] to observation[5], action, reward, cue[0] to cue[2], asked",
        ),
        ("cue=1", "asked, noise[0] to noise[1]. Of classes each has a column of 0 and 1: cue[1]=1 is class 1"),
        ("cue[3]=1", "no number 'cue[3]'; it has"),
        ("reward[0]=1", "no number 'reward[0]'; it has"),
    ],
)
def test_a_rule_that_names_nothing_is_refused(memup, here, matters, told):
    failed = memup("collect", "gym", "--import", "match.py", *SMALL, "--matters", matters, code=2).err
    assert failed.startswith(f"memup: --matters {matters}: ")
    assert told in failed


def test_a_part_that_is_kept_alone_has_its_name(memup, here):
    only = ["--import", "match.py", "--observe", "cue", *SMALL, "--matters", "cue!=0"]
    memup("collect", "gym", *only)
    spec = TaskSpec.from_json(json.loads((here / "run/manifest.json").read_text())["task"]["spec"])
    assert spec.evaluate == StepRule("observation", 0, None, equal=False)
    assert sum(spec.evaluate(arrays).sum() for arrays in episodes(here / "run")) == 60


def test_the_surprises_of_an_episode_are_shown_with_the_names_of_its_parts(memup, here):
    memup("collect", "gym", "--import", "match.py", *SMALL, "--gamma", 0)
    look = ["inspect", "--run", "run", "--split", "test", "--episode", 1]
    assert "surprises" not in memup(*look, "--json").json["episode"]
    memup("score", "--run", "run", "--updates", 500)
    found = memup(*look, "--json").json["episode"]["surprises"]
    assert found["steps"][0]["step"] == 6
    assert sorted(event["step"] for event in found["steps"]) == list(range(9))
    assert sum(event["share"] for event in found["steps"]) == pytest.approx(1)
    arrays = episodes(here / "run", "test")[1]
    top = found["steps"][0]
    assert (top["action"], top["reward"]) == (arrays["action"][6], arrays["reward"][6])
    assert list(top["observation"]) == ["cue[0]", "asked", "noise[0]", "noise[1]"]
    assert top["observation"]["noise[1]"] == arrays["observation"][6, 5]
    shown = memup(*look).out
    assert re.search(r"Most surprising steps \(quantile; share at temperature 0\.0\d+\)", shown)
    assert re.search(r"6 .*cue\[0\] 1, asked 1, noise\[0\]", shown)


def test_an_environment_that_changed_adds_nothing_and_leaves_the_run_as_it_was(memup, here):
    memup("collect", "gym", "--import", "match", *SMALL)
    before = files_of(here / "run")
    told = memup("collect", "--run", "run", "--episodes", 80, env={"WIDER": "1"}, code=2)
    assert "observation was float32 6 and is now float32 7. Nothing was changed." in told.err
    assert files_of(here / "run") == before
    memup("collect", "--run", "run", "--episodes", 80)
    assert len(episodes(here / "run")) == 80


def test_what_an_environment_prints_is_no_result(memup, here):
    how = {"env": {"CHATTY": "1"}}
    assert memup("collect", "gym", "--import", "match", *SMALL, "--json", **how).json["status"] == "complete"
    assert memup("train-agent", *AGENT, "--json", **how).json["agent"] == "ppo-lstm"
    found = memup("evaluate", "agent", "--run", "run", "--episodes", 2, "--json", **how)
    assert found.json["episodes"] == 2
    assert "hello from the environment" in found.err


def test_scores_that_a_training_reads_are_not_begun_again(memup, here):
    memup("collect", "gym", "--import", "match", *SMALL)
    memup("score", "--run", "run", "--updates", 50)
    train = ["train-memory", "--run", "run", "--updates", 40, "--checkpoint-every", 20]
    process = memup.held(*train, at="run/memory/checkpoint-000000020-*.pt")
    before = files_of(here / "run/scores")
    assert "is being written by" in memup("score", "--run", "run", "--updates", 50, "--restart", code=75).err
    assert files_of(here / "run/scores") == before
    assert process.resume().code == 0


def test_what_a_file_gave_stays_when_the_training_is_extended_without_it(memup, here):
    """Also what is otherwise decided by a race."""
    memup("collect", "gym", "--import", "match", *SMALL, "--matters", "reward!=0")
    memup("score", "--run", "run", "--updates", 50)
    (here / "plan.toml").write_text("[train-memory]\nlr = 0.002\ntargets = 2\n")
    memup("train-memory", "--run", "run", "--updates", 20, "--config", "plan.toml")
    config = json.loads((here / "run/manifest.json").read_text())["stages"]["train-memory"]["config"]
    assert config["lr"] == 0.002
    memup("train-memory", "--run", "run", "--updates", 40)
    extended = json.loads((here / "run/manifest.json").read_text())["stages"]["train-memory"]["config"]
    assert extended == {**config, "updates": 40}


OLD = """
import gymnasium
import numpy

class Old(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (1,), numpy.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.random, self.left = numpy.random.RandomState(seed), 3
        return self.random.rand(1), {}

    def step(self, action):
        self.left -= 1
        return self.random.rand(1), 0.0, self.left == 0, False, {}

gymnasium.register("Old-v0", Old)
"""


def test_an_environment_that_takes_small_seeds_only_gets_those(memup):
    """As the generators of old NumPy do, and with them the environments of dm_control."""
    (memup.folder / "old.py").write_text(OLD)
    for workers in (1, 2):
        where = ["--env-id", "Old-v0", "--episodes", 12, "--test-episodes", 2, "--run", f"run{workers}"]
        memup("collect", "gym", "--import", "old.py", *where, "--workers", workers)
    first, second = (episodes(memup.folder / f"run{workers}") for workers in (1, 2))
    assert_same_episodes(first, second)
    assert len({float(episode["observation"][0, 0]) for episode in first}) == 12
