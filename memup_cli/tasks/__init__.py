"""Tasks register through the entry-point group `memup.tasks`, built-in ones and plug-ins alike."""

from ..errors import UsageProblem
from ..registry import Entry, Registry
from .spec import Task

GROUP = "memup.tasks"
TASKS: Registry[Entry] = Registry("task", {}, Entry(""), GROUP)


def task_names() -> list[str]:
    return sorted(TASKS.names)


def unused(name: str) -> str:
    """What to say of other packages that have a task of the same name; empty if none has."""
    return TASKS.unused(name)


def load_task(name: str) -> type[Task]:
    """The class of a task; UsageProblem names the known ones, or says why a plug-in does not load."""
    from .checks import wrong_kind  # it needs the options of stages, which help does without

    loaded: type[Task] = TASKS.load(name)
    if problem := wrong_kind(loaded):
        raise does_not_load(name, problem)
    return loaded


def does_not_load(name: str, problem: str) -> UsageProblem:
    return TASKS.wrong(name, f"does not load: {problem}")
