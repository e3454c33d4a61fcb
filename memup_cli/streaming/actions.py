"""The action before each step, which is one of the memory's inputs: stored actions, one step late."""

import numpy as np

from stores.layout import Field

from ..tasks.spec import PREVIOUS_ACTION, TaskSpec


def previous_action_field(spec: TaskSpec) -> Field:
    action = next(f for f in spec.fields if f.name == "action")
    if spec.counts("action"):
        return Field(PREVIOUS_ACTION, "int32", action.shape)  # room for the numbers that mean none
    return Field(PREVIOUS_ACTION, action.dtype, action.shape)


def no_action(spec: TaskSpec) -> np.ndarray:
    """What stands for none before an episode's first step (*row): one past the classes, or zeros."""
    field = previous_action_field(spec)
    counts = spec.counts("action")
    return np.array(counts, field.numpy).reshape(field.shape) if counts else np.zeros(field.shape, field.numpy)


def previous_actions(spec: TaskSpec, before: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The actions before some steps (n, *row); none at those that begin an episode (n,)."""
    late = before.astype(previous_action_field(spec).numpy)
    late[begins] = no_action(spec)
    return late


def stored_fields(names: tuple[str, ...]) -> tuple[str, ...]:
    """Fields that memory inputs come from."""
    return tuple(dict.fromkeys("action" if name == PREVIOUS_ACTION else name for name in names))
