"""Any Gymnasium environment whose observations are numbers and whose actions are Box or Discrete, played at random."""

import copy
import math
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option

from stores.groups import Episode
from stores.layout import Field

from ... import randomness
from ...blame import described
from ...errors import BadInput, FailedEpisode, UsageProblem
from ..spec import PREVIOUS_ACTION, TaskSpec
from .imports import import_code
from .matters import HELP as MATTERS
from .matters import EnvironmentOptions, Matters, with_rule
from .spaces import View, class_counts, field_of, view_of

DEFAULT_MAX_STEPS = 10_000
PROBES = 4  # episodes played to learn how long they are
ACTION_SEEDS = 2**32  # seeds of an action space


class GymOptions(EnvironmentOptions):
    env_id: str = Option(description="Gymnasium id, e.g. CartPole-v1.", min_length=1)
    import_: str | None = Option(
        None, alias="import", description="Module or file to import first, which registers it: envs, path/to/envs.py."
    )
    max_steps: int | None = Option(
        None,
        ge=1,
        description="Cut episodes after this many steps (default: the environment's limit, or 10000).",
    )
    observe: str | None = Option(
        None, description="Parts of a Dict observation to keep, e.g. image,direction (default: all numbers in it)."
    )
    gamma: float | None = Option(
        None, ge=0, le=1, description="Discount of the returns to be predicted (default: `memup score` chooses it)."
    )
    matters: Matters = Option(None, description=MATTERS)


class GymTask:
    Options = GymOptions
    summary: ClassVar[str] = "Any Gymnasium environment (--env-id), played at random."
    example: ClassVar[str] = "gym --env-id CartPole-v1 --episodes 500 --workers 4"
    vectorised: ClassVar[bool] = False

    def __init__(self, options: GymOptions, settings: dict[str, Any] | None = None) -> None:
        self.options = options
        self.settings = settings or {}  # keyword arguments of the environment

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "settings": self.settings}  # a live environment stays in its process

    @cached_property
    def _env(self) -> Any:
        return self._make()

    def _make(self, render_mode: str | None = None) -> Any:
        import gymnasium

        if self.options.import_:
            import_code(self.options.import_)
        rendering: dict[str, Any] = (
            {"render_mode": render_mode} if render_mode else {}
        )  # not every environment takes it
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about newer versions of the environment: the user chose this one
                env = gymnasium.make(self.options.env_id, disable_env_checker=True, **self.settings, **rendering)
        except Exception as error:  # unknown id, missing extra package, the environment's own errors
            reason = str(error).rstrip(". ") if isinstance(error, gymnasium.error.Error) else described(error)
            raise UsageProblem(
                f"Gymnasium cannot make {self.options.env_id!r}: {reason}. Check --env-id, name the module or file "
                "that registers it with --import, or install the package it needs."
            ) from error
        self._view: View = view_of(env.observation_space, self.options.observe, self.options.env_id)
        if self._view.is_plain:
            return env
        return gymnasium.wrappers.TransformObservation(env, self._view.row, self._view.space)

    @cached_property
    def _fields(self) -> tuple[Field, Field, Field]:
        return (
            field_of("observation", self._env.observation_space, self.options.env_id),
            field_of("action", self._env.action_space, self.options.env_id),
            Field("reward", "float32"),
        )

    @property
    def spec(self) -> TaskSpec:
        spec = TaskSpec(
            fields=self._fields,
            memory_input=("observation", PREVIOUS_ACTION),
            query=("observation", "action"),
            target="reward",
            target_kind="return",
            classes=class_counts(observation=self._env.observation_space, action=self._env.action_space),
            gamma=self.options.gamma,
            parts=self._view.named,
        )
        return with_rule(spec, self.options.matters)

    @property
    def run_name(self) -> str:
        return "gym-" + self.options.env_id.replace("/", "-").replace(":", "-")

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 1000, 100

    @property
    def max_length(self) -> None:
        return None

    def typical_length(self, seed: int) -> int:
        probes = randomness.sequence(seed, randomness.SPACE_PROBES).generate_state(PROBES)
        try:
            return math.ceil(np.mean([len(self.episode(int(s)).arrays["reward"]) for s in probes]))
        except FailedEpisode as error:
            raise BadInput(f"an episode before the first, played to see how long they are: {error}") from error

    @property
    def _limit(self) -> int:
        own = self._env.spec.max_episode_steps if self._env.spec else None
        return self.options.max_steps or own or DEFAULT_MAX_STEPS

    def vector_environment(self, count: int, render_mode: str | None = None) -> Any:
        from gymnasium.vector import AutoresetMode, SyncVectorEnv
        from gymnasium.wrappers import TimeLimit

        if render_mode and render_mode not in self._env.metadata.get("render_modes", []):
            raise UsageProblem(f"{self.options.env_id} cannot be rendered as {render_mode}; leave out --record")
        limit = self._limit
        return SyncVectorEnv(
            [lambda: TimeLimit(self._make(render_mode), limit)] * count, autoreset_mode=AutoresetMode.DISABLED
        )

    @property
    def environment_spec(self) -> Any:
        """What Gymnasium would make the environment from, if observations are stored as it gives them."""
        if not (self._env.spec and self._view.is_plain):
            return None
        found = copy.deepcopy(self._env.spec)
        found.max_episode_steps = self._limit
        return found

    def load(self, seed: int, episodes: dict[str, int], note: Callable[[str], None]) -> dict[str, Any]:
        """Nothing to read; but say what is stored if it is not the observations as they are."""
        if self._env and not self._view.is_plain:
            note(f"{self.options.env_id}: {self._view.describe()}")
        return {}

    @property
    def success_return(self) -> float | None:
        """The return from which Gymnasium calls this environment solved, if it says one."""
        threshold: float | None = self._env.spec.reward_threshold if self._env.spec else None
        return threshold

    def episode(self, seed: int) -> Episode:
        fields = self._fields
        columns: tuple[list[Any], list[Any], list[float]] = ([], [], [])
        try:
            terminated = self._play(seed, columns)
        except (Exception, SystemExit) as error:  # whatever the user's environment raises is about that environment
            raise self._failed(seed, len(columns[1]) - 1, error) from error
        arrays = {f.name: np.array(values, f.numpy) for f, values in zip(fields, columns, strict=True)}
        for name in ("observation", "reward"):
            finite = np.isfinite(arrays[name]).reshape(len(arrays[name]), -1).all(1)
            if not finite.all():
                article = "an" if name == "observation" else "a"
                raise FailedEpisode(
                    f"{self.options.env_id} gave {article} {name} that is not finite at step {finite.argmin()} of the "
                    f"episode of seed {seed}. {_again(seed)} Mend the environment, or clip its values with a wrapper."
                )
        return Episode(arrays, seed, terminated)

    def _play(self, seed: int, columns: tuple[list[Any], list[Any], list[float]]) -> bool:
        """Fill the columns, observation, action and reward; returns whether the episode came to an end of its own."""
        actions = self._env.action_space
        actions.seed(seed % ACTION_SEEDS)
        observation, _ = self._env.reset(seed=seed)
        offsets = [getattr(s, "start", 0) for s in (self._env.observation_space, actions)]
        terminated = truncated = False
        while not (terminated or truncated or len(columns[2]) >= self._limit):
            action = actions.sample()
            columns[0].append(observation - offsets[0])
            columns[1].append(action - offsets[1])
            observation, reward, terminated, truncated, _ = self._env.step(action)
            columns[2].append(float(reward))
        return bool(terminated)

    def _failed(self, seed: int, step: int, error: BaseException) -> FailedEpisode:
        where = "in the reset" if step < 0 else f"at step {step}"
        return FailedEpisode(
            f"{self.options.env_id} failed {where} of the episode of seed {seed}: {described(error)}. "
            f"{_again(seed)} Mend the environment; committed episodes are kept."
        )


def _again(seed: int) -> str:
    """How to see an episode once more, without memup."""
    return (
        f"To see it again: env.action_space.seed({seed % ACTION_SEEDS}), env.reset(seed={seed}), then "
        "env.step(env.action_space.sample())."
    )
