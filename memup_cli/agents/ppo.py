"""PPO on complete episodes, for a policy on a frozen memory and for recurrent policies.

Advantages are normalised over complete episodes only: in a piece of a very long episode that does not see its end they
are nothing but noise of the value, and normalising would blow that noise up.

An iteration of very long episodes has millions of steps, of which few tell anything. `sample` of them are trained on,
drawn half uniformly and half in proportion to their advantage, and weighted so that the gradient is that of all.
With a frozen memory the unit that is drawn is a step; with a recurrent core it is a segment of `rollout` steps, begun
from the stored state. Where a recording kept some steps for many, those count as many.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import randomness
from ..compute.adam import Adam
from ..tasks.spec import TaskSpec
from .play.recording import Recording, final_states, sweep, to_device
from .policies import ActorCritic, prepared

FEWEST_SEGMENTS = 8  # per update: long ones cost no more time side by side


class PPO:
    """Learns from one recording after the other. Its state is the policy's weights and the optimiser's."""

    policy_class = ActorCritic
    keeps_all = False  # some steps of very long episodes may stand for many

    def __init__(self, policy: ActorCritic, spec: TaskSpec, config: dict[str, Any], device: torch.device) -> None:
        self.policy, self._config, self._device = policy, config, device
        self._own = [p for p in policy.parameters() if p.requires_grad]
        self.optimiser = Adam(self._own, lr=config["lr"], eps=1e-5)
        self._scales = torch.tensor([-1.0, 0.5, -config["entropy"], 0.0], device=device)  # of _update()'s means
        self._width = config["rollout"]

    def state(self) -> dict[str, Any]:
        return {"policy": self.policy.own_state(), "optimiser": self.optimiser.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.policy.load_own(state["policy"])
        self.optimiser.load_state_dict(state["optimiser"])

    def epsilon(self, _: float) -> float:
        return 0.0  # exploration is the policy's own

    def learn(self, recording: Recording, seed: int, share: float) -> dict[str, float]:
        """Train on a recording; share = how much of the training lies behind."""
        config = self._config
        advantage, target = self.advantages(recording)
        played = played_rows(recording)
        mean, spread = _moments(advantage[played], recording.weights(played))
        advantage = (advantage - mean) / (spread + 1e-8)
        self.optimiser.lr = config["lr"] * (1 - 0.9 * share)
        rng = randomness.stream(seed, randomness.PPO_BATCHES)
        if self.policy.frozen:
            batches = self._step_batches(recording, advantage, target, played, rng)
        else:
            batches = self._segment_batches(recording, advantage, target, rng)
        totals = torch.zeros(4, device=self._device)
        count = 0
        for batch in batches:
            totals += self._update(batch)
            count += 1
        means = totals / max(count, 1)
        _, value_loss, entropy, clipped = means.tolist()
        loss = float(means @ self._scales)
        return {"loss": loss, "entropy": entropy, "clipped": clipped, "value_loss": value_loss}

    def _update(self, batch: dict[str, Tensor]) -> Tensor:
        """One optimiser step on a batch: of steps (B,), or of segments (B, r) with their first state.

        Weighted means (4,): gain, squared error of the value, entropy, how many ratios were clipped.
        """
        config, policy = self._config, self.policy
        if "features" in batch:
            features = batch["features"]
        elif "m" in batch:
            features = policy.look(batch, batch["m"])
        else:
            state = tuple(batch[f"state.{i}"] for i in range(sum(name.startswith("state.") for name in batch)))
            m, _ = policy.remember({name: batch[name] for name in policy.seen}, state)
            features = policy.look(batch, m)
        log_prob, entropy = policy.log_prob(features, batch["action"])
        ratio = (log_prob - batch["log_prob"]).exp()
        limited = ratio.clamp(1 - config["clip"], 1 + config["clip"])
        gain = torch.minimum(ratio * batch["advantage"], limited * batch["advantage"])
        error = (policy.value(features) - batch["target"]) ** 2
        terms = torch.stack([gain, error, entropy, (ratio != limited).float()]).flatten(1)  # (4, B or B * r)
        means = terms @ (batch["weight"] / batch["weight"].sum()).flatten()
        self.optimiser.zero_grad()
        (means @ self._scales).backward()
        torch.nn.utils.clip_grad_norm_(self._own, config["max_grad"])
        self.optimiser.step()
        return means.detach()

    def _values(self, recording: Recording) -> np.ndarray:
        """The critic's values of all rows; rows that were not played hold zeros."""
        value = np.zeros(recording.reward.size, np.float32)
        critic = prepared(self.policy.critic)
        for part in sweep(recording, self.policy, self._width, self._device):
            with torch.inference_mode():
                values = critic(self.policy.look(part.arrays, part.m).flatten(0, 1)).view(part.rows.shape)
            value[part.rows[part.exists]] = values.cpu().numpy()[part.exists]
        return value

    def _log_probs(self, features: Tensor, action: Tensor) -> Tensor:
        """Of the actions taken, before the policy changes."""
        with torch.inference_mode():
            return self.policy.log_prob(features, action)[0]

    def advantages(self, recording: Recording) -> tuple[np.ndarray, np.ndarray]:
        """Generalised advantage estimates and value targets, per row."""
        config, envs, value = self._config, recording.envs, self._values(recording)
        following = np.append(value[envs:], np.zeros(envs, np.float32))
        following[recording.ended.reshape(-1)] = 0
        if recording.final:
            following[recording.final["row"]] = self._final_values(recording)
        reward = recording.reward.reshape(-1) / float(self.policy.reward_unit)
        delta = reward + config["gamma"] * following - value
        advantage = decayed_sums(recording, delta, config["gamma"] * config["gae"], self._width)
        return advantage, advantage + value

    def _final_values(self, recording: Recording) -> np.ndarray:
        """Values of what episodes saw last that were cut by a time limit: they would have gone on."""
        with torch.inference_mode():
            arrays = {name: to_device(recording.final[name], self._device) for name in self.policy.observed}
            m = final_states(recording, self.policy, self._device)
            values: np.ndarray = self.policy.value(self.policy.look(arrays, m)).cpu().numpy()
        return values

    def _step_batches(
        self,
        recording: Recording,
        advantage: np.ndarray,
        target: np.ndarray,
        played: np.ndarray,
        rng: np.random.Generator,
    ) -> Iterator[dict[str, Tensor]]:
        """Steps drawn once, in a new order every epoch; as features, or as images and memory states to learn to see."""
        config, device = self._config, self._device
        chosen, weight = draw(np.abs(advantage[played]), config["sample"], rng, recording.weights(played))
        rows = played[chosen]
        m, action = self._states_at(recording, rows), recording.take(rows, ("action",), device)["action"]
        tensors = {name: to_device(v, device) for name, v in (("advantage", advantage[rows]), ("target", target[rows]))}
        tensors |= {"action": action, "weight": to_device(weight, device)}
        if not self.policy.learns_to_see:
            with torch.no_grad():  # images, if there are any, some at a time
                tensors["features"] = self.policy.look(recording.take(rows, self.policy.observed, device), m)
            tensors["log_prob"] = self._log_probs(tensors["features"], action)
            for drawn in self._minibatches(len(rows), rng):
                yield {name: values[to_device(drawn, device)] for name, values in tensors.items()}
            return
        tensors |= {"m": m, "log_prob": torch.empty_like(tensors["advantage"])}
        for first in range(0, len(rows), config["minibatch"]):
            part = slice(first, first + config["minibatch"])
            with torch.inference_mode():
                features = self.policy.look(recording.take(rows[part], self.policy.observed, device), m[part])
            tensors["log_prob"][part] = self._log_probs(features, action[part])
        for drawn in self._minibatches(len(rows), rng):
            batch = {name: values[to_device(drawn, device)] for name, values in tensors.items()}
            yield batch | recording.take(rows[drawn], self.policy.observed, device)

    def _minibatches(self, count: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
        size = self._config["minibatch"]
        for _ in range(self._config["epochs"]):
            order = rng.permutation(count)
            for first in range(0, count, size):
                yield order[first : first + size]

    def _states_at(self, recording: Recording, rows: np.ndarray) -> Tensor:
        """Memory states of some rows, kept or computed again segment by segment."""
        if recording.m is not None:
            return recording.m[to_device(rows, self._device)]
        unique, back = np.unique(rows, return_inverse=True)
        place = np.full(recording.reward.size, -1, np.int64)
        place[unique] = np.arange(len(unique))
        states = torch.empty(len(unique), self.policy.core.size, device=self._device)
        at, exists = recording.rows(np.arange(len(recording.segments)), self._width)
        needed = (exists & (place[at] >= 0)).any(1)
        for part in sweep(recording, self.policy, self._width, self._device, only=needed):
            wanted = part.exists & (place[part.rows] >= 0)
            states[to_device(place[part.rows[wanted]], self._device)] = part.m[to_device(wanted, self._device)]
        return states[to_device(back, self._device)]

    def _segment_batches(
        self, recording: Recording, advantage: np.ndarray, target: np.ndarray, rng: np.random.Generator
    ) -> Iterator[dict[str, Tensor]]:
        """Segments drawn once, in a new order every epoch, each with the state that the core began it with."""
        config = self._config
        everything = np.arange(len(recording.segments))
        rows, exists = recording.rows(everything, self._width)
        size = np.where(exists, np.abs(advantage[rows]), 0).sum(1)
        stands_for = recording.weights(recording.segments[:, 0])
        chosen, weight = draw(size, max(1, config["sample"] // self._width), rng, stands_for)
        log_prob = np.zeros(recording.reward.size, np.float32)
        for part in sweep(recording, self.policy, self._width, self._device, only=np.isin(everything, chosen)):
            before = self._log_probs(self.policy.look(part.arrays, part.m), part.arrays["action"])
            log_prob[part.rows[part.exists]] = before.cpu().numpy()[part.exists]
        per_batch = max(FEWEST_SEGMENTS, config["minibatch"] // self._width)
        for _ in range(config["epochs"]):
            order = rng.permutation(len(chosen))
            for first in range(0, len(order), per_batch):
                drawn = order[first : first + per_batch]
                segments = chosen[drawn]
                at = rows[segments]
                batch = recording.take(at, (*self.policy.seen, "action"), self._device)
                which = to_device(segments, self._device)
                batch |= {f"state.{i}": values[which] for i, values in enumerate(recording.states)}
                weights = weight[drawn, None] * exists[segments].astype(np.float32)
                values = {"log_prob": log_prob[at], "advantage": advantage[at], "target": target[at], "weight": weights}
                yield batch | {name: to_device(v, self._device) for name, v in values.items()}


def played_rows(recording: Recording) -> np.ndarray:
    """All rows that were played, in no particular order."""
    width = int(recording.segments[:, 2].max())
    rows, exists = recording.rows(np.arange(len(recording.segments)), width)
    return rows[exists]


def _moments(values: np.ndarray, stands_for: np.ndarray | None) -> tuple[float, float]:
    """Mean and standard deviation; each value counts as many times as it stands for."""
    if stands_for is None:
        return float(values.mean()), float(values.std())
    mean = np.average(values, weights=stands_for)
    return float(mean), float(np.sqrt(np.average((values - mean) ** 2, weights=stands_for)))


def draw(
    size: np.ndarray, count: int, rng: np.random.Generator, stands_for: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Units to train on and their weights: all if they are no more than `count`; else half by size, half uniformly.

    stands_for: how many units each is there for; None: itself.
    """
    total = len(size)
    if total <= count:
        return np.arange(total), np.ones(total, np.float32) if stands_for is None else stands_for.astype(np.float32)
    sizes = size if stands_for is None else size * stands_for
    units = total if stands_for is None else float(stands_for.sum())
    p = 0.5 / units + 0.5 * size.astype(np.float64) / max(float(sizes.sum(dtype=np.float64)), 1e-12)  # of a unit
    cumulated = np.cumsum(p if stands_for is None else p * stands_for)
    chosen = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right").clip(max=total - 1)
    return chosen, (1 / (p[chosen] * units)).astype(np.float32)


def decayed_sums(recording: Recording, values: np.ndarray, decay: float, width: int) -> np.ndarray:
    """S_t = v_t + decay * S_{t+1} within each episode, per row: segments side by side, then what follows each."""
    rows, exists = recording.rows(np.arange(len(recording.segments)), width)
    table = np.where(exists, values[rows], 0).astype(np.float64)  # (S, r)
    for k in range(width - 2, -1, -1):
        table[:, k] += decay * table[:, k + 1]
    lengths = recording.segments[:, 2]
    env = recording.segments[:, 1]
    goes_on = np.append((env[1:] == env[:-1]) & ~recording.begins[1:], False)  # the next segment continues the episode
    carry = np.zeros(len(table))
    for segment in _waves(goes_on):
        carry[segment] = table[segment + 1, 0] + decay ** lengths[segment + 1] * carry[segment + 1]
    powers = decay ** np.maximum(lengths[:, None] - np.arange(width), 0)
    table += powers * carry[:, None]
    sums = np.zeros(len(values), np.float32)
    sums[rows[exists]] = table[exists]
    return sums


def _waves(goes_on: np.ndarray) -> Iterator[np.ndarray]:
    """Segments that are continued, the last but one of every episode first, then those before them, and so on."""
    stops = np.flatnonzero(~goes_on)
    each = np.arange(len(goes_on))
    distance = stops[np.searchsorted(stops, each)] - each  # to the last segment of the episode
    order = np.argsort(distance, kind="stable")
    edges = np.searchsorted(distance[order], np.arange(1, int(distance.max(initial=0)) + 2))
    for first, stop in itertools.pairwise(edges):
        yield order[first:stop]
