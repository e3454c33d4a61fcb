"""Numbers of a step by their names, and which steps matter, as --matters says: reward=1, or cue[0]!=1."""

import math
import re
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, SerializerFunctionWrapHandler, model_serializer

from stores.layout import Field

from ...errors import UsageProblem
from ..spec import StepRule, TaskOptions, TaskSpec

HELP = (
    "The steps that matter, such as reward=1 or cue[0]!=1: a field or a part of a Dict observation, of several columns "
    "one; of a Discrete part door[1]=1 is class 1 (default: every step)."
)
RULE = re.compile(r"(?P<name>.+?)(\[(?P<column>\d+)\])?\s*(?P<sign>!?=)(?P<value>[^=]+)")


def _checked(text: str | None) -> str | None:
    if text is not None and not ((found := RULE.fullmatch(text)) and _is_number(found["value"])):
        raise ValueError("must be FIELD=NUMBER or FIELD!=NUMBER, such as reward=1 or cue[0]!=1")
    return text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


Matters = Annotated[str | None, AfterValidator(_checked)]


class EnvironmentOptions(TaskOptions):
    """Options of which some are newer than others: runs from before them are those in which they are not given."""

    newer: ClassVar[frozenset[str]] = frozenset({"matters"})

    @model_serializer(mode="wrap")
    def _given(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        usual = {name for name in self.newer if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in values.items() if name not in usual}


def with_rule(spec: TaskSpec, text: str | None) -> TaskSpec:
    """The spec with the rule that --matters gives, if it is given."""
    found = RULE.fullmatch(text or "")
    if not found:
        return spec
    columns = _columns(spec)
    name = found["name"] if found["column"] is None else f"{found['name']}[{int(found['column'])}]"
    if name not in columns:
        several = f"{name}[1]" in columns
        hint = f". Of classes each has a column of 0 and 1: {name}[1]=1 is class 1" if several else ""
        raise UsageProblem(f"--matters {text}: a step has no number {name!r}; it has {', '.join(_ranges(spec))}{hint}")
    field, column = columns[name]
    rule = StepRule(field, float(found["value"]), column, equal=found["sign"] == "=")
    return replace(spec, evaluate=rule, counted="")


def labels(spec: TaskSpec, field: Field) -> list[str]:
    """The names of a field's columns, with those of a Dict's parts; none if it holds images."""
    if field.name == "observation" and sum(count for _, count in spec.parts) == math.prod(field.shape):
        return [name for part in spec.parts for name in _names(*part)] if len(field.shape) < 2 else []
    return _own_names(field)


def _columns(spec: TaskSpec) -> dict[str, tuple[str, int | None]]:
    """Field and column of every number of a step, by each name that it goes by; fields come before parts."""
    found: dict[str, tuple[str, int | None]] = {}
    for names in ([labels(spec, field) for field in spec.fields], map(_own_names, spec.fields)):
        for field, named in zip(spec.fields, names, strict=True):
            found |= {name: (field.name, i if field.shape else None) for i, name in enumerate(named)}
    return found


def _own_names(field: Field) -> list[str]:
    return _names(field.name, math.prod(field.shape)) if len(field.shape) < 2 else []


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]


def _ranges(spec: TaskSpec) -> list[str]:
    """All names, a range for several columns."""
    fields = [(field.name, math.prod(field.shape)) for field in spec.fields if len(field.shape) < 2]
    return [name if count == 1 else f"{name}[0] to {name}[{count - 1}]" for name, count in (*fields, *spec.parts)]
