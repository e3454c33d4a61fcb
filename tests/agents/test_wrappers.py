"""The memory as a wrapper: in an environment it is in the state that training on the same steps would give it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import memup_cli.envs  # registers memup/TMaze-v0
from memup_cli.agents.play.wrappers import Memory
from memup_cli.errors import StageMissing, UsageProblem
from memup_cli.learning.weights import build_model, load_model
from memup_cli.predictor.predictor import MemoryModel
from memup_cli.records.opening import open_run, spec_of
from memup_cli.streaming.reading import EpisodeReader
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from memup_cli.tasks.mazes.tmaze_env import TMazeEnv, TMazeVectorEnv
from memup_cli.tasks.own.gym import GymOptions, GymTask
from memup_cli.tasks.spec import TaskSpec
from stores.layout import SEED
from stores.reader import Trajectories
from tests.cli import Memup
from tests.processes import environment

ROOT = Path(__file__).parent.parent.parent
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


class Shifted(gymnasium.Env[np.int64, np.int64]):
    """Classes that do not begin at 0: the sum of the last two actions, for a while; ended by what its seed says."""

    observation_space, action_space = Discrete(5, start=4), Discrete(3, start=2)

    def __init__(self, render_mode: None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.int64, dict]:
        super().reset(seed=seed)
        self._left, self._last = int(self.np_random.integers(2, 9)), np.int64(2)
        return np.int64(4), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict]:
        seen, self._last = self._last + action, action
        self._left -= 1
        return seen, float(action == 3), False, self._left == 0, {}


gymnasium.register("memup-test/Shifted-v0", Shifted)
MAZE, SHIFTED = TMaze(TMazeOptions()), GymTask(GymOptions(env_id="memup-test/Shifted-v0"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A T-Maze-20 with a memory that has learned a little."""
    return trained_on_a_maze(Memup(tmp_path_factory.mktemp("trained")), "--updates", 100)


@pytest.fixture(scope="session")
def solved(tmp_path_factory) -> Path:
    """A T-Maze-20 with a memory that has solved it."""
    enough = ["--updates", 2000, "--evaluate-every", 50, "--until", "rmse<0.3"]
    return trained_on_a_maze(Memup(tmp_path_factory.mktemp("solved")), *enough)


def trained_on_a_maze(memup: Memup, *options: object) -> Path:
    memup("collect", "tmaze", "--length", 20, "--episodes", 200, "--test-episodes", 20, "--run", "run")
    memup("train-memory", "--run", "run", "--select", "uniform", "--rollout", 30, *options)
    return memup.folder / "run"


def untrained(spec: TaskSpec, cell: str = "lstm", device: str = "cpu") -> Memory:
    """A memory of random weights, large ones: everything it sees leaves a trace."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build_model(spec, {"cell": cell, "hidden": 8, "predictor_hidden": 4}, horizon=20)
        for parameter in model.memory.parameters():
            torch.nn.init.normal_(parameter)
    return Memory(model, spec, torch.device(device))


def states_in_one_go(model: MemoryModel, spec: TaskSpec, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """m_t of all steps of a stored episode (T, size), as training computes them."""
    inputs = {
        "observation": arrays["observation"],
        "previous_action": EpisodeReader(spec, 0.0, len(arrays["action"]), lambda name, a, b: arrays[name][a:b])(
            "previous_action", 0, len(arrays["action"])
        ),
    }
    with torch.no_grad():
        steps = {name: torch.from_numpy(values).unsqueeze(0) for name, values in inputs.items()}
        return model.rollout(steps, model.memory.initial(1))[0][0].numpy()


def replayed(env: gymnasium.Env, seed: int, actions: np.ndarray) -> np.ndarray:
    """What an agent that takes these actions sees: (T, F)."""
    assert isinstance(env.observation_space, Box)
    seen = [env.reset(seed=seed)[0]]
    for action in actions[:-1]:
        observation, _, terminated, truncated, _ = env.step(action)
        assert not terminated | truncated
        seen.append(observation)
    assert all(observation in env.observation_space for observation in seen)
    return np.stack(seen)


def stored_episodes(run: Path) -> list[tuple[int, dict[str, np.ndarray]]]:
    """Seed and arrays of each training episode."""
    train = Trajectories(run / "trajectories" / "train", 1)
    return [(int(row[SEED]), arrays) for row, arrays in zip(train.rows, train, strict=True)]


def test_stepping_gives_the_states_of_a_stored_episode(trained):
    memory = memup_cli.load_memory(trained)
    env = memup_cli.MemoryWrapper(gymnasium.make("memup/TMaze-v0", length=20), memory)
    manifest = open_run(trained)
    model, spec = load_model(manifest, "last"), spec_of(manifest)
    for seed, arrays in stored_episodes(trained)[:5]:
        seen = replayed(env, seed, arrays["action"])
        np.testing.assert_array_equal(seen[:, :3], arrays["observation"])
        np.testing.assert_allclose(seen[:, 3:], states_in_one_go(model, spec, arrays), atol=1e-5)


def test_a_collected_gymnasium_environment_with_classes_as_observations(memup):
    memup("collect", "gym", "--env-id", "FrozenLake-v1", "--episodes", 20, "--test-episodes", 5, "--run", "run")
    memup("train-memory", "--run", "run", "--select", "uniform", "--cell", "gru", "--rollout", 10, "--updates", 20)
    run = memup.folder / "run"
    memory = memup_cli.load_memory(str(run), checkpoint="best")
    env = memup_cli.MemoryWrapper(gymnasium.make("FrozenLake-v1"), memory)
    manifest = open_run(run)
    model = load_model(manifest, "best")
    for seed, arrays in stored_episodes(run)[:5]:
        seen = replayed(env, seed, arrays["action"])
        np.testing.assert_array_equal(seen[:, :16], np.eye(16)[arrays["observation"]])
        np.testing.assert_allclose(seen[:, 16:], states_in_one_go(model, memory.spec, arrays), atol=1e-5)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("env_id", ["memup-test/Shifted-v0", "Pendulum-v1"])
def test_numbers_reach_the_memory_as_collecting_stores_them(env_id, cell):
    """Classes that begin elsewhere than at 0, and actions that are no classes."""
    task = GymTask(GymOptions(env_id=env_id))
    memory = untrained(task.spec, cell)
    env = memup_cli.MemoryWrapper(gymnasium.make(env_id), memory)
    start = getattr(env.action_space, "start", 0)
    for seed in range(5):
        arrays = task.episode(seed).arrays
        seen = replayed(env, seed, arrays["action"] + start)
        np.testing.assert_allclose(seen[:, -8:], states_in_one_go(memory._model, task.spec, arrays), atol=1e-5)


def vector(kind: str, mode: AutoresetMode, count: int) -> VectorEnv:
    if kind == "maze":
        return TMazeVectorEnv(count, length=4, autoreset_mode=mode)
    return SyncVectorEnv([single(kind)] * count, autoreset_mode=mode)


def single(kind: str) -> Any:
    return Shifted if kind == "shifted" else lambda: TMazeEnv(length=4)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["maze", "mazes", "shifted"])
def test_many_environments_equal_single_ones(kind, mode):
    count, rng = 4, np.random.default_rng(0)
    memory = untrained(SHIFTED.spec if kind == "shifted" else MAZE.spec)
    many = memup_cli.MemoryVectorWrapper(vector(kind, mode, count), memory)
    ones = [memup_cli.MemoryWrapper(single(kind)(), memory) for _ in range(count)]
    seen, _ = many.reset(seed=5)
    expected = [env.reset(seed=5 + i)[0] for i, env in enumerate(ones)]
    ended, finished = np.zeros(count, bool), 0
    for _ in range(60):
        assert seen in many.observation_space
        np.testing.assert_allclose(seen, expected, atol=1e-6)
        actions = rng.integers(2, size=count) + getattr(many.single_action_space, "start", 0)
        seen, rewards, terminated, truncated, info = many.step(actions)
        before, ended = ended, terminated | truncated
        for i, env in enumerate(ones):
            if mode is AutoresetMode.NEXT_STEP and before[i]:
                expected[i], _ = env.reset()
                continue
            expected[i], reward, *ends, _ = env.step(actions[i])
            assert (rewards[i], terminated[i], truncated[i]) == (reward, *ends)
            if mode is AutoresetMode.SAME_STEP and ended[i]:
                np.testing.assert_allclose(info["final_obs"][i], expected[i], atol=1e-6)
                expected[i], _ = env.reset()
        if mode is AutoresetMode.DISABLED and ended.any():
            np.testing.assert_allclose(seen, expected, atol=1e-6)
            seen, _ = many.reset(options={"reset_mask": ended})
            for i in np.flatnonzero(ended):
                expected[i], _ = ones[i].reset()
        finished += ended.sum()
    assert finished > 10


def test_a_reset_in_the_middle_begins_everything_anew():
    memory = untrained(MAZE.spec)
    many = memup_cli.MemoryVectorWrapper(TMazeVectorEnv(3, length=4, mode="LN"), memory)
    first, _ = many.reset(seed=1)
    for _ in range(5):
        *_, terminated, _, _ = many.step(np.ones(3, int))
    assert terminated.all()
    again, _ = many.reset(seed=1)
    np.testing.assert_array_equal(first, again)
    one = memup_cli.MemoryWrapper(TMazeEnv(length=4, mode="LN"), memory)
    one.reset(seed=1)
    np.testing.assert_allclose(many.step(np.ones(3, int))[0][0], one.step(1)[0], atol=1e-6)


def test_the_memory_by_itself_begins_anew_where_it_is_told():
    memory = untrained(MAZE.spec)
    observation, action = np.array([[1, 0, 1], [-1, 0, 1]], np.float32), np.array([1, 1])
    first, state = memory.step(observation, None, memory.initial(2))
    expected, _ = memory.step(observation, action, state)
    kept = first.copy()
    first[:] = 9.0  # the caller's own
    mixed, _ = memory.step(observation, action, state, np.array([True, False]))
    np.testing.assert_allclose(mixed, [kept[0], expected[1]], atol=1e-6)
    assert not np.allclose(expected, kept, atol=0.01)


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")  # it is: that is what is checked
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("env_id", ["memup/TMaze-v0", "FrozenLake-v1"])
def test_gymnasium_accepts_the_wrapped_environment(env_id, cell):
    env = gymnasium.make(env_id)
    spec = MAZE.spec if "TMaze" in env_id else GymTask(GymOptions(env_id=env_id)).spec
    wrapped = memup_cli.MemoryWrapper(env, untrained(spec, cell))
    assert np.isfinite([wrapped.observation_space.low, wrapped.observation_space.high]).all()
    check_env(wrapped, skip_render_check=True)


@pytest.mark.gpu
def test_a_memory_on_cuda_gives_the_same_states():
    here, there = (
        memup_cli.MemoryVectorWrapper(TMazeVectorEnv(4, length=4), untrained(MAZE.spec, device=device))
        for device in ("cpu", "cuda")
    )
    np.testing.assert_allclose(here.reset(seed=1)[0], there.reset(seed=1)[0], atol=1e-4)
    for _ in range(12):
        np.testing.assert_allclose(here.step(np.ones(4, int))[0], there.step(np.ones(4, int))[0], atol=1e-4)


@pytest.mark.parametrize(
    ("env_id", "hint"),
    [("CartPole-v1", "observations from a Box of shape (3,)"), ("Pendulum-v1", "actions from Discrete(2)")],
)
def test_an_environment_of_another_task_is_refused(env_id, hint):
    memory = untrained(MAZE.spec)
    with pytest.raises(UsageProblem, match=re.escape(hint)):
        memup_cli.MemoryWrapper(gymnasium.make(env_id), memory)
    with pytest.raises(UsageProblem, match=re.escape(hint)):
        memup_cli.MemoryVectorWrapper(gymnasium.make_vec(env_id, num_envs=2), memory)


def test_a_run_that_has_no_memory_for_environments_says_so(memup):
    run = memup.folder / "run"
    with pytest.raises(StageMissing, match="memup collect"):
        memup_cli.load_memory(run)
    memup("collect", "copy", "--length", 24, "--episodes", 20, "--test-episodes", 5, "--run", "run")
    with pytest.raises(StageMissing, match="memup train-memory"):
        memup_cli.load_memory(run)
    memup("train-memory", "--run", "run", "--select", "uniform", "--updates", 2)
    with pytest.raises(UsageProblem, match="reads input"):
        memup_cli.load_memory(run)
    with pytest.raises(UsageProblem, match="best or last"):
        memup_cli.load_memory(run, checkpoint="first")


@pytest.mark.learning
def test_ppo_of_stable_baselines_learns_from_the_memory(solved):
    """Without a memory half of the mazes is what an agent can get."""
    shown = subprocess.run(
        [sys.executable, ROOT / "examples" / "sb3_ppo.py", solved, "--length", "20", "--steps", "6000"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert float(re.findall(r"success rate ([\d.]+)", shown.stdout)[0]) > 0.9


def test_the_documented_programs_run(memup, trained, tmp_path, monkeypatch):
    run = tmp_path / "runs" / "tmaze-100"
    shutil.copytree(trained, run)
    memup("train-agent", "--run", run, "--steps", 500, "--envs", 8, "--iteration-steps", 200)
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
    assert len(programs) == 5
    for program in programs:
        exec(program, {})
