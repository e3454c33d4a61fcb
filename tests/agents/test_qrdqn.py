"""The replay memory of QR-DQN."""

import numpy as np
import torch

from memup_cli.agents.play.environments import Arena
from memup_cli.agents.play.playing import Player
from memup_cli.agents.policies import build_policy
from memup_cli.agents.qrdqn import QRDQN, Transitions
from memup_cli.learning.weights import build_model
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.tasks import load_task
from stores.layout import Field

CPU = torch.device("cpu")


def test_what_follows_a_transition_is_the_next_step_of_its_episode():
    task = load_task("gym")(load_task("gym").Options(env_id="CartPole-v1", max_steps=12))
    torch.manual_seed(0)
    memory = build_model(task.spec, {"hidden": 8, "predictor_hidden": 8}, 20)
    config = {**TrainAgentOptions(agent="qrdqn", replay=1000).model_dump(), "rollout": 5, "minibatch": 16}
    policy = build_policy(task.spec, memory, config)
    learner = QRDQN(policy, task.spec, config, CPU)
    recording = Player(Arena(task.vector_environment(4), task.spec), policy, CPU, 5).play(0, steps=200, epsilon=0.5)
    learner._remember(recording)
    replay = learner.replay
    transitions = np.flatnonzero(replay.priority)
    assert len(transitions) == recording.steps
    ends = replay.rows["terminated"][transitions]
    assert ends.sum() == recording.terminated.sum()
    # CartPole moves by velocity * 0.02: only the true successor satisfies that
    now = replay.rows["observation"][transitions[~ends]]
    then = replay.rows["observation"][transitions[~ends] + 1]
    assert np.allclose(then[:, 0], now[:, 0] + 0.02 * now[:, 1], atol=1e-5)
    assert len(recording.final["row"]) == (replay.priority[: replay._next] == 0).sum() > 0


def test_replay_prefers_large_errors_and_wraps_around():
    observation, action = Field("observation", "int8", (3,)), Field("action", "uint8")
    replay = Transitions((observation, action), 100, 4)
    row = {
        "observation": np.zeros((60, 3), np.int8),
        "m": np.zeros((60, 4), np.float16),
        "action": np.zeros(60, np.uint8),
        "reward": np.arange(60, dtype=np.float32),
        "terminated": np.ones(60, bool),
    }
    replay.add(row, np.ones(60, bool))
    replay.add(row, np.ones(60, bool))
    assert (replay.priority > 0).all()
    assert replay.rows["reward"][:20].tolist() == list(range(40, 60))
    replay.priority[:] = 0.001
    replay.priority[7] = 10
    places, weights = replay.draw(3, 1000, np.random.default_rng(0))
    assert (places == 7).mean() > 0.5
    assert weights[places == 7].max() < weights[places != 7].min()
    other = Transitions((observation, action), 100, 4)
    other.load(replay.state())
    for name in replay.rows:
        assert np.array_equal(other.rows[name], replay.rows[name])
    assert np.array_equal(other.priority, replay.priority)
