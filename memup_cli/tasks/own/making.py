"""An environment as the options of `memup collect gym` describe it: what is imported, its arguments, its wrappers."""

import json
import re
import warnings
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator
from pydantic import Field as Option

from ...blame import described
from ...errors import UsageProblem
from ...options.common import RARE
from .imports import import_code, is_named
from .matters import EnvironmentOptions

OURS = {"id": "--env-id names it", "max_episode_steps": "use --max-steps", "disable_env_checker": "it is always true"}


def _pair(text: str) -> str:
    name, equals, value = text.partition("=")
    if not (name.strip() and equals):
        raise ValueError("must be NAME=VALUE, such as size=5, hard=true or map=small")
    return f"{name.strip()}={value}"


def _own_pair(text: str) -> str:
    pair = _pair(text)
    name = pair.partition("=")[0]
    if not name.isidentifier():
        raise ValueError(f"{name!r} cannot be the name of an argument")
    if name in OURS:
        raise ValueError(f"{name} is no argument of an environment; {OURS[name]}")
    return pair


def _in_order(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """By their names: the order in which they were given does not matter."""
    names = [pair.partition("=")[0] for pair in pairs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is given twice")
    return tuple(sorted(pairs))


def _wrapper(text: str) -> str:
    if not is_named(text):
        raise ValueError("must be MODULE:CLASS, such as wrappers.py:Scaled or gymnasium.wrappers:FlattenObservation")
    return text


Pairs = Annotated[tuple[Annotated[str, AfterValidator(_pair)], ...], AfterValidator(_in_order)]
Arguments = Annotated[tuple[Annotated[str, AfterValidator(_own_pair)], ...], AfterValidator(_in_order)]


class MakingOptions(EnvironmentOptions):
    """The options that say how an environment is made."""

    newer: ClassVar[frozenset[str]] = EnvironmentOptions.newer | {"env_arg", "reset_option", "wrapper"}

    env_id: str = Option(description="Gymnasium id, e.g. CartPole-v1.", min_length=1)
    import_: str | None = Option(
        None, alias="import", description="Module or file to import first, which registers it: envs, path/to/envs.py."
    )
    env_arg: Arguments = Option(
        (),
        description="An argument of the environment's constructor; values are JSON (5, true, [1, 2]), or else text.",
        json_schema_extra={"value": "NAME=VALUE"},
    )
    reset_option: Pairs = Option(
        (),
        description="One of the `options` that the environment gets at every reset, read likewise.",
        json_schema_extra={"value": "NAME=VALUE", **RARE},
    )
    wrapper: tuple[Annotated[str, AfterValidator(_wrapper)], ...] = Option(
        (),
        description="A wrapper to put around the environment, such as path/to/file.py:Scaled; of several, the first "
        "is the innermost.",
        json_schema_extra={"value": "MODULE:CLASS"},
    )


def values_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """What NAME=VALUE say: values are JSON where they can be read as such, else text."""
    return {name: _read(value) for name, _, value in (pair.partition("=") for pair in pairs)}


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return text


def _no_json(name: str) -> Any:
    raise ValueError(f"{name} is no JSON, although Python reads it")


def make(options: MakingOptions, settings: dict[str, Any], render_mode: str | None) -> Any:
    """The environment in its wrappers; UsageProblem says what of the options is wrong.

    settings: arguments that somebody else knows, such as a data set.
    """
    import gymnasium

    from .wrapping import wrapped

    if options.import_:
        import_code(options.import_, f"--import {options.import_}")
    arguments = {**settings, **values_of(options.env_arg)}
    if render_mode:  # not every environment takes it
        arguments["render_mode"] = render_mode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about newer versions of the environment: the user chose this one
        try:
            env = gymnasium.make(options.env_id, disable_env_checker=True, **arguments)
        except Exception as error:  # unknown id, missing extra package, the environment's own errors
            raise _cannot_make(options, error) from error
        return wrapped(env, options.wrapper, values_of(options.reset_option))


def _cannot_make(options: MakingOptions, error: Exception) -> UsageProblem:
    import gymnasium

    begins = f"Gymnasium cannot make {options.env_id!r}: "
    if isinstance(error, gymnasium.error.Error):
        reason = str(error).rstrip(". ")
    elif isinstance(error, TypeError) and isinstance(cause := error.__cause__, TypeError) and cause.__traceback__:
        reason = described(cause.with_traceback(cause.__traceback__.tb_next))  # Gymnasium raises it again, longer
    else:
        reason = described(error)
    if options.env_arg and not isinstance(error, gymnasium.error.Error):
        return UsageProblem(f"{begins}{reason}. Check {_suspects(options.env_arg, str(error.__cause__ or error))}.")
    return UsageProblem(
        f"{begins}{reason}. Check --env-id, name the module or file that registers it with --import, or install the "
        "package it needs."
    )


def _suspects(pairs: tuple[str, ...], reason: str) -> str:
    """The arguments that an error names; if it names none, all."""
    named = [pair for pair in pairs if re.search(rf"\b{re.escape(pair.partition('=')[0])}\b", reason)]
    return ", ".join(f"--env-arg {pair}" for pair in named or pairs)
