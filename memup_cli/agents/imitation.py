"""Learning from the collected episodes before playing: what was done at each step, and the return it led to.

What went better than expected is imitated more (advantage-weighted regression, Peng et al. 2019): a step counts
exp(prefer * A), A = (return - value) / spread. Policy and value see the memory's states, so whoever collected need not
have known what the memory knows: of an approach to either of two things, the one that the memory speaks for is learned.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stores.reader import Trajectories

from .. import console, randomness
from ..compute.adam import Adam
from ..compute.pace import give_back
from ..streaming.reading import EpisodeReader
from ..streaming.targets import discounted_returns
from ..tasks.spec import TaskSpec
from .play.recording import to_device
from .policies import ActorCritic

TOGETHER = 16  # episodes whose steps are mixed; no more images are in RAM
SWEEP = 256  # steps whose memory states are computed at a time
HEAVIEST = 20.0  # weight of a step


class Imitation:
    """Passes over the episodes, as many as config says. Its state, with the policy's, is all a checkpoint needs."""

    def __init__(
        self,
        policy: ActorCritic,
        spec: TaskSpec,
        episodes: Trajectories,
        config: dict[str, Any],
        device: torch.device,
        seed: int,
        budget: int,
    ) -> None:
        """budget: bytes of memory states to keep from pass to pass; others are computed again."""
        self._policy, self._config, self._device, self._seed = policy, config, device, seed
        self._lives = _Lives(policy, spec, episodes, config["gamma"], device, budget)
        self._each = math.ceil(len(episodes) / TOGETHER)
        self.done, self.total = 0, config["imitate"] * self._each  # groups of episodes
        policy.open_eyes(True)
        own = [p for p in policy.parameters() if p.requires_grad]
        self._optimiser = Adam(own, lr=config["lr"])
        policy.open_eyes(False)

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "optimiser": self._optimiser.state_dict() if self.done < self.total else None}

    def load(self, state: dict[str, Any]) -> None:
        self.done = state["done"]
        if state["optimiser"] is not None:
            self._optimiser.load_state_dict(state["optimiser"])

    def run(self, stopped: Callable[[], bool], done_more: Callable[[], None], quiet: bool) -> None:
        """Go on to the end, or until stopped; done_more is called after each group of episodes."""
        count, passes = len(self._lives.episodes), self._config["imitate"]
        before = self.done // self._each * count + self.done % self._each * TOGETHER
        self._policy.open_eyes(True)
        with console.Progress("imitate", "episode", passes * count, before, quiet=quiet) as bar:
            while self.done < self.total and not stopped():
                number, group = divmod(self.done, self._each)
                chosen = self._stream(number).permutation(count)[group * TOGETHER : (group + 1) * TOGETHER]
                self._optimiser.lr = self._config["lr"] * (1 - 0.9 * self.done / self.total)
                surprise, error = self._learn([int(i) for i in chosen], self._stream(number, group))
                self.done += 1
                bar.advance(len(chosen), f"surprise at actions {surprise:.3f}, error of returns {error:.3g}")
                done_more()
        self._policy.open_eyes(False)

    def _stream(self, *place: int) -> np.random.Generator:
        return randomness.stream(self._seed, randomness.IMITATED_BATCHES, *place)

    def _learn(self, episodes: list[int], rng: np.random.Generator) -> list[float]:
        steps = _joined([self._lives.live(i) for i in episodes])
        losses, count = torch.zeros(2, device=self._device), 0
        for batch in _batches(steps, self._config["minibatch"], self._device, rng):
            losses += _update(self._policy, self._optimiser, batch, self._config)
            count += 1
        means: list[float] = (losses / max(count, 1)).tolist()
        return means


@dataclass
class _Lives:
    """The episodes as the policy would have lived them: what it sees, its memory's states (T, H), the returns (T,)."""

    policy: ActorCritic
    spec: TaskSpec
    episodes: Trajectories
    gamma: float
    device: torch.device
    budget: int
    _kept: dict[int, np.ndarray] = field(default_factory=dict)

    def live(self, index: int) -> dict[str, np.ndarray]:
        episode = self.episodes.episode(index)
        sight = self.policy.see({name: episode[name] for name in self.policy.observed})
        m = self._kept.get(index)
        if m is None:
            m = self._states(sight, episode)
            if m.nbytes <= self.budget:
                self.budget -= m.nbytes
                self._kept[index] = m
        reward = episode["reward"] / float(self.policy.reward_unit)
        returns = discounted_returns(reward, self.gamma).astype(np.float32)
        return {**sight, "action": episode["action"], "m": m, "return": returns}

    @torch.inference_mode()
    def _states(self, sight: dict[str, np.ndarray], episode: dict[str, np.ndarray]) -> np.ndarray:
        length = len(episode["reward"])
        reader = EpisodeReader(self.spec, 0.0, length, lambda name, start, stop: episode[name][start:stop])
        late = [name for name in self.policy.seen if name not in sight]
        seen = {**sight, **{name: reader(name, 0, length) for name in late}}
        state = self.policy.core.initial(1)
        parts = []
        for first in range(0, length, SWEEP):
            arrays = {name: to_device(v[None, first : first + SWEEP], self.device) for name, v in seen.items()}
            m, state = self.policy.remember(arrays, state)
            parts.append(m[0].cpu().numpy())
        return np.concatenate(parts)


def _joined(episodes: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The steps of all of them; what was read of the single episodes goes back to the system."""
    steps = {name: np.concatenate([episode.pop(name) for episode in episodes]) for name in list(episodes[0])}
    give_back()
    return steps


def _batches(
    steps: dict[str, np.ndarray], size: int, device: torch.device, rng: np.random.Generator
) -> Iterator[dict[str, Tensor]]:
    """In any order."""
    order = rng.permutation(len(steps["return"]))
    for first in range(0, len(order), size):
        yield {name: to_device(values[order[first : first + size]], device) for name, values in steps.items()}


def _update(policy: ActorCritic, optimiser: Adam, batch: dict[str, Tensor], config: dict[str, Any]) -> Tensor:
    """One optimiser step; weighted -log pi(a | o, m) and the squared error of the value (2,)."""
    features = policy.look(batch, batch["m"])
    log_prob, _ = policy.log_prob(features, batch["action"])
    advantage = batch["return"] - policy.value(features)
    better = advantage.detach()
    weight = (config["prefer"] * better / (better.square().mean().sqrt() + 1e-8)).exp().clamp(max=HEAVIEST)
    means = torch.stack([-log_prob * weight / weight.mean(), advantage.square()]).mean(1)
    optimiser.zero_grad()
    (means[0] + 0.5 * means[1]).backward()
    torch.nn.utils.clip_grad_norm_(policy.parameters(), config["max_grad"])
    optimiser.step()
    return means.detach()
