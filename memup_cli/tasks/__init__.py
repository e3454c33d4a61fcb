"""Tasks register through the entry-point group `memup.tasks`, built-in ones and plug-ins alike."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from ..errors import UsageProblem
from .spec import Task

GROUP = "memup.tasks"
OURS = "memup"  # the package of the built-in ones


@cache
def _entries() -> dict[str, list[EntryPoint]]:
    """What is registered under each name, what is used first: of several, our own."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (package(entry) != OURS, package(entry))):
        found.setdefault(entry.name, []).append(entry)
    return found


def package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def task_names() -> list[str]:
    return sorted(_entries())


def unused(name: str) -> str:
    """What to say of other packages that have a task of the same name; empty if none has."""
    used, *others = _entries()[name]
    if not others:
        return ""
    return (
        f"{name} is the task of the package {package(used)}; that of {', '.join(map(package, others))} has the same "
        "name and is not used. Register it under another."
    )


def load_task(name: str) -> type[Task]:
    """The class of a task; UsageProblem names the known ones, or says why a plug-in does not load."""
    from .checks import wrong_kind  # it needs the options of stages, which help does without
    from .own.blame import described

    if name not in _entries():
        raise UsageProblem(f"there is no task {name!r}. Known tasks: {', '.join(task_names())}.")
    entry = _entries()[name][0]
    try:
        loaded: type[Task] = entry.load()
    except Exception as error:  # a plug-in can fail in any way; the others must go on working
        raise does_not_load(name, described(error)) from error
    if problem := wrong_kind(loaded):
        raise does_not_load(name, problem)
    return loaded


def does_not_load(name: str, problem: str) -> UsageProblem:
    return UsageProblem(
        f"the task {name!r} ({_entries()[name][0].value}) does not load: {problem}. Mend or uninstall the package that "
        "it comes from."
    )
