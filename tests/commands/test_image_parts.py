"""Observations of several parts, of which some are images: a field for each image, beside the vector of the others."""

import numpy as np
import pytest

import memup_cli
from memup_cli.errors import UsageProblem
from memup_cli.records.opening import open_run, spec_of
from memup_cli.tasks.spec import PREVIOUS_ACTION
from tests.cli import episodes

SOURCE = """
import gymnasium
import numpy
from gymnasium import spaces

class Looks(gymnasium.Env):
    # A bright half of the picture says which action pays, if the flag is up; else the number says it.
    def __init__(self, cameras=1, flag=True, side=24):
        self.cameras, self.flag = cameras, flag
        picture = spaces.Box(0, 255, (side, side, 3), numpy.uint8)
        parts = {"camera": picture, "eyes": spaces.Dict({"left-one": picture})} if cameras == 2 else {"camera": picture}
        own = {"flag": spaces.Discrete(2, start=1), "which": spaces.Box(0, 1, (1,), numpy.float32)} if flag else {}
        self.observation_space = spaces.Dict({**parts, **own})
        self.action_space = spaces.Discrete(2)
        self.side = side

    def _shown(self):
        self.up, self.bright, self.which = (int(n) for n in self.np_random.integers(2, size=3))
        picture = numpy.full((self.side, self.side, 3), self.np_random.integers(50), numpy.uint8)
        half = self.side // 2
        picture[:, half * self.bright : half * (1 + self.bright)] = 255
        found = {"camera": picture}
        if self.cameras == 2:
            found["eyes"] = {"left-one": 255 - picture}
        if self.flag:
            found |= {"flag": numpy.int64(1 + self.up), "which": numpy.full(1, self.which, numpy.float32)}
        return found

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._shown(), {}

    def step(self, action):
        right = self.bright if self.up or not self.flag else self.which
        self.steps += 1
        return self._shown(), float(action == right), self.steps == 6, False, {}

gymnasium.register("Looks-v0", Looks)
"""
COLLECT = ["collect", "gym", "--env-id", "Looks-v0", "--import", "looks.py", "--workers", 2, "--episodes", 40]
COLLECT += ["--test-episodes", 4, "--run", "run"]
MEMORY = ["train-memory", "--run", "run", "--updates", 3, "--batch", 4, "--select", "uniform", "--rollout", 3]
AGENT = ["train-agent", "--run", "run", "--envs", 8, "--iteration-steps", 256, "--minibatch", 64]


@pytest.fixture
def here(memup):
    (memup.folder / "looks.py").write_text(SOURCE)
    return memup.folder


def shapes(run) -> dict[str, tuple]:
    return {name: (values.dtype.name, values.shape[1:]) for name, values in episodes(run)[0].items()}


def test_an_image_goes_beside_the_numbers_through_all_stages(memup, here):
    told = memup(*COLLECT, "--previous-reward").err
    assert "camera, as images in the field camera" in told
    assert shapes(here / "run") == {
        "observation": ("float32", (3,)),
        "camera": ("uint8", (24, 24, 3)),
        "action": ("uint8", ()),
        "reward": ("float32", ()),
    }
    spec = spec_of(open_run(here / "run"))
    assert (spec.observed, spec.query) == (("observation", "camera"), ("observation", "camera", "action"))
    for episode in episodes(here / "run"):
        bright = episode["camera"][:, 0, -1, 0] == 255
        up = episode["observation"][:, 1] == 1
        right = np.where(up, bright, episode["observation"][:, 2] == 1)
        np.testing.assert_array_equal(episode["reward"], episode["action"] == right)
    memup("score", "--run", "run", "--updates", 20)
    memup(*MEMORY)
    assert memup_cli.load_agent  # below
    memup(*AGENT, "--agent", "ppo", "--steps", 10_000, "--lr", 3e-3, "--imitate", 2)
    found = memup("evaluate", "agent", "--run", "run", "--episodes", 40, "--json").json
    assert found["greedy"]["return_mean"] > 5.4  # of 6; 4.5 without the picture or without the numbers, 3 without both
    acting = memup_cli.load_agent(here / "run")
    shown = {"observation": np.array([0, 1, 0], np.float32), "camera": np.zeros((24, 24, 3), np.uint8)}
    chosen = []
    for half in (slice(None, 12), slice(12, None)):
        acting.begin()
        picture = shown["camera"].copy()
        picture[:, half] = 255
        chosen.append(int(acting.act({**shown, "camera": picture}, greedy=True)))
    assert chosen == [0, 1]
    with pytest.raises(UsageProblem, match="'camera'"):
        acting.act(shown["observation"])
    with pytest.raises(UsageProblem, match="reads camera"):
        memup_cli.load_memory(here / "run")


def test_every_agent_sees_all_parts(memup, here):
    memup(*COLLECT, "--env-arg", "cameras=2")
    names = ("observation", "camera", "eyes_left_one")
    assert spec_of(open_run(here / "run")).memory_input == (*names, PREVIOUS_ACTION)
    for episode in episodes(here / "run"):
        np.testing.assert_array_equal(episode["camera"], 255 - episode["eyes_left_one"])
    memup(*MEMORY)
    small = ["--steps", 200, "--envs", 2, "--iteration-steps", 60]
    memup(*AGENT[:3], *small, "--agent", "qrdqn", "--replay", 1000)
    memup(*AGENT[:3], *small, "--agent", "ppo-lstm", "--core-hidden", 8)
    memup(*AGENT[:3], *small, "--agent", "ppo", "--outlook", "--alternate", 1)
    for agent in ("qrdqn", "ppo-lstm", "ppo"):
        memup("evaluate", "agent", "--run", "run", "--agent", agent, "--episodes", 2)
    refused = memup(*AGENT[:3], *small, "--agent", "ppo", "--eyes", "memory", "--restart", code=2).err
    assert "use --eyes own" in refused


def test_images_alone_need_no_vector(memup, here):
    memup(*COLLECT, "--env-arg", "cameras=2", "--env-arg", "flag=false")
    assert set(shapes(here / "run")) == {"camera", "eyes_left_one", "action", "reward"}
    memup(*MEMORY)
    memup(*AGENT[:3], "--steps", 60, "--envs", 2, "--iteration-steps", 30, "--agent", "ppo")
    memup("inspect", "--run", "run")


def test_small_images_and_single_parts_are_stored_as_before(memup, here):
    memup(*COLLECT, "--env-arg", "side=7")
    assert shapes(here / "run")["observation"] == ("float32", (7 * 7 * 3 + 3,))
    memup(*COLLECT[:-1], "one", "--observe", "camera")
    assert shapes(here / "one")["observation"] == ("uint8", (24, 24, 3))


def test_a_data_set_of_it_goes_out_and_comes_back(memup, here, monkeypatch):
    minari = pytest.importorskip("minari")
    memup(*COLLECT)
    memup("export", "minari", "--run", "run", "--id", "looks-v0", "--to", "out")
    memup("import", "minari", "out", "--run", "back", "--test-share", 0)
    assert shapes(here / "back") == shapes(here / "run")
    for ours, theirs in zip(episodes(here / "run"), episodes(here / "back"), strict=True):
        for name, values in ours.items():
            np.testing.assert_array_equal(values, theirs[name])
    found = minari.MinariDataset(here / "out" / "data")
    assert set(found.observation_space.spaces) == {"observation", "camera"}
