"""What --import names: a module of the user's, or a file, that registers environments."""

import functools
import importlib
import importlib.util
import itertools
import os
import sys
from pathlib import Path

from stores.errors import StoreError
from stores.manifest import Manifest

from ...blame import described
from ...errors import MemupError, UsageProblem


@functools.cache
def import_code(named: str) -> None:
    """Import a module that Python finds, also in the current folder, or a file; UsageProblem says what is wrong."""
    load = _import_file if named.endswith(".py") else _import_module
    try:
        load(named)
    except MemupError:
        raise
    except (Exception, SystemExit) as error:  # the code is the user's: it may raise anything
        raise UsageProblem(f"--import {named} failed: {described(error)}. Mend it, or name another.") from error


def _import_file(named: str) -> None:
    path = Path(named).resolve()
    if not path.is_file():
        raise UsageProblem(
            f"--import {named}: there is no such file, seen from {Path.cwd()}. Run the command in the folder that it "
            "was named in, or put the file back."
        )
    _refuse_run(named, path)
    _search(path.parent)
    module = importlib.import_module(path.stem)
    if Path(module.__file__ or "").resolve() != path:
        raise UsageProblem(f"--import {named}: Python has a module {path.stem!r} already. Give the file another name.")


def _import_module(named: str) -> None:
    if os.sep in named:
        raise UsageProblem(f"--import {named}: that is no module. Name one with dots, or a file that ends in .py.")
    if not _is_in_run(Path.cwd()):
        _search(Path.cwd())
    for name in itertools.accumulate(named.split("."), "{}.{}".format):
        found = importlib.util.find_spec(name)  # imports what comes before the last dot, which was looked at
        if found is None:
            raise UsageProblem(
                f"--import {named}: there is no module {name!r}, neither installed nor in {Path.cwd()}. Run the "
                "command in the folder that has it, or name a file, such as path/to/envs.py."
            )
        for place in (found.origin if found.has_location else None, *(found.submodule_search_locations or ())):
            _refuse_run(named, Path(place or "/"))
    importlib.import_module(named)


def _search(folder: Path) -> None:
    """Before what is installed, but after Python's own modules: a queue.py of the user's would take their place."""
    if str(folder) not in sys.path:
        installed = (number for number, place in enumerate(sys.path) if place.endswith("-packages"))
        sys.path.insert(next(installed, len(sys.path)), str(folder))


def _refuse_run(named: str, path: Path) -> None:
    """A run that somebody else made must not bring its own code along."""
    if _is_in_run(path.resolve()):
        raise UsageProblem(f"--import {named}: {path} lies in a run, and memup runs no code from there. Move it.")


def _is_in_run(path: Path) -> bool:
    return any(_is_run(folder) for folder in (path, *path.parents))


def _is_run(folder: Path) -> bool:
    """Other programs have manifests, too."""
    try:
        return Manifest.exists(folder) and bool(Manifest.load(folder))
    except StoreError:
        return False
