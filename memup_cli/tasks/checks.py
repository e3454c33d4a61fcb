"""Whether a task is what spec.py says: looked at before the first episode, so that no later stage stumbles over it."""

import json
import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ValidationError

from stores.errors import StoreError, UnsafePath
from stores.layout import Field

from ..blame import described
from ..errors import MemupError, UsageProblem
from ..options.agent_options import TrainAgentOptions
from ..options.memory_options import TrainMemoryOptions
from ..options.score_options import ScoreOptions
from ..registries import AGENTS
from .spec import LATE, StepRule, Task, TaskOptions, TaskSpec

KINDS = get_args(get_type_hints(TaskSpec)["target_kind"])
MEMBERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "run_name": ("a str", lambda found: isinstance(found, str)),
    "default_episodes": (
        "two ints: training and test episodes",
        lambda found: len(found) == 2 and all(isinstance(count, int) for count in found),
    ),
    "max_length": ("an int, 1 at least, or None", lambda found: found is None or (type(found) is int and found > 0)),
}
RECIPES = ("hints", "paper", "score", *AGENTS.names)


def make_task(name: str, kind: type[Task], options: TaskOptions) -> Task:
    """The task with its options; UsageProblem tells the author of a plug-in what of it is wrong."""
    with told(name, "__init__"):
        task = kind(options)
    with told(name, "spec"):
        spec = task.spec
        if problem := wrong_spec(spec):
            raise UsageProblem(
                f"the spec of the task {name} is wrong: {problem}. Mend the task; nothing was collected."
            )
    for member, (wanted, fits) in MEMBERS.items():
        with told(name, member):
            if not fits(value := getattr(task, member)):
                raise UsageProblem(
                    f"the `{member}` of the task {name} is {value!r:.60}; it must be {wanted}. Mend the task."
                )
    if not task.vectorised:
        _check_pickled(name, task)
    return task


def _check_pickled(name: str, task: Task) -> None:
    try:
        pickle.dumps(task)
    except Exception as error:  # pickle has no one kind of error
        raise UsageProblem(
            f"the task {name} cannot be sent to worker processes: {error!r}. Open in `episode()` what cannot be "
            "pickled, such as environments, and not in `__init__`."
        ) from error


def run_folder(home: Path, name: str, task: Task) -> Path:
    """Where a task's episodes go if the user does not say."""
    folder = Path(task.run_name)
    if folder.is_absolute() or ".." in folder.parts or not folder.parts:
        raise UnsafePath(
            f"the run_name of the task {name} is {task.run_name!r}, which is no folder below {home}. Mend the task, or "
            "say with --run where its episodes go."
        )
    return home / folder


@contextmanager
def told(name: str, member: str) -> Iterator[None]:
    try:
        yield
    except (MemupError, StoreError, OSError):  # these tell by themselves what to do
        raise
    except Exception as error:
        raise UsageProblem(
            f"the task {name} fails at its `{member}`: {described(error)}. Mend the task; nothing was collected."
        ) from error


def wrong_kind(kind: Any) -> str | None:
    """What of a registered class is not as the Protocol Task has it, before any of its options are known."""
    if not isinstance(kind, type):
        return f"it is {kind!r:.60}, not a class"
    options = getattr(kind, "Options", None)
    if not (isinstance(options, type) and issubclass(options, TaskOptions)):
        return "its `Options` must be a class derived from memup_cli.tasks.spec.TaskOptions"
    for member, wanted in (("summary", str), ("example", str), ("vectorised", bool)):
        if not isinstance(getattr(kind, member, None), wanted):
            return f"it has no `{member}`, which must be a {wanted.__name__} of the class"
    for member in ("spec", "run_name", "default_episodes", "max_length", "typical_length"):
        if not hasattr(kind, member):
            return f"it has no `{member}`"
    if not any(hasattr(kind, member) for member in ("episode", "episodes", "blocks", "items")):
        return "it has no `episode`"
    return None


def wrong_spec(spec: Any) -> str | None:
    """What of a spec is not as TaskSpec says: the member, and what is allowed there."""
    if not isinstance(spec, TaskSpec):
        return f"it is {spec!r:.60}, not a TaskSpec"
    if not spec.fields or not all(isinstance(field, Field) for field in spec.fields):
        return "`fields` must be a tuple of stores.layout.Field, one at least"
    fields = {field.name: field for field in spec.fields}
    if len(fields) < len(spec.fields):
        return f"`fields` has a name twice: {', '.join(field.name for field in spec.fields)}"
    return (
        _wrong_names(spec, fields)
        or _wrong_target(spec, fields)
        or _wrong_rule(spec.evaluate, fields)
        or _wrong_recipes(spec.recipes)
        or _not_json(spec)
    )


def _wrong_names(spec: TaskSpec, fields: dict[str, Field]) -> str | None:
    known = ", ".join(fields)
    late = [name for name, source in LATE.items() if source in fields]
    for member, more in (("memory_input", late), ("query", [])):
        names = getattr(spec, member)
        if not isinstance(names, (tuple, list)):
            return f"`{member}` is {names!r}; it must be a tuple of fields"
        for name in names:
            if name not in fields and name not in more:
                return f"`{member}` names {name!r}; it can have: {', '.join([known, *more])}"
    for member in ("classes", "scale", "components"):
        for name in getattr(spec, member):
            if name not in fields:
                return f"`{member}` names {name!r}; the fields are: {known}"
    for name, count in spec.classes.items():
        if fields[name].numpy.kind == "f":
            return f"`classes` names {name!r}, whose rows are {fields[name].dtype}; classes are stored as integers"
        if type(count) is not int or count < 1:
            return f"`classes` has {count!r} for {name!r}; it must be an int, one at least"
    for name, counts in spec.components.items():
        if fields[name].numpy.kind == "f" or name in spec.classes:
            why = "which `classes` has, too" if name in spec.classes else f"whose rows are {fields[name].dtype}"
            return f"`components` names {name!r}, {why}; its rows are several class numbers, stored as integers"
        wanted = math.prod(fields[name].shape)
        fits = isinstance(counts, tuple) and len(counts) == wanted
        if not (fits and all(type(count) is int and count > 0 for count in counts)):
            return (
                f"`components` has {counts!r:.60} for {name!r}; it must be a tuple of {wanted} ints, one at least each"
            )
    return None


def _wrong_target(spec: TaskSpec, fields: dict[str, Field]) -> str | None:
    if spec.target not in fields:
        return f"`target` is {spec.target!r}; the fields are: {', '.join(fields)}"
    if spec.target_kind not in KINDS:
        return f"`target_kind` is {spec.target_kind!r}; it can be: {', '.join(KINDS)}"
    if fields[spec.target].shape:
        return f"`target` is {spec.target!r}, whose rows have shape {fields[spec.target].shape}; a target is one number"
    if spec.target_kind == "classes" and spec.target not in spec.classes:
        return f"`target_kind` is classes, but `classes` does not say how many {spec.target!r} has"
    if spec.gamma is not None and not (isinstance(spec.gamma, (int, float)) and 0 <= spec.gamma <= 1):
        return f"`gamma` is {spec.gamma!r}; it must be a number from 0 to 1"
    return None


def _wrong_rule(rule: Any, fields: dict[str, Field]) -> str | None:
    if rule is None:
        return None
    if not isinstance(rule, StepRule):
        return f"`evaluate` is {rule!r:.60}; it must be a StepRule, or None for every step"
    if rule.field not in fields:
        return f"`evaluate` names the field {rule.field!r}; the fields are: {', '.join(fields)}"
    shape = fields[rule.field].shape
    if rule.column is None and shape:
        return f"`evaluate` has no column, but the rows of {rule.field!r} have shape {shape}"
    if rule.column is not None and not (len(shape) == 1 and -shape[0] <= rule.column < shape[0]):
        allowed = f"0 to {shape[0] - 1}" if len(shape) == 1 else f"None, as its rows have shape {shape}"
        return f"`evaluate` has the column {rule.column!r} of {rule.field!r}; it can be {allowed}"
    return None


def _wrong_recipes(recipes: Any) -> str | None:
    if not isinstance(recipes, dict) or not all(isinstance(recipe, dict) for recipe in recipes.values()):
        return f"`recipes` is {recipes!r:.60}; it must be a dict of dicts of options"
    for name, recipe in recipes.items():
        if name not in RECIPES:
            return f"`recipes` has {name!r}; it can have: {', '.join(RECIPES)}"
        model: type[BaseModel] = ScoreOptions if name == "score" else TrainMemoryOptions
        values = recipe
        if name in AGENTS.names:
            model, values = TrainAgentOptions, {"agent": name, **recipe}
        try:
            model(**values)
        except ValidationError as error:
            found = error.errors()[0]
            option = ".".join(map(str, found["loc"]))
            if found["type"] == "extra_forbidden":
                return f"`recipes[{name!r}]` has {option!r}; it can have: {', '.join(model.model_fields)}"
            return f"`recipes[{name!r}]` has a wrong {option or 'option'}: {found['msg']}"
    return None


def _not_json(spec: TaskSpec) -> str | None:
    """The manifest keeps the spec; numpy's numbers, for one, are not JSON's."""
    try:
        json.dumps(spec.to_json())
    except (TypeError, ValueError) as error:
        return f"the manifest cannot hold it ({error}); use Python's own numbers and strings"
    return None
