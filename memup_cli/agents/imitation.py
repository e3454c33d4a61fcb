"""Learning from the collected episodes before playing: what was done at each observation, and the return it led to.

The memory's part is left out, so what is learned is how to get about, not what to remember: that begins with playing.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from stores.reader import Trajectories

from .. import console
from ..training.targets import discounted_returns
from .playing import to_device
from .policies import ActorCritic
from .senses import OBSERVATION

TOGETHER = 16  # episodes whose steps are mixed; no more of them are in RAM


def imitate(
    policy: ActorCritic,
    episodes: Trajectories,
    config: dict[str, Any],
    device: torch.device,
    seed: int,
    stopped: Callable[[], bool],
    quiet: bool,
) -> None:
    """Pass over the episodes as often as config says; if stopped, the policy is not to be used."""
    passes = config["imitate"]
    policy.leave_out_memory()
    optimiser = torch.optim.Adam([p for p in policy.parameters() if p.requires_grad], lr=config["lr"], fused=True)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 23))))
    losses = torch.zeros(2, device=device)
    with console.Progress("imitate", "episode", passes * len(episodes), 0, quiet=quiet) as bar:
        for _ in range(passes):
            order = rng.permutation(len(episodes))
            for first in range(0, len(order), TOGETHER):
                if stopped():
                    return
                chosen = order[first : first + TOGETHER]
                count = 0
                losses.zero_()
                for batch in _batches(policy, [episodes.episode(int(i)) for i in chosen], config, device, rng):
                    losses += _update(policy, optimiser, batch, config)
                    count += 1
                surprise, error = (losses / max(count, 1)).tolist()
                bar.advance(len(chosen), f"surprise at actions {surprise:.3f}, error of returns {error:.3g}")


def _batches(
    policy: ActorCritic,
    episodes: list[dict[str, np.ndarray]],
    config: dict[str, Any],
    device: torch.device,
    rng: np.random.Generator,
) -> Iterator[dict[str, torch.Tensor]]:
    """Steps of some episodes, in any order."""
    arrays = {name: np.concatenate([e[name] for e in episodes]) for name in (OBSERVATION, "action")}
    returns = np.concatenate([discounted_returns(e["reward"], config["gamma"]) for e in episodes]).astype(np.float32)
    order = rng.permutation(len(returns))
    for first in range(0, len(order), config["minibatch"]):
        drawn = order[first : first + config["minibatch"]]
        batch = {"action": arrays["action"][drawn], "return": returns[drawn]}
        batch[OBSERVATION] = policy.see(arrays[OBSERVATION][drawn])
        yield {name: to_device(values, device) for name, values in batch.items()}


def _update(
    policy: ActorCritic, optimiser: torch.optim.Optimizer, batch: dict[str, torch.Tensor], config: dict[str, Any]
) -> torch.Tensor:
    """One optimiser step; -log pi(a | o) and the squared error of the value (2,)."""
    nothing = torch.zeros(len(batch["return"]), policy.core.size, device=batch["return"].device)
    features = policy.look(batch, nothing)
    log_prob, _ = policy.log_prob(features, batch["action"])
    means = torch.stack([-log_prob, (policy.value(features) - batch["return"]) ** 2]).mean(1)
    optimiser.zero_grad(set_to_none=True)
    (means[0] + 0.5 * means[1]).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), config["max_grad"])
    optimiser.step()
    return means.detach()
