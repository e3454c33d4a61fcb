"""What is to be predicted at each step: a stored field, or the discounted return, computed while streaming."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stores.layout import Field

from ..errors import BadInput
from ..tasks.spec import TaskSpec

TARGET = "y"
_NEGLIGIBLE = 1e-12  # discount below which rewards no longer count, within one block of the sum


def discounted_returns(rewards: np.ndarray, gamma: float) -> np.ndarray:
    """R_k = sum over i >= k of gamma^(i-k) r_i, without a Python loop per step."""
    return _returns(rewards, gamma, _side_by_side(len(rewards), gamma), 0, Ahead())[0]


@dataclass(frozen=True)
class Ahead:
    """What follows the steps of a sum, as far as it is known from the episode's end."""

    rest: float | None = None  # of the block that they are in, not discounted to its end: None if they end it
    carry: float = 0.0  # the return after that block


def _side_by_side(length: int, gamma: float) -> int:
    """Steps of a block that is summed beside others: so few that gamma^-n stays finite."""
    if gamma in (0, 1):
        return length
    return max(1, min(length, int(np.log(_NEGLIGIBLE) / np.log(gamma))))


def _returns(rewards: np.ndarray, gamma: float, size: int, offset: int, ahead: Ahead) -> tuple[np.ndarray, Ahead]:
    """Returns of some blocks of `size` steps, or of a part of one from `offset` on; and what is ahead of those before.

    Blocks are summed side by side; what follows a block enters as a carry. Each number comes from the same operations
    in the same order however the steps are cut, so that it is the same to the last bit.
    """
    rewards = rewards.astype(np.float64)
    if gamma == 0:
        return rewards, ahead
    width = size if not offset and len(rewards) >= size else len(rewards)
    blocks = -(-len(rewards) // width)
    table = np.zeros((blocks, width))
    table.reshape(-1)[: len(rewards)] = rewards
    powers = gamma ** np.arange(offset, offset + width)
    table *= powers
    if ahead.rest is not None:
        table[-1, -1] += ahead.rest
    sums = np.cumsum(table[:, ::-1], axis=1)[:, ::-1]
    if gamma == 1:
        return sums.reshape(-1), Ahead(float(sums[0, 0]))
    within = sums / powers  # returns up to each block's end
    carry = np.append(np.zeros(blocks), ahead.carry)
    for b in range(blocks - 1, -1, -1):
        carry[b] = within[b, 0] + gamma**size * carry[b + 1]
    before = Ahead(float(sums[0, 0]), ahead.carry) if offset else Ahead(None, float(carry[0]))
    within += gamma ** np.arange(size - offset, size - offset - width, -1) * carry[1:, None]
    return within.reshape(-1)[: len(rewards)], before


class Returns:
    """The returns of a long episode, from its start on, with one piece of it in RAM.

    Returns need the future: the episode is first walked through from its end, and what is ahead of each piece is kept,
    two numbers. They are the same, to the last bit, as those of the whole episode.
    """

    def __init__(self, read: Callable[[int, int], np.ndarray], length: int, gamma: float, piece: int) -> None:
        """read: rewards of steps [start, stop) of the episode; piece: steps that it is asked for at a time, at most."""
        self._read, self._gamma = read, gamma
        self._size = _side_by_side(length, gamma)
        span = self._size * max(1, piece // self._size)  # whole blocks; one that is longer than a piece is cut
        starts = [at for first in range(0, length, span) for at in range(first, min(first + span, length), piece)]
        self._edges = np.array([*starts, length])
        self._ahead = [Ahead()] * len(starts)
        for i in range(len(starts) - 1, 0, -1):
            self._ahead[i - 1] = self._piece(i)[1]
        self._last: tuple[int, np.ndarray] = (-1, np.empty(0))

    def _piece(self, i: int) -> tuple[np.ndarray, Ahead]:
        start, stop = int(self._edges[i]), int(self._edges[i + 1])
        return _returns(self._read(start, stop), self._gamma, self._size, start % self._size, self._ahead[i])

    def __call__(self, start: int, stop: int) -> np.ndarray:
        """Those of steps [start, stop); quick if it begins where the last call ended."""
        parts = []
        for i in range(int(np.searchsorted(self._edges, start, "right")) - 1, int(np.searchsorted(self._edges, stop))):
            if self._last[0] != i:
                self._last = i, self._piece(i)[0]
            first = int(self._edges[i])
            parts.append(self._last[1][max(start - first, 0) : stop - first])
        return np.concatenate(parts)


def is_stored(spec: TaskSpec, gamma: float) -> bool:
    """Whether y is what the step itself holds; otherwise it takes those that follow."""
    return spec.target_kind != "return" or gamma == 0


def return_targets(spec: TaskSpec, returns: Callable[[], np.ndarray]) -> np.ndarray:
    """Returns as they are predicted."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = returns().astype(np.float32)
    if not np.isfinite(found).all():
        raise BadInput(
            f"the return of an episode is not finite: its `{spec.target}` holds extreme values. Use a smaller "
            "--gamma, or collect other data."
        )
    return found


def target_field(spec: TaskSpec) -> Field:
    stored = next(f for f in spec.fields if f.name == spec.target)
    return Field(TARGET, "float32" if spec.target_kind == "return" else stored.dtype)
