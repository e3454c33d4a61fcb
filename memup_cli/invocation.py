"""The command that runs, in words that mean the same in another shell: with what MEMUP_* variables gave it."""

import os
import sys
from typing import Any

_TRUE = ("1", "true", "t", "yes", "y", "on")
_from_variables: list[str] = []


def take_variables(options: list[Any]) -> None:
    """Remember which of a command's options come from variables: those that the command line does not name."""
    named = {word.partition("=")[0] for word in sys.argv}
    _from_variables.clear()
    for option in options:
        value = os.environ.get(option.envvar, "") if option.envvar else ""
        if not value or named & {*option.opts, *option.secondary_opts}:
            continue
        if not getattr(option, "is_flag", False):
            _from_variables.extend([option.opts[0], value])
        elif value.lower() in _TRUE:
            _from_variables.append(option.opts[0])
        else:
            _from_variables.extend(option.secondary_opts[:1])


def command_words() -> list[str]:
    return ["memup", *sys.argv[1:], *_from_variables]
