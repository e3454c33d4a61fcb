"""Does the memory still know the healing color long after the pillar is gone?

    python examples/experiments/two_colors_probe.py RUN [--from-step 100] [--oracle 10]

Fits a linear probe to the memory's states of training episodes, from --from-step to the end, and asks it for the color
on test episodes, and on new episodes of the oracle player, which are up to 1050 steps long.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from memup_cli.learning.weights import load_model
from memup_cli.records.opening import open_run, spec_of
from memup_cli.streaming.actions import previous_actions
from memup_cli.tasks.spec import PREVIOUS_ACTION
from memup_cli.tasks.two_colors.environment import TwoColorsEnv
from memup_cli.tasks.two_colors.players import seeker
from stores.reader import Trajectories

COLORS = ("green", "red")


def states(memory, observation: np.ndarray, action: np.ndarray) -> np.ndarray:
    """m_t along one episode: (T, H)."""
    model, spec = memory
    before = previous_actions(spec, action[:-1], at_start=True)
    arrays = {"observation": torch.from_numpy(observation)[None], PREVIOUS_ACTION: torch.from_numpy(before)[None]}
    with torch.no_grad():
        m, _ = model.rollout(arrays, model.memory.initial(1))
    return m[0].numpy()


def stored(memory, folder: Path, count: int, first: int):
    """States and color of each step from `first` on, of some stored episodes."""
    m, color = [], []
    for i, episode in enumerate(Trajectories(folder, 1)):
        if i == count:
            break
        if len(episode["action"]) > first:
            m.append(states(memory, episode["observation"], episode["action"])[first:])
            color.append(np.full(len(m[-1]), episode["truth"][0, 0]))
    return np.concatenate(m), np.concatenate(color), len(m)


def played(memory, count: int, first: int):
    """The same of new episodes of the oracle."""
    env = TwoColorsEnv(objects=True)
    m, color = [], []
    for seed in range(10_000, 10_000 + count):
        seen, info = env.reset(seed=seed)
        player = seeker(env, "oracle", info["good_color"], np.random.default_rng(seed))
        observations, actions, over = [], [], False
        while not over:
            observations.append(seen)
            actions.append(player.action())
            seen, _, dead, late, _ = env.step(actions[-1])
            over = dead or late
        m.append(states(memory, np.stack(observations), np.array(actions))[first:])
        color.append(np.full(len(m[-1]), COLORS.index(info["good_color"])))
    env.close()
    return np.concatenate(m), np.concatenate(color), count


def fit(m: np.ndarray, color: np.ndarray):
    """Least squares with a little ridge; returns the share of right answers on other states."""
    mean, spread = m.mean(0), m.std(0) + 1e-6
    x = np.column_stack([(m - mean) / spread, np.ones(len(m))])
    weights = np.linalg.solve(x.T @ x + 1e-2 * len(x) * np.eye(x.shape[1]), x.T @ (2.0 * color - 1))

    def accuracy(m: np.ndarray, color: np.ndarray) -> float:
        x = np.column_stack([(m - mean) / spread, np.ones(len(m))])
        return float(((x @ weights > 0) == (color == 1)).mean())

    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--from-step", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=150, help="training episodes to fit the probe to")
    parser.add_argument("--oracle", type=int, default=0, help="episodes of the oracle to probe, too")
    parser.add_argument("--checkpoint", default="last")
    options = parser.parse_args()
    torch.set_num_threads(1)
    manifest = open_run(options.run)
    memory = load_model(manifest, options.checkpoint), spec_of(manifest)
    trajectories, first = options.run / "trajectories", options.from_step
    accuracy = fit(*stored(memory, trajectories / "train", options.episodes, first)[:2])
    sources = [("test episodes", stored(memory, trajectories / "test", 10**9, first))]
    if options.oracle:
        sources.append(("oracle's episodes", played(memory, options.oracle, first)))
    for name, (m, color, count) in sources:
        print(f"{count} {name}, {len(m):,} steps from step {first} on: {accuracy(m, color):.1%} right")


if __name__ == "__main__":
    main()
