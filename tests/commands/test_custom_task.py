"""examples/custom_task is a task of another package: installed, found, and taken through the stages."""

import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_task"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that the package is installed into, without a network."""
    source, target = tmp_path_factory.mktemp("source") / "lamps", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)  # building leaves files behind
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, "--target", target, source], check=True)
    return str(target)


def test_its_episodes_equal_stepping_its_environments(site, monkeypatch):
    monkeypatch.syspath_prepend(site)
    from memup_lamps.environment import LampsEnv
    from memup_lamps.task import Lamps, LampsOptions

    task, seeds = Lamps(LampsOptions(length=12)), [3, 2**62, 8]
    many = task.vector_environment(len(seeds))
    together = many.reset(seed=seeds)[0]
    wanted = [task.episode(seed).arrays for seed in seeds]
    for i, arrays in enumerate(wanted):
        env = LampsEnv(length=12)
        observation, _ = env.reset(seed=seeds[i])
        for t, action in enumerate(arrays["action"]):
            np.testing.assert_array_equal(observation, arrays["observation"][t])
            assert observation in env.observation_space
            observation, reward, terminated, _, _ = env.step(int(action))
            assert reward == arrays["reward"][t]
            assert terminated == (t == len(arrays["action"]) - 1)
    for t in range(min(len(arrays["action"]) for arrays in wanted)):
        np.testing.assert_array_equal(together, [arrays["observation"][t] for arrays in wanted])
        together, rewards, *_ = many.step(np.array([arrays["action"][t] for arrays in wanted]))
        np.testing.assert_array_equal(rewards, [arrays["reward"][t] for arrays in wanted])
    assert gymnasium.make("memup_lamps/Lamps-v0", length=12).reset()[0].shape == (5,)


def test_it_goes_through_the_stages(memup, site):
    env = {"PYTHONPATH": site}
    assert "Steps until the bell rings" in memup("collect", "lamps", "--help", env=env).out
    memup("collect", "lamps", "--length", 12, "--episodes", 100, "--test-episodes", 20, "--run", "run", env=env)
    memup("score", "--run", "run", "--updates", 50, env=env)
    trained = memup("train-memory", "--run", "run", "--updates", 10, "--json", env=env).json
    assert trained["updates"] == 10
    found = memup("evaluate", "memory", "--run", "run", "--json", env=env).json
    assert found["episodes"] == 20
    assert found["explained_interval"][0] <= found["explained"] <= found["explained_interval"][1]
    memup("train-agent", "--run", "run", "--steps", 500, "--envs", 8, env=env)
