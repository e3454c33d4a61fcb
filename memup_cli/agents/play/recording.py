"""What is recorded of the episodes that a policy played, and reading it again: memory states segment by segment.

Of episodes too long for all their steps to stay in RAM, some blocks of steps stand for the others (thinning.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from ...memory.cells import State
from ..policies import Policy

SWEEP_BYTES = 64 << 20  # of features computed at a time


@dataclass
class Recording:
    """Complete episodes of N environments, time first. Row t * N + i is step t of environment i.

    With weights, T counts the steps that were kept: where others were left out, the row before has `ended` as if a time
    limit had cut the episode there.
    """

    arrays: dict[str, np.ndarray]  # (T, N, ...): what the policy saw, and action
    reward: np.ndarray  # (T, N)
    terminated: np.ndarray  # (T, N)
    ended: np.ndarray  # (T, N): terminated, truncated, or followed by steps that were left out
    segments: np.ndarray  # (S, 3): first row, environment, steps; by environment, then time
    states: State  # of the core at the start of each segment, parts (S, n)
    m: torch.Tensor | None  # (T * N, H) memory states, if they fitted the budget
    final: dict[str, np.ndarray]  # (F, ...): what came after rows that ended and did not terminate, and that row
    cut_states: State  # of the core at that row
    returns: np.ndarray  # (E,) of the finished episodes, and below their lengths and successes (nan: unknown)
    lengths: np.ndarray
    successes: np.ndarray
    steps: int  # played, also those that were left out
    weight: np.ndarray | None = None  # (T,): how many steps each stands for; None: all were kept
    begins: np.ndarray = field(init=False)  # (S,) bool: segments that begin an episode

    def __post_init__(self) -> None:
        rows = self.segments[:, 0]
        before = rows - self.envs
        ended = self.ended.reshape(-1)
        self.begins = (before < 0) | ended[np.maximum(before, 0)]

    @property
    def envs(self) -> int:
        return self.reward.shape[1]

    def weights(self, rows: np.ndarray) -> np.ndarray | None:
        """How many steps each row stands for; None: one."""
        return None if self.weight is None else self.weight[rows // self.envs]

    def rows(self, segments: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of some segments (S, width), and which of them exist; others repeat the last one."""
        ahead = np.arange(width)
        first, length = self.segments[segments, 0, None], self.segments[segments, 2, None]
        return first + np.minimum(ahead, length - 1) * self.envs, ahead < length

    def take(self, rows: np.ndarray, names: tuple[str, ...], device: torch.device) -> dict[str, torch.Tensor]:
        return {name: to_device(values[rows], device) for name, values in self.flat(names).items()}

    def flat(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Row by row (T * N, ...)."""
        return {name: self.arrays[name].reshape(-1, *self.arrays[name].shape[2:]) for name in names}


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)


@dataclass(frozen=True)
class Swept:
    """Some segments of a recording, side by side."""

    rows: np.ndarray  # (S, r)
    exists: np.ndarray  # (S, r): a short segment repeats its last row
    arrays: dict[str, torch.Tensor]  # (S, r, ...)
    m: torch.Tensor  # (S, r, H)


def sweep(
    recording: Recording, policy: Policy, rollout: int, device: torch.device, only: np.ndarray | None = None
) -> Iterator[Swept]:
    """Memory states of a bounded number of segments at a time, kept or computed again; `only` some of them (S,)."""
    widest = max(policy.features, getattr(policy.core, "widest", 0))  # an outlook's layers are wider than the features
    size = max(1, SWEEP_BYTES // (rollout * max(8 * widest, policy.row_bytes)))
    wanted = np.arange(len(recording.segments)) if only is None else np.flatnonzero(only)
    for first in range(0, len(wanted), size):
        segments = wanted[first : first + size]
        rows, exists = recording.rows(segments, rollout)
        arrays = recording.take(rows, (*policy.seen, "action"), device)
        with torch.inference_mode():
            if recording.m is not None:
                m = recording.m[to_device(rows, device)]
            else:
                which = to_device(segments, device)
                m, _ = policy.remember(arrays, tuple(part[which] for part in recording.states))
        yield Swept(rows, exists, arrays, m)


def final_states(recording: Recording, policy: Policy, device: torch.device) -> torch.Tensor:
    """Memory states (F, H) at what cut episodes saw last."""
    arrays = {name: to_device(recording.final[name], device).unsqueeze(1) for name in policy.seen}
    with torch.inference_mode():
        m, _ = policy.remember(arrays, recording.cut_states)
        return m.squeeze(1)
