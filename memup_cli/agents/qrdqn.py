"""QR-DQN (Dabney et al. 2018) on (observation, memory state), with prioritised replay.

Steps that decide anything are rare in long episodes, so transitions are replayed in proportion to their last error
(Schaul et al. 2016). The replay holds each memory state once, in half precision: the state after a transition is that
of the next row.
"""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stores.layout import Field

from .. import randomness
from ..compute.adam import Adam
from ..tasks.spec import TaskSpec
from .play.recording import Recording, final_states, sweep, to_device
from .policies import QuantileNetwork

PRIORITY_POWER, CORRECTION_POWER = 0.6, 0.4
REDRAW_EVERY = 8  # updates that share one look at the priorities


class Transitions:
    """A ring of steps in the order they were played; episodes lie in one piece, each with what it saw last."""

    def __init__(self, fields: tuple[Field, ...], capacity: int, size: int) -> None:
        """fields: what is observed, and the action."""
        self.rows = {
            **{field.name: np.zeros((capacity, *field.shape), field.numpy) for field in fields},
            "m": np.zeros((capacity, size), np.float16),
            "reward": np.zeros(capacity, np.float32),
            "terminated": np.zeros(capacity, bool),
        }
        self.priority = np.zeros(capacity, np.float32)  # 0: not a transition
        self.capacity, self._next = capacity, 0

    def add(self, rows: dict[str, np.ndarray], is_transition: np.ndarray) -> None:
        """Append whole episodes; of more than there is room for, the last ones stay."""
        count = len(is_transition)
        if count > self.capacity:
            rows = {name: values[-self.capacity :] for name, values in rows.items()}
            is_transition, count = is_transition[-self.capacity :], self.capacity
        at = (self._next + np.arange(count)) % self.capacity
        for name, values in rows.items():
            self.rows[name][at] = values
        highest = float(self.priority.max(initial=0)) or 1.0
        self.priority[at] = np.where(is_transition, highest, 0)  # new ones are replayed at least once, likely
        self._next = int(at[-1] + 1) % self.capacity

    def draw(self, batches: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Places (batches, size) in proportion to their priority, and weights that undo part of the bias."""
        scaled = self.priority.astype(np.float64) ** PRIORITY_POWER
        cumulated = np.cumsum(scaled)
        drawn = rng.random((batches, size)) * cumulated[-1]
        places = np.searchsorted(cumulated, drawn, side="right").clip(max=self.capacity - 1)
        weights = scaled[places] ** -CORRECTION_POWER
        return places, (weights / weights.max(1, keepdims=True)).astype(np.float32)

    def state(self) -> dict[str, Any]:
        used = int((self.priority > 0).nonzero()[0].max(initial=-1)) + 2
        cut = slice(0, min(used, self.capacity))
        return {
            "next": self._next,
            "priority": torch.from_numpy(self.priority[cut].copy()),
            **{name: torch.from_numpy(values[cut].copy()) for name, values in self.rows.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        self._next = state["next"]
        for name, values in (("priority", self.priority), *self.rows.items()):
            saved = state[name].cpu().numpy()
            values[: len(saved)] = saved


class QRDQN:
    """Learns from one recording after the other. Its state: two networks, the optimiser and the replay."""

    policy_class = QuantileNetwork
    keeps_all = True  # a replay wants every step

    def __init__(self, policy: QuantileNetwork, spec: TaskSpec, config: dict[str, Any], device: torch.device) -> None:
        self.policy, self._config, self._device = policy, config, device
        self._target = copy.deepcopy(policy.head).requires_grad_(False)
        own = [p for p in policy.parameters() if p.requires_grad]
        self.optimiser = Adam(own, lr=config["lr"])
        action = next(f for f in spec.fields if f.name == "action")
        self.replay = Transitions((*policy.sights, action), config["replay"], policy.core.size)
        self._width = config["rollout"]
        middle = (torch.arange(config["quantiles"], device=device) + 0.5) / config["quantiles"]
        self._tau = middle.view(1, -1, 1)

    def state(self) -> dict[str, Any]:
        return {
            "policy": self.policy.own_state(),
            "target": self._target.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "replay": self.replay.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.policy.load_own(state["policy"])
        self._target.load_state_dict(state["target"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.replay.load(state["replay"])

    def epsilon(self, share: float) -> float:
        """Exploration: from every action at random to a few, over the first part of training."""
        config = self._config
        return max(config["epsilon"], 1 - (1 - config["epsilon"]) * share / config["explore"])

    def learn(self, recording: Recording, seed: int, share: float) -> dict[str, float]:
        config = self._config
        self._remember(recording)
        rng = randomness.stream(seed, randomness.QRDQN_BATCHES)
        updates = max(1, round(recording.steps * config["replay_ratio"] / config["minibatch"]))
        updates = min(updates, config["updates_at_most"])
        self.optimiser.lr = config["lr"] * (1 - 0.8 * share)
        total = torch.zeros((), device=self._device)
        for first in range(0, updates, REDRAW_EVERY):
            batches = min(REDRAW_EVERY, updates - first)
            places, weights = self.replay.draw(batches, config["minibatch"], rng)
            for place, weight in zip(places, weights, strict=True):
                loss, error = self._update(place, weight)
                total += loss
                self.replay.priority[place] = error.cpu().numpy() + 1e-3
        return {"loss": float(total) / updates, "updates": float(updates)}

    def _update(self, place: np.ndarray, weight: np.ndarray) -> tuple[Tensor, Tensor]:
        """One optimiser step on a batch of transitions; the loss, and how far off each was."""
        config, rows = self._config, self.replay.rows
        following = (place + 1) % self.replay.capacity
        both = np.concatenate([place, following])
        seen = {name: self._to_device(rows[name][both]) for name in self.policy.observed}
        features = self.policy.look(seen, self._to_device(rows["m"][both]).float())
        now, then = features[: len(place)], features[len(place) :]
        action = self.policy.numbered(self._to_device(rows["action"][place]))
        with torch.no_grad():
            best = self.policy(then).mean(-1).argmax(-1)  # chosen by the network, valued by the target network
            future = self._target(then).unflatten(-1, (self.policy.actions, self.policy.quantiles))
            future = future[torch.arange(len(best), device=best.device), best]  # (B, Q)
            alive = (~self._to_device(rows["terminated"][place])).unsqueeze(-1)
            wanted = self._to_device(rows["reward"][place]).unsqueeze(-1) + config["gamma"] * alive * future
        predicted = self.policy(now)[torch.arange(len(place), device=action.device), action]  # (B, Q)
        difference = wanted.unsqueeze(1) - predicted.unsqueeze(2)  # (B, Q, Q): wanted against predicted
        huber = torch.where(difference.abs() <= 1, 0.5 * difference**2, difference.abs() - 0.5)
        each = ((self._tau - (difference.detach() < 0).float()).abs() * huber).mean(2).sum(1)
        loss = (each * self._to_device(weight)).mean()
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config["max_grad"])
        self.optimiser.step()
        with torch.no_grad():
            for slow, fast in zip(self._target.parameters(), self.policy.head.parameters(), strict=True):
                slow.lerp_(fast, config["target_rate"])
        return loss.detach(), (wanted.mean(1) - predicted.detach().mean(1)).abs()

    def _to_device(self, values: np.ndarray) -> Tensor:
        return to_device(values, self._device)

    def _remember(self, recording: Recording) -> None:
        """Write a recording into the replay: its episodes one after the other, with their memory states."""
        flat = {
            **recording.flat((*self.policy.observed, "action")),
            "reward": recording.reward.reshape(-1) / float(self.policy.reward_unit),
            "terminated": recording.terminated.reshape(-1),
        }
        seen_last = self._seen_last(recording) if recording.final else {}
        cut_row = recording.final["row"] if recording.final else np.zeros(0, np.int64)
        by_row = np.argsort(cut_row)
        for part in sweep(recording, self.policy, self._width, self._device):
            at = part.rows[part.exists]
            columns = {name: values[at] for name, values in flat.items()}
            columns["m"] = part.m.cpu().numpy()[part.exists].astype(np.float16)
            is_transition = np.ones(len(at), bool)
            cuts = np.flatnonzero(np.isin(at, cut_row))
            if len(cuts):  # what a cut episode saw last goes right behind its last step
                which = by_row[np.searchsorted(cut_row[by_row], at[cuts])]
                for name in columns:
                    columns[name] = np.insert(columns[name], cuts + 1, seen_last[name][which], axis=0)
                is_transition = np.insert(is_transition, cuts + 1, False)
            self.replay.add(columns, is_transition)

    def _seen_last(self, recording: Recording) -> dict[str, np.ndarray]:
        count = len(recording.final["row"])
        m = final_states(recording, self.policy, self._device)
        return {
            **{name: recording.final[name] for name in self.policy.observed},
            "m": m.cpu().numpy().astype(np.float16),
            "action": np.zeros_like(self.replay.rows["action"][:1]).repeat(count, 0),
            "reward": np.zeros(count, np.float32),
            "terminated": np.zeros(count, bool),
        }
