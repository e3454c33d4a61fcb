"""The action before each step, which is one of the memory's inputs: stored actions, one step late."""

import numpy as np

from stores.layout import Field

from ..tasks.spec import PREVIOUS_ACTION, TaskSpec


def previous_action_field(spec: TaskSpec) -> Field:
    action = next(f for f in spec.fields if f.name == "action")
    if "action" in spec.classes:
        return Field(PREVIOUS_ACTION, "int32")  # room for the number that means none
    return Field(PREVIOUS_ACTION, action.dtype, action.shape)


def previous_actions(spec: TaskSpec, before: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """The actions before some steps (n, *row); none, one past the classes, at those that begin an episode (n,)."""
    late = before.astype(previous_action_field(spec).numpy)
    late[begins] = spec.classes.get("action", 0)
    return late


def stored_fields(names: tuple[str, ...]) -> tuple[str, ...]:
    """Fields that memory inputs come from."""
    return tuple(dict.fromkeys("action" if name == PREVIOUS_ACTION else name for name in names))
