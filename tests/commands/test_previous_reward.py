"""The reward of the step before as an input: the same numbers where memories are trained, and where agents act."""

import gymnasium
import numpy as np
import pytest
import torch

import memup_cli
from memup_cli.agents.play.environments import Arena
from memup_cli.agents.play.playing import Player
from memup_cli.agents.policies import build_policy
from memup_cli.errors import UsageProblem
from memup_cli.learning.weights import load_model
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.streaming.moments import moments_of
from memup_cli.streaming.reading import EpisodeReader
from memup_cli.tasks.own.gym import GymOptions, GymTask
from memup_cli.tasks.spec import PREVIOUS_ACTION, PREVIOUS_REWARD
from stores.layout import SEED

COLLECT = ["collect", "gym", "--env-id", "Pendulum-v1", "--max-steps", 20, "--episodes", 20, "--test-episodes", 4]
COLLECT += ["--previous-reward", "--run", "run"]
FEW = ["--updates", 4, "--batch", 4, "--rollout", 5, "--select", "uniform", "--run", "run"]


def late(rewards: np.ndarray) -> np.ndarray:
    return np.concatenate([[np.float32(0)], rewards[:-1]])


@pytest.fixture
def trained(memup):
    memup(*COLLECT)
    memup("train-memory", *FEW)
    return memup.folder / "run"


def test_training_and_acting_see_the_same_numbers(trained):
    manifest = open_run(trained)
    model, spec = load_model(manifest, "best"), spec_of(manifest)
    assert spec.memory_input == ("observation", PREVIOUS_ACTION, PREVIOUS_REWARD)
    memory, train = memup_cli.load_memory(trained), split_of(manifest, "train")
    env = memup_cli.MemoryWrapper(gymnasium.make("Pendulum-v1"), memory)
    envs = memup_cli.MemoryVectorWrapper(gymnasium.make_vec("Pendulum-v1", 1, vectorization_mode="sync"), memory)
    for row, arrays in list(zip(train.rows, train, strict=True))[:4]:
        read = EpisodeReader(spec, 0.0, len(arrays["reward"]), lambda name, a, b, arrays=arrays: arrays[name][a:b])
        inputs = {name: read(name, 0, len(arrays["reward"])) for name in spec.memory_input}
        np.testing.assert_array_equal(inputs[PREVIOUS_REWARD], late(arrays["reward"]))
        with torch.no_grad():
            steps = {name: torch.from_numpy(values)[None] for name, values in inputs.items()}
            wanted = model.rollout(steps, model.memory.initial(1))[0][0].numpy()
        seen, many = [env.reset(seed=int(row[SEED]))[0]], [envs.reset(seed=int(row[SEED]))[0][0]]
        for action in arrays["action"][:-1]:
            seen.append(env.step(action)[0])
            many.append(envs.step(action[None])[0][0])
        for found in (seen, many):
            np.testing.assert_allclose(np.stack(found)[:, 3:], wanted, atol=1e-5)


def test_what_agents_record_is_the_reward_of_the_step_before():
    task = GymTask(GymOptions(env_id="Pendulum-v1", max_steps=9, previous_reward=True))
    config = {**TrainAgentOptions().model_dump(), "agent": "ppo-lstm", "core_hidden": 8, "rollout": 4}
    policy = build_policy(task.spec, None, config)
    player = Player(Arena(task.vector_environment(2), task.spec), policy, torch.device("cpu"), rollout=4)
    played = player.play(3, episodes=4)
    for env in range(2):
        for first in range(0, len(played.reward), 9):
            part = slice(first, first + 9)
            np.testing.assert_array_equal(played.arrays[PREVIOUS_REWARD][part, env], late(played.reward[part, env]))
    cut = played.final["row"]
    np.testing.assert_array_equal(played.final[PREVIOUS_REWARD], played.reward.reshape(-1)[cut])


@pytest.mark.parametrize("agent", ["ppo", "ppo-lstm"])
def test_agents_of_all_sorts_act_on_it(memup, trained, agent):
    small = ["--steps", 200, "--envs", 2, "--iteration-steps", 80, "--minibatch", 32]
    more = ["--imitate", 1] if agent == "ppo" else ["--core-hidden", 8]
    memup("train-agent", "--run", "run", "--agent", agent, *small, *more)
    memup("evaluate", "agent", "--run", "run", "--agent", agent, "--episodes", 2)
    acting, shown = memup_cli.load_agent(trained, agent), np.ones(3, np.float32)
    actions = []
    for reward in (-1.0, -9.0):
        acting.begin()
        acting.act(shown, greedy=True)
        actions.append(acting.act(shown, greedy=True, reward=reward))
    assert not np.array_equal(*actions)
    with pytest.raises(UsageProblem, match="the reward"):
        acting.act(shown)
    memory = memup_cli.load_memory(trained)
    with pytest.raises(UsageProblem, match="previous_reward"):
        memory.step(shown[None], np.zeros((1, 1), np.float32), memory.initial(1))


def test_its_moments_are_those_of_the_rewards_one_step_late(trained):
    found = moments_of(open_run(trained), spec_of(open_run(trained)))[PREVIOUS_REWARD]
    train = split_of(open_run(trained), "train")
    values = np.concatenate([late(episode["reward"]) for episode in train]).astype(np.float64)
    assert found["mean"][0] == pytest.approx(values.mean())
    assert found["sd"][0] == pytest.approx(values.std())


def test_scores_and_baselines_take_it(memup, trained):
    memup("score", "--run", "run", "--updates", 10, "--detector", "probe")
    memup("train-baseline", "--run", "run", "--model", "lstm", "--updates", 3, "--hidden", 8)


def test_without_the_option_nothing_of_it_is_recorded(memup):
    memup(*COLLECT[:-3], "--run", "run")
    assert "previous_reward" not in (memup.folder / "run/manifest.json").read_text()
    refused = memup(*COLLECT, code=2).err
    assert "previous_reward" in refused or "--previous-reward" in refused
