"""What Two-Colors is worth to players that know more or less of it.

    python examples/experiments/two_colors_players.py [--episodes 20]

The color-blind players are the ones to beat: `green` is right in half of the episodes without any memory. Green heals
in every other episode: left to chance, it may heal in a quarter of 20. `oracle, looking` heads only for what it sees.
"""

import argparse

import numpy as np

from memup_cli.tasks.two_colors.environment import TwoColorsEnv
from memup_cli.tasks.two_colors.players import seeker
from memup_cli.tasks.two_colors.scenario import COLORS

PLAYERS = ("idle", "random", "wrong", "any", "green", "oracle", "oracle, looking")


def play(env: TwoColorsEnv, player: str, episode: int) -> tuple[int, float, int, int]:
    """Steps, return, and how often it found something good and bad."""
    seed, color = divmod(episode, 2)
    _, info = env.reset(seed=seed, options={"good_color": COLORS[color]})
    rng = np.random.default_rng(seed)
    script = None
    if player not in ("idle", "random"):
        script = seeker(env, player.split(",")[0], info["good_color"], rng)
        script.looking = "looking" in player
    rewards, over = [], False
    while not over:
        action = script.action() if script else int(rng.integers(8))
        _, reward, dead, late, _ = env.idle() if player == "idle" else env.step(action)
        rewards.append(reward)
        over = dead or late
    return len(rewards), sum(rewards), sum(r > 0.5 for r in rewards), sum(r < -0.5 for r in rewards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=20)
    count = parser.parse_args().episodes
    env = TwoColorsEnv(objects=True)
    print(f"{'player':16} {'steps':>7} {'return':>7} {'good':>6} {'bad':>6} {'to the end':>11}")
    for player in PLAYERS:
        found = np.array([play(env, player, episode) for episode in range(count)])
        steps, total, good, bad = found.mean(0)
        whole = (found[:, 0] == 1050).mean()
        print(f"{player:16} {steps:7.0f} {total:7.1f} {good:6.1f} {bad:6.1f} {whole:11.0%}")
    env.close()


if __name__ == "__main__":
    main()
