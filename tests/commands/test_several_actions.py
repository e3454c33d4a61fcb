"""Actions of several numbers, MultiDiscrete and MultiBinary: through all stages, with a head for each number."""

import numpy as np
import pytest
import torch

from memup_cli.agents.acting import load_agent
from memup_cli.agents.action_numbers import Combinations
from memup_cli.agents.play.wrappers import load_memory
from memup_cli.agents.policies import build_policy
from memup_cli.memory.encoders import FieldEncoder
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.streaming.actions import none_before
from memup_cli.tasks.spec import PREVIOUS_ACTION, TaskSpec
from stores.layout import Field
from tests.cli import assert_same_episodes, episodes, files_of

SOURCE = """
import gymnasium
import numpy
from gymnasium import spaces

class Levers(gymnasium.Env):
    # Each number of an action is to be that of the cue; what the last action was is seen, too.
    metadata = {"render_modes": ["rgb_array"]}
    render_mode = "rgb_array"

    def __init__(self, counts=(2, 3), start=None, binary=0, render_mode=None):
        self.counts = numpy.array([2] * binary if binary else counts)
        self.action_space = spaces.MultiBinary(binary) if binary else spaces.MultiDiscrete(counts, start=start)
        self.first = 0 if binary else self.action_space.start
        self.observation_space = spaces.Box(0, 100, (2 * len(self.counts),), numpy.float32)

    def _shown(self):
        return numpy.concatenate([self.cue, self.last]).astype(numpy.float32)

    def _draw(self):
        self.cue = self.np_random.integers(self.counts)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.last = 0, -numpy.ones(len(self.counts))
        self._draw()
        return self._shown(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.last = action - self.first
        reward = float((self.last == self.cue).mean())
        self.steps += 1
        self._draw()
        return self._shown(), reward, self.steps == 8, False, {}

    def render(self):
        return numpy.zeros((32, 32, 3), numpy.uint8)

gymnasium.register("Levers-v0", Levers)

class Fewer(gymnasium.ActionWrapper):
    def __init__(self, env):
        super().__init__(env)
        self.action_space = spaces.MultiDiscrete([2, 2])

    def action(self, action):
        return action + self.env.unwrapped.first

def first_lever(observation, rng):
    return [1, int(rng.integers(3)) - 1]

def halves(observation, rng):
    return [1.5, 0]
"""
COLLECT = ["collect", "gym", "--env-id", "Levers-v0", "--import", "levers.py", "--workers", 2]
SMALL = ["--episodes", 60, "--test-episodes", 6, "--run", "run"]
START = ["--env-arg", "start=[1, -1]"]
AGENT = ["train-agent", "--run", "run", "--envs", 8, "--iteration-steps", 256, "--minibatch", 64]


@pytest.fixture
def here(memup):
    (memup.folder / "levers.py").write_text(SOURCE)
    return memup.folder


def spec_with(counts) -> TaskSpec:
    """Of actions with so many classes of each number."""
    return TaskSpec(
        fields=(
            Field("observation", "float32", (3,)),
            Field("action", "uint8", np.shape(counts)),
            Field("reward", "float32"),
        ),
        memory_input=("observation", PREVIOUS_ACTION),
        query=("observation", "action"),
        target="reward",
        target_kind="return",
        components={"action": tuple(np.ravel(counts).tolist())},
    )


def mean_return(memup, agent: str) -> float:
    return float(
        memup("evaluate", "agent", "--run", "run", "--agent", agent, "--episodes", 40, "--json").json["return_mean"]
    )


def test_each_number_is_learned_on_the_memory_and_without(memup, here):
    memup(*COLLECT, *SMALL, *START)
    found = episodes(here / "run")
    for episode in found:
        assert (episode["action"].dtype, episode["action"].shape[1:]) == (np.uint8, (2,))
        np.testing.assert_array_equal(episode["observation"][1:, 2:], episode["action"][:-1])
    assert {tuple(row) for episode in found for row in episode["action"].tolist()} == {
        (a, b) for a in range(2) for b in range(3)
    }
    assert "action" in memup("inspect", "--run", "run").out
    memup("score", "--run", "run", "--updates", 50)
    surprises = memup("inspect", "--run", "run", "--json").json["episode"]["surprises"]["steps"]
    assert all(step["action"] == found[0]["action"][step["step"]].tolist() for step in surprises)
    memup("train-memory", "--run", "run", "--updates", 20, "--batch", 8)
    random = np.mean([episode["reward"].sum() for episode in found])  # (1/2 + 1/3) / 2 of 8 steps
    assert "has 2 numbers" in memup(*AGENT, "--agent", "ppo", "--outlook", code=2).err
    memup(*AGENT, "--agent", "ppo", "--steps", 8000, "--imitate", 1)
    assert mean_return(memup, "ppo") > random + 2
    memup(*AGENT, "--agent", "qrdqn", "--steps", 4000)
    assert mean_return(memup, "qrdqn") > random + 1
    memup("evaluate", "agent", "--run", "run", "--agent", "ppo", "--episodes", 2, "--record", "film.gif")
    assert (here / "film.gif").stat().st_size > 0
    acting = load_agent(here / "run", "qrdqn")
    action = acting.act(np.array([1, 2, -1, -1], np.float32), greedy=True)
    assert action.shape == (2,)
    assert (action < [2, 3]).all()


@pytest.mark.parametrize("agent", ["ppo-lstm", "amrl", "gtrxl"])
def test_baselines_choose_switches_behind_a_wrapper(memup, here, agent):
    given = ["--env-arg", "binary=2", "--wrapper", "gymnasium.wrappers:RecordEpisodeStatistics"]
    memup(*COLLECT, *SMALL, *given)
    assert set(np.unique(np.concatenate([e["action"] for e in episodes(here / "run")]))) == {0, 1}
    memup(*AGENT, "--agent", agent, "--steps", 600, "--core-hidden", 8)
    assert 0 <= mean_return(memup, agent) <= 8


def test_a_wrapper_may_give_other_actions(memup, here):
    memup(*COLLECT, *SMALL, *START, "--wrapper", "levers.py:Fewer")
    assert {n for e in episodes(here / "run") for n in e["action"][:, 1].tolist()} == {0, 1}


def test_a_killed_collection_ends_with_the_same_bytes(memup, here):
    command = [*COLLECT, "--episodes", 700, "--test-episodes", 6, "--commit-every", 0]
    memup.killed(*command, "--run", "killed", at="killed/trajectories/train/0000.zarr/episodes/row/zarr.json", nth=2)
    assert 0 < memup("status", "--run", "killed", "--json").json["stages"]["collect"]["progress"]["done"] < 706
    for run in ("killed", "whole"):
        memup(*command, "--run", run)
    assert_same_episodes(episodes(here / "killed"), episodes(here / "whole"))
    steps = "trajectories/train/0000.zarr/steps"
    assert files_of(here / "killed" / steps) == files_of(here / "whole" / steps)


def test_a_policy_of_ones_own_gives_several_numbers(memup, here):
    memup(*COLLECT, *SMALL, *START, "--policy", "levers.py:first_lever")
    assert {n for e in episodes(here / "run") for n in e["action"][:, 0].tolist()} == {0}
    assert {n for e in episodes(here / "run") for n in e["action"][:, 1].tolist()} == {0, 1, 2}
    failed = memup(*COLLECT, *SMALL[:-1], "other", *START, "--policy", "levers.py:halves", code=65).err
    assert "gave [1.5, 0] at step 0" in failed


def test_too_many_combinations_are_for_ppo(memup, here):
    memup(*COLLECT, *SMALL, "--env-arg", "counts=[20, 20]")
    refused = memup(*AGENT, "--agent", "qrdqn", "--steps", 100, code=2).err
    assert "400 combinations" in refused
    assert "--agent ppo" in refused


def test_the_environment_must_have_the_actions_of_the_run(memup, here):
    memup(*COLLECT, *SMALL)
    (here / "levers.py").write_text(SOURCE.replace("counts=(2, 3)", "counts=(3, 2)"))
    refused = memup(*AGENT, "--agent", "ppo-lstm", "--steps", 100, code=2).err
    assert "MultiDiscrete([2, 3])" in refused
    assert (
        "uint8 2 of 2, 3 classes and is now uint8 2 of 3, 2 classes"
        in memup(*COLLECT, "--run", "run", "--episodes", 70, code=2).err
    )


def test_memories_are_worn_by_environments_of_such_actions(memup, here):
    memup(*COLLECT, *SMALL, *START)
    memup("train-memory", "--run", "run", "--updates", 2, "--batch", 4, "--select", "uniform")
    memory = load_memory(here / "run")
    episode = episodes(here / "run", "test")[0]
    state, before, found = memory.initial(1), None, []
    for observation, action in zip(episode["observation"], episode["action"], strict=True):
        m, state = memory.step(observation[None], before, state)
        before = action[None]
        found.append(m[0])
    changed = episode["action"].copy()
    changed[0, 1] = (changed[0, 1] + 1) % 3
    m, _ = memory.step(
        episode["observation"][1:2], changed[:1], memory.step(episode["observation"][:1], None, memory.initial(1))[1]
    )
    assert not np.array_equal(m[0], found[1])  # it sees each number of the action before


def policy_of(spec, **more):
    torch.manual_seed(0)
    config = {**TrainAgentOptions().model_dump(), "agent": "ppo-lstm", "core_hidden": 4, "span": 4, **more}
    return build_policy(spec, None, config)


@pytest.mark.parametrize("counts", [[2, 5, 3], [4, 4], [1], [[2, 3], [3, 2]]])
def test_log_probabilities_and_entropies_are_sums_over_the_numbers(counts):
    spec = spec_with(counts)
    policy, flat = policy_of(spec), spec.counts("action")
    shape = next(f.shape for f in spec.fields if f.name == "action")
    features = torch.randn(50, policy.features)
    with torch.no_grad():
        policy.actor[-1].weight.mul_(300)
        out = policy.actor(features)
        action = policy.choose(out, torch.Generator().manual_seed(1), greedy=False)
        log_prob, entropy = policy.log_prob(features, action)
    assert action.shape == (50, *shape)
    heads = [torch.distributions.Categorical(logits=part) for part in out.split(flat, -1)]
    columns = action.reshape(50, -1).unbind(-1)
    torch.testing.assert_close(log_prob, sum(h.log_prob(c) for h, c in zip(heads, columns, strict=True)))
    torch.testing.assert_close(entropy, sum(h.entropy() for h in heads))
    best = torch.stack([part.argmax(-1) for part in out.split(flat, -1)], -1)
    assert torch.equal(policy.choose(out, torch.Generator(), greedy=True).reshape(50, -1), best)


def test_the_previous_action_has_a_class_of_each_number():
    spec = spec_with([2, 3])
    encode = FieldEncoder(spec, (PREVIOUS_ACTION,))
    actions = np.stack([none_before(spec, PREVIOUS_ACTION), [1, 0], [0, 2]])
    wanted = [[0, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert encode({PREVIOUS_ACTION: torch.from_numpy(actions)}).tolist() == wanted


@pytest.mark.parametrize("counts", [[2, 3], [4, 2, 3], [[2, 3], [3, 2]]])
def test_numbered_combinations_are_all_different(counts):
    numbered = Combinations(tuple(np.ravel(counts).tolist()), np.shape(counts))
    assert numbered.rows.shape == (np.prod(counts), *np.shape(counts))
    assert torch.equal(numbered(numbered.rows), torch.arange(len(numbered.rows)))
