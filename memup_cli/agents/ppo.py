"""PPO on complete episodes, for a policy on a frozen memory and for recurrent policies.

Advantages are normalised over complete episodes only: in a piece of a very long episode that does not see its end they
are nothing but noise of the value, and normalising would blow that noise up.

An iteration of very long episodes has millions of steps, of which few tell anything. `sample` of them are trained on,
drawn half uniformly and half in proportion to their advantage, and weighted so that the gradient is that of all.
With a frozen memory the unit that is drawn is a step, and its memory state is computed again if the states of all
steps would not fit the budget; with a recurrent core it is a segment of `rollout` steps, begun from the stored state.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .playing import OBSERVATION, SEEN, Recording, final_states, sweep, to_device
from .policies import ActorCritic


@dataclass(frozen=True)
class Judged:
    """What the policy made of a recording, per row (T * N,); rows that were not played hold zeros."""

    value: np.ndarray
    log_prob: np.ndarray
    m: np.ndarray | None  # (T * N, H) memory states, if they fit the budget


class PPO:
    """Learns from one recording after the other. Its state is the policy's weights and the optimiser's."""

    def __init__(self, policy: ActorCritic, config: dict[str, Any], device: torch.device, memory: int) -> None:
        self.policy, self._config, self._device, self._memory = policy, config, device, memory
        own = [p for p in policy.parameters() if p.requires_grad]
        self.optimiser = torch.optim.Adam(own, lr=config["lr"], eps=1e-5, fused=True)
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
        judged = self._judge(recording)
        advantage, target = self._advantages(recording, judged.value)
        played = played_rows(recording)
        spread = float(advantage[played].std()) + 1e-8
        advantage = (advantage - float(advantage[played].mean())) / spread
        for group in self.optimiser.param_groups:
            group["lr"] = config["lr"] * (1 - 0.9 * share)
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 18))))
        if self.policy.frozen:
            batches = self._step_batches(recording, judged, advantage, target, played, rng)
        else:
            batches = self._segment_batches(recording, judged, advantage, target, rng)
        totals = torch.zeros(4, device=self._device)
        count = 0
        for batch in batches:
            totals += self._update(batch)
            count += 1
        loss, entropy, clipped, value_loss = (totals / max(count, 1)).tolist()
        return {"loss": loss, "entropy": entropy, "clipped": clipped, "value_loss": value_loss}

    def _update(self, batch: dict[str, Tensor]) -> Tensor:
        """One optimiser step on a batch: of steps (B,) with their m, or of segments (B, r) with their first state."""
        config, policy = self._config, self.policy
        if "m" in batch:
            m = batch["m"]
        else:
            state = tuple(batch[f"state.{i}"] for i in range(sum(name.startswith("state.") for name in batch)))
            m, _ = policy.remember({name: batch[name] for name in SEEN}, state)
        features = policy.look(batch, m)
        log_prob, entropy = policy.log_prob(features, batch["action"])
        weight = batch["weight"] / batch["weight"].sum()
        ratio = (log_prob - batch["log_prob"]).exp()
        limited = ratio.clamp(1 - config["clip"], 1 + config["clip"])
        gain = torch.minimum(ratio * batch["advantage"], limited * batch["advantage"])
        value_loss = (weight * (policy.value(features) - batch["target"]) ** 2).sum()
        mean_entropy = (weight * entropy).sum()
        loss = -(weight * gain).sum() + 0.5 * value_loss - config["entropy"] * mean_entropy
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), config["max_grad"])
        self.optimiser.step()
        clipped = (weight * (ratio != limited)).sum()
        return torch.stack([loss.detach(), mean_entropy.detach(), clipped.detach(), value_loss.detach()])

    def _judge(self, recording: Recording) -> Judged:
        """Values and log-probabilities of everything that was played, a bounded number of segments at a time."""
        rows_total, size = recording.reward.size, self.policy.core.size
        value, log_prob = np.zeros(rows_total, np.float32), np.zeros(rows_total, np.float32)
        keep = self.policy.frozen and rows_total * size * 4 <= self._memory
        kept = np.zeros((rows_total, size), np.float32) if keep else None
        for part in sweep(recording, self.policy, self._width, self._device):
            with torch.inference_mode():
                features = self.policy.look(part.arrays, part.m)
                values, (log_probs, _) = (
                    self.policy.value(features),
                    self.policy.log_prob(features, part.arrays["action"]),
                )
            at = part.rows[part.exists]
            value[at], log_prob[at] = values.cpu().numpy()[part.exists], log_probs.cpu().numpy()[part.exists]
            if kept is not None:
                kept[at] = part.m.cpu().numpy()[part.exists]
        return Judged(value, log_prob, kept)

    def _advantages(self, recording: Recording, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Generalised advantage estimates and value targets, per row."""
        config, envs = self._config, recording.envs
        following = np.append(value[envs:], np.zeros(envs, np.float32))
        following[recording.ended.reshape(-1)] = 0
        if recording.final:
            following[recording.final["row"]] = self._final_values(recording)
        delta = recording.reward.reshape(-1) + config["gamma"] * following - value
        advantage = decayed_sums(recording, delta, config["gamma"] * config["gae"], self._width)
        return advantage, advantage + value

    def _final_values(self, recording: Recording) -> np.ndarray:
        """Values of what episodes saw last that were cut by a time limit: they would have gone on."""
        with torch.inference_mode():
            arrays = {OBSERVATION: to_device(recording.final[OBSERVATION], self._device)}
            m = final_states(recording, self.policy, self._device)
            values: np.ndarray = self.policy.value(self.policy.look(arrays, m)).cpu().numpy()
        return values

    def _step_batches(
        self,
        recording: Recording,
        judged: Judged,
        advantage: np.ndarray,
        target: np.ndarray,
        played: np.ndarray,
        rng: np.random.Generator,
    ) -> Any:
        config = self._config
        chosen, weight = draw(np.abs(advantage[played]), config["sample"], rng)
        rows = played[chosen]
        m = judged.m[rows] if judged.m is not None else self._states_at(recording, rows)
        tensors = recording.take(rows, (OBSERVATION, "action"), self._device)
        tensors |= {
            name: torch.from_numpy(values).to(self._device)
            for name, values in {
                "m": m,
                "log_prob": judged.log_prob[rows],
                "advantage": advantage[rows],
                "target": target[rows],
                "weight": weight,
            }.items()
        }
        for _ in range(config["epochs"]):
            order = torch.from_numpy(rng.permutation(len(rows))).to(self._device)
            for first in range(0, len(rows), config["minibatch"]):
                part = order[first : first + config["minibatch"]]
                yield {name: values[part] for name, values in tensors.items()}

    def _states_at(self, recording: Recording, rows: np.ndarray) -> np.ndarray:
        """Memory states of some rows, computed again segment by segment."""
        unique, back = np.unique(rows, return_inverse=True)
        place = np.full(recording.reward.size, -1, np.int64)
        place[unique] = np.arange(len(unique))
        states = np.empty((len(unique), self.policy.core.size), np.float32)
        at, exists = recording.rows(np.arange(len(recording.segments)), self._width)
        needed = (exists & (place[at] >= 0)).any(1)
        for part in sweep(recording, self.policy, self._width, self._device, only=needed):
            wanted = part.exists & (place[part.rows] >= 0)
            states[place[part.rows[wanted]]] = part.m.cpu().numpy()[wanted]
        return states[back]

    def _segment_batches(
        self,
        recording: Recording,
        judged: Judged,
        advantage: np.ndarray,
        target: np.ndarray,
        rng: np.random.Generator,
    ) -> Any:
        config = self._config
        everything = np.arange(len(recording.segments))
        rows, exists = recording.rows(everything, self._width)
        size = np.where(exists, np.abs(advantage[rows]), 0).sum(1)
        chosen, weight = draw(size, max(1, config["sample"] // self._width), rng)
        per_batch = max(1, config["minibatch"] // self._width)
        for _ in range(config["epochs"]):
            order = rng.permutation(len(chosen))
            for first in range(0, len(order), per_batch):
                part = order[first : first + per_batch]
                segments = chosen[part]
                at = rows[segments]
                batch = recording.take(at, (*SEEN, "action"), self._device)
                which = torch.from_numpy(segments).to(self._device)
                batch |= {f"state.{i}": values[which] for i, values in enumerate(recording.states)}
                batch |= {
                    name: torch.from_numpy(values).to(self._device)
                    for name, values in {
                        "log_prob": judged.log_prob[at],
                        "advantage": advantage[at],
                        "target": target[at],
                        "weight": weight[part, None] * exists[segments].astype(np.float32),
                    }.items()
                }
                yield batch


def played_rows(recording: Recording) -> np.ndarray:
    """All rows that were played, in no particular order."""
    width = int(recording.segments[:, 2].max())
    rows, exists = recording.rows(np.arange(len(recording.segments)), width)
    return rows[exists]


def draw(size: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Units to train on and their weights: all if they are no more than `count`; else half by size, half uniformly."""
    total = len(size)
    if total <= count:
        return np.arange(total), np.ones(total, np.float32)
    p = 0.5 / total + 0.5 * size.astype(np.float64) / max(float(size.sum(dtype=np.float64)), 1e-12)
    cumulated = np.cumsum(p)
    chosen = np.searchsorted(cumulated, rng.random(count) * cumulated[-1], side="right").clip(max=total - 1)
    return chosen, (1 / (p[chosen] * total)).astype(np.float32)


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


def _waves(goes_on: np.ndarray) -> Any:
    """Segments that are continued, the last but one of every episode first, then those before them, and so on."""
    stops = np.flatnonzero(~goes_on)
    each = np.arange(len(goes_on))
    distance = stops[np.searchsorted(stops, each)] - each  # to the last segment of the episode
    order = np.argsort(distance, kind="stable")
    edges = np.searchsorted(distance[order], np.arange(1, int(distance.max(initial=0)) + 2))
    for first, stop in itertools.pairwise(edges):
        yield order[first:stop]
