"""The Two-Colors environment keeps its schedule, and after the pillar only memory can tell the colors apart."""

import hashlib
import itertools
import os
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import memup_cli.envs  # noqa: F401  registers memup/TwoColors-v0
from memup_cli.errors import UsageProblem
from memup_cli.tasks.two_colors import scenario
from memup_cli.tasks.two_colors.environment import FORWARD, TwoColorsEnv
from memup_cli.tasks.two_colors.players import find_way, is_hidden, seeker
from tests.processes import environment

PILLAR_STEPS = 45


@pytest.fixture(scope="module")
def env():
    env = TwoColorsEnv(objects=True)
    yield env
    env.close()


def play(env, player, seed, good=None, steps=2000):
    """Observations, actions and rewards of a scripted player, or of given actions."""
    observation, info = env.reset(seed=seed, options={"good_color": good})
    script = seeker(env, player, info["good_color"], np.random.default_rng(seed)) if isinstance(player, str) else None
    observations, actions, rewards = [observation], [], []
    for t in range(steps if script else len(player)):
        actions.append(script.action() if script else player[t])
        observation, reward, terminated, truncated, _ = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            break
    return np.stack(observations), actions, np.array(rewards)


def test_the_script_builds_the_shipped_scenario():
    assert scenario.WAD.read_bytes() == scenario.build()


def test_gymnasium_accepts_the_environment():
    made = gymnasium.make("memup/TwoColors-v0", render_mode="rgb_array")
    check_env(made.unwrapped)
    assert made.observation_space.shape == (64, 112, 3)
    assert made.action_space.n == 8
    made.close()


def test_an_idle_agent_dies_on_step_192_of_the_acid(env):
    env.reset(seed=1)
    rewards = []
    terminated = False
    while not terminated:
        _, reward, terminated, truncated, _ = env.idle()
        rewards.append(reward)
        assert not truncated
    assert len(rewards) == 192
    np.testing.assert_allclose(rewards[:-1], 0.02)


def test_the_pillar_shows_in_the_first_45_observations_only(env):
    green, red = [], []
    for color, frames in (("green", green), ("red", red)):
        frames.append(env.reset(seed=3, options={"good_color": color})[0])
        for _ in range(60):
            frames.append(env.idle()[0])
    differs = [not np.array_equal(a, b) for a, b in zip(green, red, strict=True)]
    assert differs == [t < PILLAR_STEPS for t in range(61)]
    column = green[0].astype(int)[20:40, 50:62]  # straight ahead
    assert (column[..., 1] > column[..., 0] + 40).any()
    column = red[0].astype(int)[20:40, 50:62]
    assert (column[..., 0] > column[..., 1] + 40).any()


def test_nothing_after_the_pillar_tells_which_color_heals(env):
    opposite = 0
    for seed in range(3):
        green, actions, paid = play(env, "any", seed, "green", steps=300)
        red, _, repaid = play(env, actions, seed, "red")
        both = min(len(paid), len(repaid))
        opposite += int((np.abs(paid[:both] - repaid[:both]) > 1.5).sum())
        np.testing.assert_array_equal(green[PILLAR_STEPS:both], red[PILLAR_STEPS:both])
        assert (green[:10] != red[:10]).any()
    assert opposite >= 10  # items were found, good on one side and bad on the other


def test_who_knows_the_color_lives_far_longer(env):
    steps = {player: np.mean([len(play(env, player, seed)[1]) for seed in range(3)]) for player in ("any", "oracle")}
    assert steps["oracle"] > 3 * steps["any"]


@pytest.mark.parametrize("goal", [(200.0, 100.0), (-500.0, 200.0), (384.0, -300.0)], ids=["free", "wall", "corner"])
def test_players_walk_straight_on_until_a_wall_is_in_the_way(goal):
    start, free = (300.0, 0.0), np.ones((40, 40))
    for x0, y0, x1, y1 in scenario.WALLS:
        free[int((x0 + 620) // 32) : int((x1 + 660) // 32), int((y0 + 620) // 32) : int((y1 + 660) // 32)] = 1e6
    way = find_way(start, [goal], free)
    assert way[-1] == goal
    assert len(way) == 1 or is_hidden(goal, start)
    assert not any(is_hidden(there, here) for here, there in itertools.pairwise([start, *way]))


def test_an_episode_ends_after_1050_steps_without_a_death(env):
    script = seeker(env, "oracle", env.reset(seed=3)[1]["good_color"], np.random.default_rng(0))
    steps, terminated, truncated = 0, False, False
    while not (terminated or truncated):
        _, _, terminated, truncated, _ = env.step(script.action())
        steps += 1
    assert (steps, terminated, truncated) == (1050, False, True)


DIGEST = """
import hashlib
from memup_cli.tasks.two_colors.environment import TwoColorsEnv
env = TwoColorsEnv()
observation, info = env.reset(seed=11)
found = hashlib.sha256(observation.tobytes())
for t in range(100):
    observation, reward, *_ = env.step(t * 7 % 8)
    found.update(observation.tobytes() + str(reward).encode())
env.close()
print(found.hexdigest(), info["good_color"])
"""


def test_a_seed_gives_the_same_episode_in_any_process(env):
    other = subprocess.run(
        [sys.executable, "-c", DIGEST], env=environment(), check=True, capture_output=True, text=True
    ).stdout.split()
    env.reset(seed=5)
    env.step(FORWARD)  # an earlier episode leaves no trace
    observation, info = env.reset(seed=11)
    found = hashlib.sha256(observation.tobytes())
    for t in range(100):
        observation, reward, *_ = env.step(t * 7 % 8)
        found.update(observation.tobytes() + str(reward).encode())
    assert other == [found.hexdigest(), info["good_color"]]


@pytest.mark.parametrize("action", [-1, 8, 1.5, None])
def test_what_is_no_action_is_refused(env, action):
    env.reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match="from 0 to 7"):
        env.step(action)


def test_the_healing_color_can_be_chosen_and_else_is_drawn(env):
    drawn = {env.reset(seed=seed)[1]["good_color"] for seed in range(8)}
    assert drawn == {"green", "red"}
    only = TwoColorsEnv(good_color="red")
    assert {only.reset(seed=seed)[1]["good_color"] for seed in range(4)} == {"red"}
    only.close()
    with pytest.raises(UsageProblem, match="green or red"):
        TwoColorsEnv(good_color="blue")


def test_the_engine_leaves_the_working_directory_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = TwoColorsEnv()
    env.reset(seed=0)
    env.close()
    assert os.listdir(tmp_path) == []
