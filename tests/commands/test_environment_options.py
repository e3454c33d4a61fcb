"""How an environment is made and who plays in it: arguments, options of resets, wrappers, a policy of the user's."""

import json
import re

import numpy as np
import pytest
from gymnasium import spaces

from memup_cli.errors import FailedEpisode
from memup_cli.tasks.own.given_policy import EpisodePolicy
from memup_cli.tasks.own.making import values_of
from stores.layout import SEED
from stores.reader import Trajectories
from tests.cli import assert_same_episodes, episodes
from tests.plugins import install

SOURCE = """
import json
import os
import gymnasium
import numpy
from gymnasium import spaces

def note(**what):
    with open("notes.txt", "a") as notes:
        notes.write(json.dumps(what) + chr(10))

class Lever(gymnasium.Env):
    observation_space = spaces.Dict(clock=spaces.Box(0, 1000, (1,), numpy.float32), cue=spaces.Discrete(3))
    action_space = spaces.Discrete(3, start=5)

    def __init__(self, length=6, bonus=1.0, marks=(), name="plain"):
        if length < 2:
            raise ValueError("the length is too short")
        self.length, self.bonus = length, bonus
        note(length=length, bonus=bonus, marks=marks, name=name)

    def _shown(self):
        return {"clock": numpy.full(1, self.first + self.steps, numpy.float32), "cue": self.cue}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        note(options=options)
        options = options or {}
        self.first, self.steps, self.cue = options.pop("first", 0), 0, int(self.np_random.integers(3))
        if options:
            raise KeyError(f"unknown options {options}")
        return self._shown(), {}

    def step(self, action):
        self.steps += 1
        return self._shown(), self.bonus * (action == 5 + self.cue), self.steps == self.length, False, {}

gymnasium.register("Lever-v0", Lever)

class Changed(gymnasium.ObservationWrapper):
    def observation(self, observation):
        return {**observation, "clock": self.changed(observation["clock"])}

class Doubled(Changed):
    def changed(self, clock):
        return clock * 2

class Late(Changed):
    def changed(self, clock):
        return clock + 1

class Needs(gymnasium.Wrapper):
    def __init__(self, env, scale):
        super().__init__(env)

class Breaks(gymnasium.Wrapper):
    def __init__(self, env):
        raise OSError("no display")

def nothing(env):
    return None

number = 3

def right(observation, rng):
    return 5 + observation["cue"]

def wavering(observation, rng):
    return 5 + (observation["cue"] if rng.random() < 0.5 else int(rng.integers(3)))

def giddy(observation, rng):
    if observation["clock"][0] == 2:
        raise RuntimeError("lost its head")
    return 5

def outside(observation, rng):
    return 4 if observation["clock"][0] == 3 else 6

def short(observation):
    return 5
"""
GYM = ["collect", "gym", "--import", "lever.py", "--env-id", "Lever-v0"]
FEW = ["--episodes", 30, "--test-episodes", 2, "--workers", 1, "--run", "run"]
AGENT = ["--agent", "ppo-lstm", "--run", "run", "--steps", 60, "--envs", 2, "--iteration-steps", 30]
MADE = ["--env-arg", "name=dark", "--env-arg", "length=4", "--env-arg", "bonus=2.5", "--env-arg", "marks=[1, 2]"]
PLAYED = ["--reset-option", "first=10", "--wrapper", "lever.py:Doubled", "--wrapper", "lever:Late"]
PLAYED += ["--policy", "lever.py:right"]


@pytest.fixture
def here(memup):
    (memup.folder / "lever.py").write_text(SOURCE)
    return memup.folder


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


def notes(folder) -> list[dict]:
    """What environments wrote since the last look."""
    found = [json.loads(line) for line in (folder / "notes.txt").read_text().splitlines()]
    (folder / "notes.txt").unlink()
    return found


def recorded(folder) -> dict:
    return json.loads((folder / "run/manifest.json").read_text())["task"]["options"]


def test_what_is_given_holds_while_collecting_and_while_agents_play(memup, here):
    memup(*GYM, *MADE, *PLAYED, *FEW)
    assert recorded(here) == {
        "env_id": "Lever-v0",
        "import": "lever.py",
        "env_arg": ["bonus=2.5", "length=4", "marks=[1, 2]", "name=dark"],
        "reset_option": ["first=10"],
        "wrapper": ["lever.py:Doubled", "lever:Late"],
        "policy": "lever.py:right",
        "max_steps": None,
        "observe": None,
        "gamma": None,
    }
    for arrays in episodes(here / "run"):
        np.testing.assert_array_equal(arrays["observation"][:, 0], [21, 23, 25, 27])  # doubled, then one more
        np.testing.assert_array_equal(arrays["reward"], [2.5] * 4)
        np.testing.assert_array_equal(arrays["action"], arrays["observation"][:, 1:].argmax(1))
    for command in ([], ["train-agent", *AGENT], ["evaluate", "agent", "--run", "run", "--episodes", 4]):
        played = memup(*command, "--json").json if command else {}
        seen = notes(here)
        made = {"length": 4, "bonus": 2.5, "marks": [1, 2], "name": "dark"}
        assert {json.dumps(note) for note in seen} == {json.dumps(made), json.dumps({"options": {"first": 10}})}
    assert played["length_mean"] == 4
    assert memup(*GYM, *MADE[2:], *MADE[:2], *PLAYED, *FEW, "--json").json["outcome"] == "up to date"
    assert memup("collect", "--run", "run", "--json").json["outcome"] == "up to date"
    memup("collect", "--run", "run", "--episodes", 40)
    assert len(episodes(here / "run")) == 40
    told = memup(*GYM, *MADE[2:], *PLAYED, *FEW, code=2).err
    assert "env_arg was ['bonus=2.5', 'length=4', 'marks=[1, 2]', 'name=dark'] and is now ['bonus=2.5', " in told
    (here / "lever.py").rename(here / "other.py")
    gone = memup("evaluate", "agent", "--run", "run", "--episodes", 2, "--restart", code=2).err
    assert "lever.py: there is no such file" in gone


def test_the_status_shows_the_options_as_they_were_given(memup, here):
    memup(*GYM, "--env-arg", "marks=[bold]", *FEW)
    assert "marks=[bold]" in memup("status", "--run", "run").out.replace("\n", "")
    assert notes(here)[0]["marks"] == "[bold]"


def test_what_is_not_given_is_not_recorded(memup, here):
    memup(*GYM, "--policy", "random", *FEW)
    assert recorded(here).keys() == {"env_id", "import", "max_steps", "observe", "gamma"}
    assert all(note.get("options") is None for note in notes(here))
    told = memup(*GYM, *FEW, "--policy", "lever.py:right", code=2).err
    assert "policy was None and is now 'lever.py:right'" in told


def test_a_policy_plays_the_same_episodes_whoever_works(memup, here):
    play = [*GYM, "--policy", "lever.py:wavering", "--episodes", 30, "--test-episodes", 2]
    memup(*play, "--workers", 1, "--run", "one")
    memup(*play, "--workers", 2, "--commit-every", 0, "--run", "two")
    first = episodes(here / "one")
    assert_same_episodes(first, episodes(here / "two"))
    for part in (0, 1):
        memup(*play, "--workers", 1, "--shard", f"{part}/2", "--run", "parts")
    assert_same_episodes(first, episodes(here / "parts", shards=2))
    assert len({arrays["action"].tobytes() for arrays in first}) > 10
    memup(*play, "--workers", 1, "--seed", 1, "--run", "other")
    assert any((a["action"] != b["action"]).any() for a, b in zip(first, episodes(here / "other"), strict=True))


@pytest.mark.parametrize(
    ("policy", "step", "told"),
    [
        ("giddy", 2, rf"failed {{}}: RuntimeError\('lost its head'\) in lever.py, line {line_of('lost its head')}\."),
        ("outside", 3, r"gave 4 {}, which is not in the space Discrete\(3, start=5\)\."),
        ("short", 0, r"failed {}: TypeError\('short\(\) takes 1 positional argument but 2 were given'\)\."),
    ],
)
def test_what_a_policy_does_wrong_is_told_with_seed_and_step(memup, here, policy, step, told):
    failed = memup(*GYM, "--policy", f"lever.py:{policy}", *FEW, code=65).err
    assert failed.strip().count("\n") == 0
    told = told.format(rf"at step {step} of the episode of seed (\d+)")
    found = re.search(rf"--policy lever.py:{policy} {told} To see it again: rng = numpy.*Mend the policy", failed)
    assert found, failed
    assert f"rng = numpy.random.default_rng(({found[1]}, 26)), env.reset(seed={found[1]})" in failed


def test_a_fault_of_a_policy_in_a_run_has_its_episode(memup, here):
    rare = "def rare(o, rng):\n    return 9 if rng.random() < 0.01 else 5\n"
    (here / "lever.py").write_text(SOURCE + rare)
    failed = memup(*GYM, "--policy", "lever.py:rare", "--episodes", 400, *FEW[2:], code=65).err
    place = r"episode \d+ of the train split of the task gym: --policy lever.py:rare gave 9 at step \d of the episode"
    assert re.search(place, failed), failed


def test_a_fault_of_the_environment_is_told_with_the_policy_and_the_options_of_its_reset(memup, here):
    failed = memup(*GYM, "--policy", "lever.py:right", "--reset-option", "speed=2", *FEW, code=65).err
    assert re.search(r"in the reset of the episode of seed \d+: KeyError\(.*in lever.py, line \d+", failed), failed
    assert re.search(r"env.reset\(seed=\d+, options={'speed': 2}\), then env.step\(right\(o, rng\)\)", failed), failed
    failed = memup(*GYM, "--policy", "lever.py:giddy", "--reset-option", "first=2", *FEW, code=65).err
    assert re.search(r"failed at step 0 .* options={'first': 2}\), then env.step\(giddy\(o, rng\)\)", failed), failed


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--env-arg", "size=3", "--env-arg", "length=4"], r"argument 'size'.\). Check --env-arg size=3\.$"),
        (["--env-arg", "length=1", "--env-arg", "bonus=1"], r"short'\) in lever.py.* Check --env-arg length=1\.$"),
        (["--env-arg", "length"], "--env-arg length: must be NAME=VALUE"),
        (["--env-arg", "=3"], "--env-arg =3: must be NAME=VALUE"),
        (["--env-arg", "a-b=3"], "--env-arg a-b=3: 'a-b' cannot be the name"),
        (["--env-arg", "max_episode_steps=3"], "use --max-steps"),
        (["--env-arg", "bonus=3", "--env-arg", "bonus=4"], "--env-arg bonus=3 bonus=4: bonus is given twice"),
        (["--reset-option", "first"], "--reset-option first: must be NAME=VALUE"),
        (["--wrapper", "lever.py"], "--wrapper lever.py: must be MODULE:CLASS"),
        (["--wrapper", "lever.py:Absent"], "lever.py has no class or function 'Absent'"),
        (["--wrapper", "lever.py:number"], "has 'number', but it cannot be called"),
        (["--wrapper", "nowhere:Absent"], "--wrapper nowhere:Absent: there is no module 'nowhere'"),
        (["--wrapper", "absent.py:Doubled"], "--wrapper absent.py:Doubled: there is no such file"),
        (["--wrapper", "lever.py:Needs"], r"lever.py:Needs failed: TypeError\(.*'scale'.*environment alone"),
        (["--wrapper", "lever.py:Breaks"], r"failed: OSError\('no display'\) in lever.py, line \d+"),
        (["--wrapper", "lever.py:nothing"], "gave None, which is no Gymnasium environment"),
        (["--policy", "agent"], "--policy agent: must be random, or MODULE:FUNCTION"),
        (["--policy", "lever.py:absent"], "--policy lever.py:absent: lever.py has no class or function 'absent'"),
        (["--policy", "lever.py:number"], "has 'number', but it cannot be called"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_paragraph(memup, here, given, told):
    failed = memup(*GYM, *given, *FEW, code=2).err.strip()
    assert re.search(told, failed), failed
    assert failed.count("\n") == 0
    assert not (here / "run").exists()


def test_a_wrapper_of_an_installed_package_changes_what_is_stored(memup, here):
    memup(*GYM, "--wrapper", "gymnasium.wrappers:FlattenObservation", *FEW)
    assert recorded(here)["wrapper"] == ["gymnasium.wrappers:FlattenObservation"]
    assert episodes(here / "run")[0]["observation"].shape == (6, 4)
    memup("train-agent", *AGENT)


@pytest.mark.parametrize("given", [["--wrapper", "run/lever.py:Doubled"], ["--policy", "run.lever:right"]])
def test_no_wrapper_and_no_policy_is_run_that_a_run_brings_along(memup, here, given):
    memup(*GYM, *FEW)
    for name in ("lever.py", "__init__.py"):
        (here / "run" / name).write_text("open('was-run', 'w')\n" + SOURCE)
    assert "no code from there" in memup(*GYM, *given, *FEW[:-1], "other", code=2).err
    assert not (here / "was-run").exists()


def test_options_given_several_times_are_lists_in_a_file_and_lines_in_a_variable(memup, here):
    (here / "plan.toml").write_text('[collect]\nenv-arg = ["name=of a file", "length=4"]\nwrapper = ["lever:Late"]\n')
    variable = {"MEMUP_COLLECT_ENV_ARG": "name=of a variable\n\nlength=3\n"}
    found = []
    for flags, how in (([], {}), ([], {"env": variable}), (["--env-arg", "name=of a flag"], {"env": variable})):
        dry = memup(*GYM, *flags, *FEW, "--config", "plan.toml", "--dry-run", "--json", **how).json["task"]["options"]
        assert dry["wrapper"] == ["lever:Late"]
        found.append(dry["env_arg"])
    assert found == [["length=4", "name=of a file"], ["length=3", "name=of a variable"], ["name=of a flag"]]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('env-arg = "length=4"', '--config plan.toml: env-arg takes a list, such as ["length=4"]'),
        ("env-arg = [4]", "--env-arg 4: input should be a valid string"),
        ('env-arg = ["length"]', "--env-arg length: must be NAME=VALUE"),
        ("env-arg = true", "env-arg takes no true or false"),
    ],
)
def test_a_wrong_list_in_a_file_is_told(memup, here, line, told):
    (here / "plan.toml").write_text(f"[collect]\n{line}\n")
    assert told in memup(*GYM, *FEW, "--config", "plan.toml", code=2).err


def test_a_plugin_has_options_that_are_given_several_times(memup):
    source = "from memup_cli.tasks.adding import *\nclass Own(AddOptions):\n    lamps: tuple[int, ...] = (3, 4)\n"
    plugin = install(memup.folder / "site", source + "class Lamps(Add):\n    Options = Own\n", {"lamps": "Lamps"})

    def lamps(*flags, **env):
        dry = memup("collect", "lamps", *flags, "--dry-run", "--json", env={**plugin, **env})
        return dry.json["task"]["options"]["lamps"]

    assert lamps() == [3, 4]
    assert lamps("--lamps", 1, "--lamps", 2) == [1, 2]
    assert lamps(MEMUP_COLLECT_LAMPS="5\n6") == [5, 6]
    shown = " ".join(memup("collect", "lamps", "--help", env=plugin).out.split())
    assert "may be given several times; default: 3, 4" in shown
    wrong = memup("collect", "lamps", "--lamps", 1, "--lamps", "b", env=plugin, code=2).err
    assert "--lamps b: input should be a valid integer" in wrong


def test_an_exported_data_set_names_an_environment_only_with_its_arguments(memup):
    cart = ["collect", "gym", "--env-id", "CartPole-v1", "--env-arg", "sutton_barto_reward=true"]
    cart += ["--episodes", 30, "--test-episodes", 2, "--workers", 1]
    named = []
    for number, more in enumerate([[], ["--wrapper", "gymnasium.wrappers:FlattenObservation"]]):
        memup(*cart, *more, "--run", f"run{number}")
        memup("export", "minari", "--run", f"run{number}", "--id", "cart/a-v0", "--to", f"data{number}")
        metadata = json.loads((memup.folder / f"data{number}/data/metadata.json").read_text())
        named.append(json.loads(metadata.get("env_spec") or "null"))
    assert named[0]["kwargs"] == {"sutton_barto_reward": True}
    assert named[1] is None


def test_values_are_json_where_they_can_be_read_as_such():
    pairs = ("a=1", "b=true", "c=[1, 2]", 'd="5"', "e=word", "f=x=y", "g=", "h=NaN", "i=null", "j=" + "[" * 100_000)
    assert values_of(pairs) == {
        "a": 1, "b": True, "c": [1, 2], "d": "5", "e": "word", "f": "x=y", "g": "", "h": "NaN", "i": None,
        "j": "[" * 100_000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("space", "action", "taken"),
    [
        (spaces.Box(-1, 1, (2,), np.float32), [0.25, 1], np.array([0.25, 1], np.float32)),
        (spaces.Box(-1, 1, (2,), np.float32), np.array([0.1, 0.2]), np.array([0.1, 0.2], np.float32)),
        (spaces.Box(0, 9, (1,), np.uint8), [7], np.array([7], np.uint8)),
        (spaces.Box(0, 9, (1,), np.uint8), [7.5], None),
        (spaces.Box(0, 9, (1,), np.uint8), [263], None),
        (spaces.Box(-1, 1, (2,), np.float32), [0.25, 1.5], None),
        (spaces.Box(-1, 1, (2,), np.float32), [0.25, np.nan], None),
        (spaces.Box(-1, 1, (2,), np.float32), 0.5, None),
        (spaces.Discrete(3), np.int32(2), 2),
        (spaces.MultiDiscrete([3, 2], start=[1, 0]), [3, 1], np.array([3, 1])),
        (spaces.MultiDiscrete([3, 2]), np.array([2.0, 1.0]), np.array([2, 1])),
        (spaces.MultiDiscrete([3, 2]), [0.5, 1], None),
        (spaces.MultiDiscrete([3, 2]), [3, 1], None),
        (spaces.MultiDiscrete([3, 2]), 1, None),
        (spaces.MultiBinary(2), [True, False], np.array([1, 0], np.int8)),
        (spaces.MultiBinary(2), [2, 0], None),
        (spaces.Discrete(3), 2.0, None),
        (spaces.Box(-1, 1, (2,), np.float32), None, None),
        (spaces.Discrete(3), None, None),
    ],
)  # fmt: skip
def test_an_action_must_be_in_the_space_and_gets_its_type(space, action, taken):
    player = EpisodePolicy("a:b", lambda observation, rng: action, space, 7)
    if taken is None:
        with pytest.raises(FailedEpisode, match="step 3 of the episode of seed 7, which is not in the space"):
            player.act(None, 3)
    else:
        found = player.act(None, 3)
        np.testing.assert_array_equal(found, taken)
        assert np.asarray(found).dtype == np.asarray(taken).dtype or isinstance(space, spaces.Discrete)


OLD = """
import gymnasium
import numpy

class Old(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        numpy.random.seed(seed)
        self.steps, self.number = 0, int(numpy.random.randint(1000))
        return self.number, {}

    def step(self, action):
        self.steps += 1
        if self.number == 999 and action:
            raise RuntimeError("stuck")
        return self.number, 0.0, self.steps == 3, False, {}

gymnasium.register("Old-v0", Old)
"""


def test_an_environment_that_takes_short_seeds_gets_the_last_bits_of_them(memup):
    (memup.folder / "old.py").write_text(OLD)
    given = ["collect", "gym", "--env-id", "Old-v0", "--import", "old.py", "--workers", 1]
    memup(*given, "--episodes", 6, "--test-episodes", 1, "--run", "run")
    train = Trajectories(memup.folder / "run/trajectories/train", 1)
    for row, arrays in zip(train.rows, train, strict=True):
        first = np.random.RandomState(int(row[SEED]) % 2**32).randint(1000)
        assert arrays["observation"].tolist() == [first] * 3
    failed = memup(*given, "--episodes", 4000, "--test-episodes", 1, "--run", "more", code=65).err
    seed = int(re.search(r"env\.reset\(seed=(\d+)\)", failed)[1])
    assert np.random.RandomState(seed).randint(1000) == 999
