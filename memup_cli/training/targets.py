"""What is to be predicted at each step: a stored field, or the discounted return, computed while streaming."""

import numpy as np

from stores.layout import Field

from ..errors import BadInput
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec

TARGET = "y"
_NEGLIGIBLE = 1e-12  # discount below which rewards no longer count, within one block of the sum


def discounted_returns(rewards: np.ndarray, gamma: float) -> np.ndarray:
    """R_k = sum over i >= k of gamma^(i-k) r_i, without a Python loop per step.

    Blocks short enough for gamma^-n to stay finite are summed side by side; what follows a block enters as a carry.
    """
    rewards = rewards.astype(np.float64)
    if gamma == 0:
        return rewards
    if gamma == 1:
        return np.cumsum(rewards[::-1])[::-1]
    size = max(1, min(len(rewards), int(np.log(_NEGLIGIBLE) / np.log(gamma))))
    blocks = -(-len(rewards) // size)
    padded = np.zeros(blocks * size)
    padded[: len(rewards)] = rewards
    powers = gamma ** np.arange(size)
    table = padded.reshape(blocks, size) * powers
    within = np.cumsum(table[:, ::-1], axis=1)[:, ::-1] / powers  # returns up to each block's end
    carry = np.zeros(blocks + 1)
    for b in range(blocks - 1, -1, -1):
        carry[b] = within[b, 0] + gamma**size * carry[b + 1]
    within += gamma ** np.arange(size, 0, -1) * carry[1:, None]
    return within.reshape(-1)[: len(rewards)]


def targets(spec: TaskSpec, arrays: dict[str, np.ndarray], gamma: float) -> np.ndarray:
    """y of every step of a whole episode."""
    if spec.target_kind == "return":
        with np.errstate(over="ignore", invalid="ignore"):
            found = discounted_returns(arrays[spec.target], gamma).astype(np.float32)
        if not np.isfinite(found).all():
            raise BadInput(
                f"the return of an episode is not finite: its `{spec.target}` holds extreme values. Use a smaller "
                "--gamma, or collect other data."
            )
        return found
    return arrays[spec.target]


def target_field(spec: TaskSpec) -> Field:
    stored = next(f for f in spec.fields if f.name == spec.target)
    return Field(TARGET, "float32" if spec.target_kind == "return" else stored.dtype)


def previous_action_field(spec: TaskSpec) -> Field:
    action = next(f for f in spec.fields if f.name == "action")
    if "action" in spec.classes:
        return Field(PREVIOUS_ACTION, "int32")  # room for the number that means none
    return Field(PREVIOUS_ACTION, action.dtype, action.shape)


def previous_actions(spec: TaskSpec, before: np.ndarray, at_start: bool) -> np.ndarray:
    """Actions one step late; `before` begins one step earlier unless the episode does. None: one past the classes."""
    field = previous_action_field(spec)
    none = spec.classes.get("action", 0)
    late = before.astype(field.numpy)
    if not at_start:
        return late
    first = np.full((1, *field.shape), none, field.numpy)
    return np.concatenate([first, late])
