"""How well an agent plays: return, success and length over complete episodes it has not seen, with intervals."""

from functools import partial
from typing import Any

import numpy as np
import torch

from .. import console, randomness
from ..tasks.spec import TaskSpec
from .play.environments import open_arena
from .play.playing import Player
from .policies import Policy

RESAMPLES = 2000
WAYS = ("greedy", "stochastic")


def evaluate(
    policy: Policy,
    config: dict[str, Any],
    task: dict[str, Any],
    spec: TaskSpec,
    episodes: int,
    envs: int,
    seed: int,
    device: torch.device,
    quiet: bool = False,
) -> dict[str, dict[str, Any]]:
    """Play `episodes` greedily and as many as in training (stochastic)."""
    found = {}
    arena = open_arena(task, spec, min(envs, episodes))
    player = Player(arena, policy, device, rollout=1 << 30)
    with console.Progress("evaluate", "episode", len(WAYS) * episodes, quiet=quiet) as bar:
        for i, way in enumerate(WAYS):
            epsilon = config.get("epsilon", 0.0) if way == "stochastic" else 0.0
            columns: list[np.ndarray] = []
            told = partial(_tell, bar, way)
            while sum(len(c) for c in columns) < episodes:  # so many per environment that no short ones are favoured
                drawn = int(
                    randomness.sequence(seed, randomness.EVALUATED_EPISODES, i, len(columns)).generate_state(1)[0]
                )
                columns.append(player.outcomes(drawn, greedy=way == "greedy", epsilon=epsilon, told=told))
                bar.advance(min(len(columns[-1]), (i + 1) * episodes - bar.done))  # those beyond do not count
            found[way] = _measure(np.concatenate(columns)[:episodes], seed)
    arena.close()
    return found


def _tell(bar: console.Progress, way: str, steps: int) -> None:
    bar.advance(0, f"{way}, {steps:,} steps into the next")


def _measure(episodes: np.ndarray, seed: int) -> dict[str, Any]:
    returns, lengths, successes = episodes.T
    data: dict[str, Any] = {
        "episodes": len(episodes),
        "return_mean": float(returns.mean()),
        "return_interval": _bootstrap(returns, seed),
        "length_mean": float(lengths.mean()),
        "length_interval": _bootstrap(lengths, seed),
        "success_rate": None,
        "interval": None,
    }
    known = successes[~np.isnan(successes)]
    if len(known):
        data |= {"success_rate": float(known.mean()), "interval": _wilson(known)}
    return data


def _bootstrap(values: np.ndarray, seed: int) -> list[float]:
    """95% interval of a mean."""
    rng = randomness.stream(seed, randomness.BOOTSTRAP)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    return [float(q) for q in np.quantile(means, [0.025, 0.975])]


def _wilson(successes: np.ndarray) -> list[float]:
    """95% interval of a share (Wilson 1927): honest also where all or none succeeded."""
    count, share, z = len(successes), float(successes.mean()), 1.959964
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return [max(0.0, float(middle - half)), min(1.0, float(middle + half))]
