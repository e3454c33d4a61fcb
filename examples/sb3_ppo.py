"""PPO of Stable-Baselines3 in a T-Maze, on the frozen memory of a run. The agent itself remembers nothing.

memup collect tmaze --length 100
memup score --run runs/tmaze-100
memup train-memory --run runs/tmaze-100 --rollout 20 --until "rmse<0.1"
pip install stable-baselines3
python examples/sb3_ppo.py runs/tmaze-100
"""

import argparse

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import memup_cli
import memup_cli.envs  # registers memup/TMaze-v0

parser = argparse.ArgumentParser(description="Train PPO in a T-Maze, on the frozen memory of a run.")
parser.add_argument("run", help="run folder with a trained memory")
parser.add_argument("--length", type=int, default=100, help="of the maze (default: %(default)s)")
parser.add_argument("--steps", type=int, default=50_000, help="of training (default: %(default)s)")
parser.add_argument("--episodes", type=int, default=100, help="of evaluation (default: %(default)s)")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

torch.set_num_threads(1)  # fastest for networks as small as these
memory = memup_cli.load_memory(options.run)


def maze() -> gymnasium.Env:
    return memup_cli.MemoryWrapper(gymnasium.make("memup/TMaze-v0", length=options.length), memory)


agent = PPO(
    "MlpPolicy",
    make_vec_env(maze, n_envs=16, seed=options.seed),
    learning_rate=1e-3,
    n_steps=256,
    batch_size=256,
    n_epochs=4,
    normalize_advantage=False,  # one step in a hundred decides: the noise of the others is not to be scaled up
    seed=options.seed,
    device="cpu",
)
agent.learn(options.steps)

unseen = make_vec_env(maze, n_envs=16, seed=options.seed + 1_000_000)
rewards, _ = evaluate_policy(agent, unseen, options.episodes, return_episode_rewards=True)
solved = sum(reward > 0 for reward in rewards) / len(rewards)
print(f"success rate {solved:.2f} over {len(rewards)} episodes of T-Maze-{options.length} (chance: 0.50)")
