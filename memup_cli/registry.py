"""A registry: what can be chosen by name, where each is, and one line about it. It imports nothing until it is asked.

What is built in is listed in registries.py. A kind with a group also takes entry points of other packages.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from .blame import described
from .errors import UsageProblem

OURS = "memup"  # the package of the built-in ones


@dataclass(frozen=True)
class Entry:
    """Something built in."""

    where: str  # module:name
    summary: str = ""  # for the help, after the name; empty: the name says it


Kind = TypeVar("Kind", bound=Entry)


@cache
def plugged_in(group: str) -> dict[str, list[EntryPoint]]:
    """What is registered under each name of a group, what is used first: of several, our own."""
    found: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: (package(entry) != OURS, package(entry))):
        found.setdefault(entry.name, []).append(entry)
    return found


def package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def in_words(names: tuple[str, ...], last: str = "or") -> str:
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def imported(where: str) -> Any:
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True, eq=False)
class Registry(Generic[Kind]):
    what: str  # "memory cell"
    built_in: Mapping[str, Kind]
    unknown: Kind  # what is known of those that are not built in
    group: str = ""  # of entry points; empty: others cannot add any

    def entry(self, name: str) -> Kind:
        return self.built_in.get(name, self.unknown)

    @property
    def names(self) -> tuple[str, ...]:
        """The built-in ones as they are listed, then those of other packages."""
        return (*self.built_in, *(name for name in sorted(self._others) if name not in self.built_in))

    @property
    def _others(self) -> dict[str, list[EntryPoint]]:
        return plugged_in(self.group) if self.group else {}

    @property
    def summary(self) -> str:
        """What the help says of each."""
        return "; ".join(f"{name}: {entry.summary}" for name, entry in self.built_in.items() if entry.summary)

    def is_built_in(self, name: str) -> bool:
        return name in self.built_in

    def load(self, name: str) -> Any:
        """What has this name; UsageProblem names the known ones, or says why a plug-in does not load."""
        if name in self.built_in:
            return imported(self.built_in[name].where)
        if name not in self._others:
            raise UsageProblem(f"there is no {self.what} {name!r}. Known {self.what}s: {', '.join(self.names)}.")
        try:
            return self._others[name][0].load()
        except Exception as error:  # a plug-in can fail in any way; the others must go on working
            raise self.wrong(name, f"does not load: {described(error)}") from error

    def wrong(self, name: str, problem: str) -> UsageProblem:
        """What to say of a plug-in that is not what it should be."""
        entry = self._others[name][0]
        return UsageProblem(f"the {self.what} {name!r} ({entry.value}) {problem}. Mend or uninstall {package(entry)}.")

    def unused(self, name: str) -> str:
        """What to say of other packages that have something of the same name; empty if none has."""
        used, *others = [OURS] * (name in self.built_in) + [package(entry) for entry in self._others.get(name, [])]
        if not others:
            return ""
        return (
            f"{name} is the {self.what} of the package {used}; that of {', '.join(others)} has the same name and is "
            "not used. Register it under another."
        )
