"""Errors that a user can do something about, and the exit code of each.

MemupError
├── UsageProblem     2    the command line, a config file or an environment variable is wrong; a package is missing
├── StageMissing     3    an earlier stage is missing, unfinished or stale
├── BadInput        65    data that cannot be used
│   └── FailedEpisode 65  an environment of the user's went wrong in an episode
├── Stopped         75    stopped at a checkpoint; run again to continue
│   └── RankLost    75    another process of the same training is gone
└── Interrupted    130    the same, by Ctrl-C
The stores package has its own (stores/errors.py): 2 package missing, 65 damaged or incomplete, 74 I/O, 75 fenced,
77 unsafe.
"""

from stores import errors as store_errors

_STORE_CODES = {
    store_errors.PackageMissing: 2,
    store_errors.DamagedData: 65,
    store_errors.UnfitEpisode: 65,
    store_errors.Incomplete: 65,
    store_errors.StoreIO: 74,
    store_errors.Fenced: 75,
    store_errors.UnsafePath: 77,
}


class MemupError(Exception):
    """Base: the message is one paragraph, what happened, where, and what to do next."""

    code = 1


class UsageProblem(MemupError):
    code = 2


class StageMissing(MemupError):
    code = 3


class BadInput(MemupError):
    code = 65


class FailedEpisode(BadInput):
    """Says which seed and step it was; who asked for the episode adds its number."""


class Stopped(MemupError):
    code = 75


class RankLost(Stopped):
    pass


class Interrupted(MemupError):
    code = 130


def exit_code(error: BaseException) -> int | None:
    """The exit code of an error that is the user's to mend; None for a bug."""
    if isinstance(error, MemupError):
        return error.code
    for kind, code in _STORE_CODES.items():
        if isinstance(error, kind):
            return code
    if isinstance(error, OSError):
        return 74
    return None
