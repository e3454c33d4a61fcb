"""The action and the reward before each step, which can be inputs of the memory: stored fields, one step late."""

import numpy as np

from stores.layout import Field

from ..tasks.spec import TaskSpec


def late_field(spec: TaskSpec, name: str) -> Field:
    stored = next(f for f in spec.fields if f.name == spec.source(name))
    if spec.counts(stored.name):
        return Field(name, "int32", stored.shape)  # room for the numbers that mean none
    return Field(name, stored.dtype, stored.shape)


def none_before(spec: TaskSpec, name: str) -> np.ndarray:
    """What stands for none before an episode's first step (*row): one past the classes, or zeros."""
    field, counts = late_field(spec, name), spec.counts(spec.source(name))
    return np.array(counts, field.numpy).reshape(field.shape) if counts else np.zeros(field.shape, field.numpy)


def late_rows(spec: TaskSpec, name: str, before: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """A late input at some steps, from the rows before (n, *row); none at those that begin an episode (n,)."""
    rows = before.astype(late_field(spec, name).numpy)
    rows[begins] = none_before(spec, name)
    return rows


def stored_fields(spec: TaskSpec, names: tuple[str, ...]) -> tuple[str, ...]:
    """Fields that memory inputs come from."""
    return tuple(dict.fromkeys(spec.source(name) for name in names))
