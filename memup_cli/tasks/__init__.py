"""Tasks register through the entry-point group `memup.tasks`, built-in ones and plug-ins alike."""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from ..errors import UsageProblem
from .spec import Task

GROUP = "memup.tasks"


@cache
def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def task_names() -> list[str]:
    return sorted(_entries())


def load_task(name: str) -> type[Task]:
    """The class of a task; UsageProblem names the known ones, or says why a plug-in does not load."""
    entry = _entries().get(name)
    if entry is None:
        raise UsageProblem(f"there is no task {name!r}. Known tasks: {', '.join(task_names())}.")
    try:
        loaded: type[Task] = entry.load()
    except Exception as error:  # a plug-in can fail in any way; the others must go on working
        raise UsageProblem(
            f"the task {name!r} ({entry.value}) does not load: {error!r}. Mend or uninstall the package that it "
            "comes from."
        ) from error
    return loaded
