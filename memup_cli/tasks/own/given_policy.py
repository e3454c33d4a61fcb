"""--policy: who plays while episodes are collected, at random or a function of the user's."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator

from ... import randomness
from ...blame import described
from ...errors import FailedEpisode
from .imports import is_named, named_in

if TYPE_CHECKING:
    from gymnasium.spaces import Space

RANDOM = "random"
ACTION_SEEDS = 2**32  # seeds of an action space
Policy = Callable[[Any, np.random.Generator], Any]


def _checked(text: str) -> str:
    if text != RANDOM and not is_named(text):
        raise ValueError("must be random, or MODULE:FUNCTION, such as players.py:careful")
    return text


PolicyName = Annotated[str, AfterValidator(_checked)]


def load_policy(named: str) -> Policy | None:
    """The function; None: at random."""
    found: Policy | None = None if named == RANDOM else named_in(named, "--policy")
    return found


class EpisodePolicy:
    """Who acts in one episode. What it does depends on the episode's seed and on what it is shown only."""

    def __init__(
        self,
        named: str,
        policy: Policy | None,
        actions: "Space[Any]",
        seed: int,
        reset_options: dict[str, Any] | None = None,  # to be told, should the policy fail
    ) -> None:
        self._named, self._policy, self._actions = named, policy, actions
        self._seed, self._reset_options = seed, reset_options
        actions.seed(seed % ACTION_SEEDS)
        self._rng = randomness.stream(seed, randomness.GIVEN_POLICY)

    def act(self, observation: Any, step: int) -> Any:
        """An action of the environment's space; FailedEpisode if the user's function gives none."""
        if self._policy is None:
            return self._actions.sample()
        try:
            given = self._policy(observation, self._rng)
            action = _as_in(self._actions, given)
        except (Exception, SystemExit) as error:  # the code is the user's: it may raise anything
            raise self._failed(f"failed {self._at(step)}: {described(error)}.") from error
        if not (self._actions.contains(action) and _has_type_of(self._actions, action)):
            raise self._failed(f"gave {given!r:.60} {self._at(step)}, which is not in the space {self._actions}.")
        return action

    def _at(self, step: int) -> str:
        return f"at step {step} of the episode of seed {self._seed}"

    def _failed(self, what: str) -> FailedEpisode:
        how = again(self._seed, self._named, self._reset_options)
        return FailedEpisode(f"--policy {self._named} {what} {how} Mend the policy; committed episodes are kept.")


def again(seed: int, named: str, reset_options: dict[str, Any] | None = None, reset_seed: int | None = None) -> str:
    """How to see an episode once more, without memup; reset_seed: if the environment is given another one."""
    given = seed if reset_seed is None else reset_seed
    reset = f"env.reset(seed={given}{f', options={reset_options!r}' if reset_options else ''})"
    if named == RANDOM:
        first, action = f"env.action_space.seed({seed % ACTION_SEEDS})", "env.action_space.sample()"
    else:
        function = named.rpartition(":")[2]
        first, action = f"rng = numpy.random.default_rng(({seed}, {randomness.GIVEN_POLICY}))", f"{function}(o, rng)"
    return f"To see it again: {first}, {reset}, then env.step({action})."


def _as_in(space: "Space[Any]", action: Any) -> Any:
    """Several numbers in the type of their space, if that changes none of them by more than rounding."""
    if not space.shape:
        return action
    found = np.asarray(action)
    if found.dtype.kind not in "biuf":
        return found
    with np.errstate(all="ignore"):
        cast = found.astype(space.dtype)
    return cast if cast.dtype.kind == "f" or np.array_equal(cast, found) else found


def _has_type_of(space: "Space[Any]", action: Any) -> bool:
    """A MultiDiscrete would take fractions."""
    return not space.shape or action.dtype.kind == np.dtype(space.dtype).kind
