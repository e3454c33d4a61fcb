"""Code of the user's that options name: a module or a file, or a class or function in one."""

import functools
import importlib
import importlib.util
import itertools
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from stores.errors import StoreError
from stores.manifest import Manifest

from ...blame import described
from ...errors import MemupError, UsageProblem


@functools.cache
def import_code(named: str, given: str) -> ModuleType:
    """A module that Python finds, also in the current folder, or a file; UsageProblem says what is wrong.

    given: the option that names it, with its value.
    """
    load = _import_file if named.endswith(".py") else _import_module
    try:
        return load(named, given)
    except MemupError:
        raise
    except (Exception, SystemExit) as error:  # the code is the user's: it may raise anything
        raise UsageProblem(f"{given} failed: {described(error)}. Mend it, or name another.") from error


def is_named(text: str) -> bool:
    """Whether it is MODULE:NAME or path/to/file.py:NAME, of whatever module."""
    module, _, name = text.rpartition(":")
    return bool(module) and name.isidentifier()


def named_in(text: str, option: str) -> Any:
    """The class or function that MODULE:NAME or path/to/file.py:NAME stands for."""
    module, _, name = text.rpartition(":")
    code = import_code(module, f"{option} {text}")
    try:
        found = getattr(code, name, None)
    except Exception as error:  # a module may import what it has only now
        raise UsageProblem(f"{option} {text} failed: {described(error)}. Mend it, or name another.") from error
    if not callable(found):
        there = f"no class or function {name!r}" if found is None else f"{name!r}, but it cannot be called"
        raise UsageProblem(f"{option} {text}: {module} has {there}. Name one that it has.")
    return found


def _import_file(named: str, given: str) -> ModuleType:
    path = Path(named).resolve()
    if not path.is_file():
        raise UsageProblem(
            f"{given}: there is no such file, seen from {Path.cwd()}. Run the command in the folder that it was named "
            "in, or put the file back."
        )
    _refuse_run(given, path)
    _search(path.parent)
    module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path:
        raise UsageProblem(f"{given}: Python has a module {path.stem!r} already. Give the file another name.")
    return module


def _import_module(named: str, given: str) -> ModuleType:
    if os.sep in named:
        raise UsageProblem(f"{given}: that is no module. Name one with dots, or a file that ends in .py.")
    if not _is_in_run(Path.cwd()):
        _search(Path.cwd())
    for name in itertools.accumulate(named.split("."), "{}.{}".format):
        found = importlib.util.find_spec(name)  # imports what comes before the last dot, which was looked at
        if found is None:
            raise UsageProblem(
                f"{given}: there is no module {name!r}, neither installed nor in {Path.cwd()}. Run the command in the "
                "folder that has it, or name a file, such as path/to/envs.py."
            )
        for place in (found.origin if found.has_location else None, *(found.submodule_search_locations or ())):
            _refuse_run(given, Path(place or "/"))
    return importlib.import_module(named)


def _search(folder: Path) -> None:
    """Before what is installed, but after Python's own modules: a queue.py of the user's would take their place."""
    if str(folder) not in sys.path:
        installed = (number for number, place in enumerate(sys.path) if place.endswith("-packages"))
        sys.path.insert(next(installed, len(sys.path)), str(folder))


def _refuse_run(given: str, path: Path) -> None:
    """A run that somebody else made must not bring its own code along."""
    if _is_in_run(path.resolve()):
        raise UsageProblem(f"{given}: {path} lies in a run, and memup runs no code from there. Move it.")


def _is_in_run(path: Path) -> bool:
    return any(_is_run(folder) for folder in (path, *path.parents))


def _is_run(folder: Path) -> bool:
    """Other programs have manifests, too."""
    try:
        return Manifest.exists(folder) and bool(Manifest.load(folder))
    except StoreError:
        return False
