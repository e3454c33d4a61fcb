"""train-agent with environments in worker processes: the same agent, and nothing left behind."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from memup_cli.limits import available_cpus
from tests.cli import Memup
from tests.processes import ended, workers_of

# Episodes of different lengths; some tell whether they succeeded; one of the five environments dies, if it is to.
ENVIRONMENT = """
import os, signal, time
import gymnasium
import numpy

class Uneven(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(4, start=1)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)

    def __init__(self, step_seconds=0.0):
        self.step_seconds = step_seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(3, 12))
        return int(self.np_random.integers(1, 5)), {}

    def step(self, action):
        until = time.perf_counter() + self.step_seconds
        while time.perf_counter() < until:
            pass
        self.left -= 1
        if self.left == 1 and self.np_random.random() > 0.95:
            if os.environ.get("FAILS") == "raise":
                raise RuntimeError("simulator lost")
            if os.environ.get("FAILS") == "die":
                os.kill(os.getpid(), signal.SIGKILL)
        told = {"is_success": bool(action[0] > 0)} if self.np_random.random() > 0.5 else {}
        return int(self.np_random.integers(1, 5)), float(action[0]), self.left == 0, False, told

gymnasium.register("Uneven-v0", Uneven)
"""
COLLECT = ["collect", "gym", "--import", "uneven.py", "--env-id", "Uneven-v0", "--episodes", 12, "--test-episodes", 1]
TRAIN = ["train-agent", "--agent", "ppo-lstm", "--envs", 5, "--steps", 500, "--iteration-steps", 150, "--rollout", 8]
TRAIN += ["--run", "run", "--checkpoint-every", 0]
CHECKPOINTS = "run/agent/ppo-lstm/checkpoint-*.pt"


@pytest.fixture(scope="module")
def uneven(tmp_path_factory) -> Path:
    memup = Memup(tmp_path_factory.mktemp("uneven"))
    (memup.folder / "uneven.py").write_text(ENVIRONMENT)
    memup(*COLLECT, "--run", "run")
    return memup.folder


@pytest.fixture
def here(memup, uneven) -> Path:
    shutil.copytree(uneven, memup.folder, dirs_exist_ok=True)
    return memup.folder


@pytest.fixture(scope="module")
def weights(uneven, tmp_path_factory) -> bytes:
    """What one process comes to."""
    memup = Memup(tmp_path_factory.mktemp("alone") / "here")
    shutil.copytree(uneven, memup.folder)
    memup(*TRAIN, "--env-workers", 0)
    return trained(memup.folder)


def trained(folder: Path) -> bytes:
    return (folder / "run/agent/ppo-lstm/policy.safetensors").read_bytes()


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_the_agent_does_not_depend_on_who_steps_its_environments(memup, here, weights, workers):
    memup(*TRAIN, "--env-workers", workers)
    assert trained(here) == weights
    assert "up to date" in memup(*TRAIN, "--env-workers", 3).out


def test_mazes_are_stepped_elsewhere_in_the_same_way(memup, maze):
    command = ["train-agent", "--agent", "amrl", "--run", "run", "--steps", 300, "--envs", 4, "--json", "--restart"]
    alone, spread = (memup(*command, "--env-workers", workers).json for workers in (0, 2))
    for figure in ("return_mean", "success_rate", "steps"):
        assert alone[figure] == spread[figure]


def test_killed_or_stopped_it_leaves_no_process_and_continues_with_other_workers(memup, here, weights):
    for number, workers in ((signal.SIGKILL, 2), (signal.SIGTERM, 3)):
        training = memup.held(*TRAIN, "--env-workers", workers, at=CHECKPOINTS)
        processes = workers_of(training.pid)
        assert len(processes) == workers
        done = training.interrupt(number)
        assert done.code == (75 if number == signal.SIGTERM else -signal.SIGKILL), done.err
        assert all(ended(pid, 60) for pid in processes)  # the kernel ends those of a killed command
    assert "To continue: memup train-agent" in done.err
    memup(*TRAIN)
    assert trained(here) == weights


def test_what_an_environment_raises_elsewhere_is_told_as_it_is_here(memup, here):
    told = [
        memup(*TRAIN, "--restart", "--env-workers", workers, env={"FAILS": "raise"}, code=65).err for workers in (0, 2)
    ]
    line = 1 + ENVIRONMENT.splitlines().index('                raise RuntimeError("simulator lost")')
    place = rf"of seed \d+: RuntimeError\('simulator lost'\) in uneven.py, line {line}\. .*env.reset\(seed=\d+\)"
    assert re.search(rf"the environment Uneven-v0 failed at step \d+ of episode \d+ {place}", told[0])
    assert told[0] == told[1]
    assert "simulator lost" in memup("status", "--run", "run").out


def test_an_environment_that_takes_its_process_along_is_told(memup, here):
    failed = memup(*TRAIN, "--env-workers", 2, env={"FAILS": "die"}, code=65).err
    assert re.search("a worker process died: the environment crashed.*fewer --env-workers", failed)


def test_a_slow_environment_uses_the_cores_there_are_and_a_quick_one_none(memup, uneven):
    shutil.copy(uneven / "uneven.py", memup.folder)
    memup(*COLLECT, "--env-arg", "step_seconds=0.002", "--run", "run")
    slow = memup(*TRAIN, "--steps", 50).err
    assert ("processes step 5 of it" in slow) == (available_cpus() > 1), slow
    memup("collect", "tmaze", "--length", 20, "--episodes", 12, "--test-episodes", 1, "--run", "quick")
    quick = memup("train-agent", "--agent", "amrl", "--run", "quick", "--steps", 50, "--envs", 5).err
    assert "processes" not in quick


def test_signals_to_all_processes_reach_workers_harmlessly(memup, here):
    """A batch system sends them to each."""
    training = memup.held(*TRAIN, "--env-workers", 2, at=CHECKPOINTS)
    processes = workers_of(training.pid)
    for pid in processes:
        os.kill(pid, signal.SIGTERM)
    done = training.interrupt()
    assert done.code == 75, done.err
    assert all(ended(pid, 60) for pid in processes)
