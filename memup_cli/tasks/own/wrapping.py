"""What is put around an environment: the wrappers of --wrapper, and the options of its resets."""

import copy
from typing import Any

import gymnasium

from ...blame import described
from ...errors import UsageProblem
from .imports import named_in


class ResetWith(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that is given the same options at every reset."""

    def __init__(self, env: gymnasium.Env[Any, Any], given: dict[str, Any]) -> None:
        super().__init__(env)
        self._given = given

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.env.reset(seed=seed, options={**copy.deepcopy(self._given), **(options or {})})


def wrapped(env: Any, wrappers: tuple[str, ...], reset_options: dict[str, Any]) -> Any:
    """The environment in its wrappers, the first one innermost. Options of a reset reach all of them."""
    for named in wrappers:
        env = _wrapped_in(env, named)
    return ResetWith(env, reset_options) if reset_options else env


def _wrapped_in(env: Any, named: str) -> Any:
    kind = named_in(named, "--wrapper")
    try:
        found = kind(env)
    except (Exception, SystemExit) as error:  # the code is the user's: it may raise anything
        raise UsageProblem(
            f"--wrapper {named} failed: {described(error)}. It is called with the environment alone; one that needs "
            "more can be written as a class of your own, in a file."
        ) from error
    if not isinstance(found, gymnasium.Env):
        raise UsageProblem(
            f"--wrapper {named} gave {found!r:.60}, which is no Gymnasium environment. Name a class derived from "
            "gymnasium.Wrapper."
        )
    return found
