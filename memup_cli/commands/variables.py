"""MEMUP_* variables that nothing reads are errors: a misspelt or an old one would be silently without effect."""

import difflib
import os
from collections.abc import Iterator
from typing import Any

from ..errors import UsageProblem
from ..options.collect_options import CollectOptions
from ..options.command_line import variable
from ..options.common import STAGES
from ..options.old_names import old_variable
from .collect import TaskGroup

PREFIX = "MEMUP_"
COMMANDS = (*STAGES[:-1], "evaluate memory", "evaluate agent", "evaluate baselines")
OTHERS = {
    "MEMUP_MNIST_MIRRORS": "where tasks/mnist.py downloads from",
    "MEMUP_MNIST_DIR": "the tests' copy of MNIST; CI exports it",
    "MEMUP_BROWSER": "the tests' browser",
}
TESTS = "MEMUP_TESTS_"  # how the tests are run; CI exports them to all that it runs


def refuse_unknown(memup: Any, context: Any) -> None:
    """UsageProblem if a variable is neither an option of any command nor one of the others."""
    given = {name for name, value in os.environ.items() if name.startswith(PREFIX) and value}
    unknown = {name for name in given - OTHERS.keys() if not name.startswith(TESTS)}
    unknown -= (
        known := {*_of_commands(memup, context), *(variable("collect", n) for n in CollectOptions.model_fields)}
    )
    if not unknown:
        return
    unknown -= (tasks := set(_of_tasks(memup, context)))  # after the others: this imports every task
    for name in sorted(unknown):
        raise UsageProblem(f"{_advice(name, known | tasks)}. Correct it, or unset it.")


def _advice(name: str, known: set[str]) -> str:
    """What there is instead of a variable that nothing reads."""
    if now := [new for command in COMMANDS if (new := variable(command, name.removeprefix(PREFIX))) in known]:
        return f"the environment variable {name} is now {' or '.join(now)}"
    if told := old_variable(name, os.environ[name]):
        return f"the environment variable {told}"
    near = difflib.get_close_matches(name, sorted(known | OTHERS.keys()), 1, 0)
    return (
        f"nothing reads the environment variable {name}; the nearest that is read is {near[0]}. `memup COMMAND --help` "
        "lists the options: --dry-run is MEMUP_DRY_RUN, and --batch of train-memory is MEMUP_TRAIN_MEMORY_BATCH"
    )


def _of_commands(group: Any, context: Any) -> Iterator[str]:
    for command in group.commands.values():
        yield from _variables(command)
        if hasattr(command, "commands"):
            yield from _of_commands(command, context)


def _of_tasks(memup: Any, context: Any) -> Iterator[str]:
    for group in memup.commands.values():
        for name in group.list_commands(context) if isinstance(group, TaskGroup) else ():
            yield from _variables(group.get_command(context, name))


def _variables(command: Any) -> Iterator[str]:
    yield from (parameter.envvar for parameter in command.params if getattr(parameter, "envvar", None))
