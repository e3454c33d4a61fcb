"""Agents: steps per second of environment + frozen memory + PPO, against stable-baselines3's PPO on the same.

    python benchmarks/agent.py [--length 1000] [--envs 256] [--steps 200000]

speed_ratio        steps per second of `memup train-agent` over those of stable-baselines3's PPO, which gets the same
                   vectorised environment behind the same memory wrapper, and the same epochs and minibatch
speed_ratio_all    the same, trained on every step that was played instead of a weighted sample
shares             of train-agent's time: playing and learning
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from collect import run_stage
from measure import show
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

import memup_cli
import memup_cli.envs
from memup_cli.agents.agent_training import build_learner
from memup_cli.agents.play.environments import open_arena
from memup_cli.agents.play.playing import Player
from memup_cli.learning.weights import load_model
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.stages.agent_stage import resolve
from memup_cli.stages.memory.memory_job import resolve as resolve_memory
from memup_cli.stages.memory.memory_stage import train_memory

CPU = torch.device("cpu")
EPOCHS, MINIBATCH = 4, 512


class SB3Envs(VecEnv):
    """A Gymnasium vector environment that resets in the same step, as stable-baselines3 wants it."""

    def __init__(self, envs: Any) -> None:
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self._envs = envs

    def reset(self) -> np.ndarray:
        return self._envs.reset(seed=0)[0]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        observation, reward, terminated, truncated, info = self._envs.step(self._actions)
        infos: list[dict] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(terminated | truncated):
            infos[i]["terminal_observation"] = info["final_obs"][i]
        return observation, reward, terminated | truncated, infos

    def close(self) -> None:
        self._envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None: ...

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list:
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def theirs(run: Path, length: int, envs: int, steps: int) -> float:
    mode = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    mazes = gymnasium.make_vec("memup/TMaze-v0", num_envs=envs, length=length, **mode)
    wrapped = SB3Envs(memup_cli.MemoryVectorWrapper(mazes, memup_cli.load_memory(run)))
    model = PPO("MlpPolicy", wrapped, n_steps=128, batch_size=MINIBATCH, n_epochs=EPOCHS, device="cpu", seed=0)
    model.learn(128 * envs)  # the first iteration makes torch choose its kernels
    began = time.perf_counter()
    model.learn(steps)
    return model.num_timesteps / (time.perf_counter() - began)


def ours(run: Path, envs: int, steps: int, sample: int | None) -> tuple[float, float]:
    """Steps per second, and the share of the time spent playing."""
    options = TrainAgentOptions(envs=envs, epochs=EPOCHS, minibatch=MINIBATCH, sample=sample)
    job = resolve(run, options, 0, CPU, restart=False, quiet=True)
    training = job.training(load_model(job.manifest, "last"))
    learner = build_learner(training)
    player = Player(open_arena(job.manifest.task, job.spec, envs), learner.policy, CPU, training.rollout, 256 << 20)
    learner.learn(player.play(0), 0, 0.0)
    done, playing, learning = 0, 0.0, 0.0
    while done < steps:
        began = time.perf_counter()
        recording = player.play(done, steps=options.iteration_steps)
        played = time.perf_counter()
        learner.learn(recording, done, 0.0)
        learning += time.perf_counter() - played
        playing += played - began
        done += recording.steps
    return done / (playing + learning), playing / (playing + learning)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--envs", type=int, default=256)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        run = Path(name) / "run"
        run_stage(str(run), options.length, 100, 10)
        untrained = TrainMemoryOptions(select="uniform", updates=1)  # as fast as a trained one
        train_memory(resolve_memory(run, untrained, 0, CPU, restart=False, quiet=True))
        mine, every, other, shares = [], [], [], []
        for _ in range(options.turns):  # in turns, so that a busy machine troubles all alike
            other.append(theirs(run, options.length, options.envs, options.steps // 4))
            rate, share = ours(run, options.envs, options.steps, None)
            mine.append(rate)
            shares.append(share)
            every.append(ours(run, options.envs, options.steps, 10**9)[0])
    playing = float(np.median(shares))
    show(
        steps_per_second={"memup": round(np.median(mine)), "stable-baselines3": round(np.median(other))},
        speed_ratio=round(float(np.median(mine) / np.median(other)), 2),
        speed_ratio_all=round(float(np.median(every) / np.median(other)), 2),
        shares={"playing": round(playing, 3), "learning": round(1 - playing, 3)},
    )


if __name__ == "__main__":
    main()
