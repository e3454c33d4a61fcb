"""Any Gymnasium environment whose observations and actions are numbers."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option

from stores.groups import Episode
from stores.layout import Field

from ... import randomness
from ...blame import described
from ...errors import BadInput, FailedEpisode, UsageProblem
from ...options.common import RARE
from ..spec import PREVIOUS_ACTION, PREVIOUS_REWARD, TaskSpec
from .given_policy import RANDOM, EpisodePolicy, Policy, PolicyName, again, load_policy
from .making import MakingOptions, make, values_of
from .matters import HELP as MATTERS
from .matters import Matters, with_rule
from .spaces import View, class_counts, field_of, view_of

PREVIOUS_REWARD_HELP = "The memory and agents without one also see the reward of the step before, a number."
DEFAULT_MAX_STEPS = 10_000
OLD_SEEDS = 2**32
PROBES = 4  # episodes played to learn how long they are


class GymOptions(MakingOptions):
    newer: ClassVar[frozenset[str]] = MakingOptions.newer | {"policy", "previous_reward"}

    max_steps: int | None = Option(
        None,
        ge=1,
        description="Cut episodes after this many steps (default: the environment's limit, or 10000).",
    )
    observe: str | None = Option(
        None, description="Parts of a Dict observation to keep, e.g. image,direction (default: all numbers in it)."
    )
    gamma: float | None = Option(
        None,
        ge=0,
        le=1,
        description="Discount of the returns to be predicted (default: `memup score` chooses it).",
        json_schema_extra=RARE,
    )
    matters: Matters = Option(None, description=MATTERS)
    previous_reward: bool = Option(False, description=PREVIOUS_REWARD_HELP, json_schema_extra=RARE)
    policy: PolicyName = Option(
        RANDOM,
        description="Who plays: random, or a function policy(observation, rng) -> action, as MODULE:FUNCTION or "
        "path/to/file.py:FUNCTION.",
    )


def with_reward(spec: TaskSpec) -> TaskSpec:
    """The spec with the previous reward among the memory's inputs."""
    return replace(spec, memory_input=tuple(dict.fromkeys((*spec.memory_input, PREVIOUS_REWARD))))


class GymTask:
    Options = GymOptions
    summary: ClassVar[str] = "Any Gymnasium environment (--env-id), played at random or by your own policy."
    example: ClassVar[str] = "gym --env-id CartPole-v1 --episodes 500 --workers 4"
    vectorised: ClassVar[bool] = False
    _takes_less = False  # of a seed, as found out at the first reset

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

        env = make(self.options, self.settings, render_mode)
        self._view: View = view_of(env.observation_space, self.options.observe, self.options.env_id)
        if self._view.is_plain:
            return env
        return gymnasium.wrappers.TransformObservation(env, self._view.row, self._view.space)

    @cached_property
    def _policy(self) -> Policy | None:
        return load_policy(self.options.policy)

    @cached_property
    def _spaces(self) -> dict[str, Any]:
        """By field; the environment is made before its view is known."""
        action = self._env.action_space
        return {**self._view.spaces, "action": action}

    @cached_property
    def _fields(self) -> tuple[Field, ...]:
        fields = (field_of(name, space, self.options.env_id) for name, space in self._spaces.items())
        return (*fields, Field("reward", "float32"))

    @property
    def spec(self) -> TaskSpec:
        fields = self._fields
        observed = tuple(self._view.shown)
        spec = TaskSpec(
            fields=fields,
            memory_input=(*observed, PREVIOUS_ACTION),
            query=(*observed, "action"),
            target="reward",
            target_kind="return",
            **class_counts(**self._spaces),
            gamma=self.options.gamma,
            parts=self._view.named,
        )
        return with_rule(with_reward(spec) if self.options.previous_reward else spec, self.options.matters)

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
        around = self.options.wrapper or self.options.reset_option  # which a spec cannot name
        if around or not (self._env.spec and self._view.is_plain):
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
        columns: dict[str, list[Any]] = {field.name: [] for field in fields}
        reset_options = values_of(self.options.reset_option)
        player = EpisodePolicy(self.options.policy, self._policy, self._env.action_space, seed, reset_options)
        try:
            terminated = self._play(seed, player, columns)
        except FailedEpisode:  # the policy's
            raise
        except (Exception, SystemExit) as error:  # whatever the user's environment raises is about that environment
            raise self._failed(seed, len(columns["action"]) - 1, error) from error
        arrays = {field.name: np.array(columns[field.name], field.numpy) for field in fields}
        for name in (*self._view.shown, "reward"):
            finite = np.isfinite(arrays[name]).reshape(len(arrays[name]), -1).all(1)
            if not finite.all():
                article = "an" if name[0] in "aeiou" else "a"
                raise FailedEpisode(
                    f"{self.options.env_id} gave {article} {name} that is not finite at step {finite.argmin()} of the "
                    f"episode of seed {seed}. {self._again(seed)} Mend the environment, or clip its values with a "
                    "wrapper."
                )
        return Episode(arrays, seed, terminated)

    def _play(self, seed: int, player: EpisodePolicy, columns: dict[str, list[Any]]) -> bool:
        """Fill the columns by field; returns whether the episode came to an end of its own."""
        plain, start = self._view.is_plain, getattr(self._env.action_space, "start", 0)
        env = self._env if plain else self._env.env
        shown = [(columns[name], each.start, None if plain else each.row) for name, each in self._view.shown.items()]
        actions, rewards = columns["action"], columns["reward"]
        seen, _ = self._reset(env, seed)
        terminated = truncated = False
        while not (terminated or truncated or len(rewards) >= self._limit):
            for column, first, row in shown:
                column.append((row(seen) if row else seen) - first)
            action = player.act(seen, len(actions))  # it sees what the environment gives
            actions.append(action - start)
            seen, reward, terminated, truncated, _ = env.step(action)
            rewards.append(float(reward))
        return bool(terminated)

    def _reset(self, env: Any, seed: int) -> Any:
        """Begin an episode. Some environments seed numpy's old generator, which takes no more than 32 bits."""
        if not self._takes_less:
            try:
                return env.reset(seed=seed)
            except ValueError as error:
                if seed < OLD_SEEDS or "2**32" not in str(error):
                    raise
        self._takes_less = True
        return env.reset(seed=seed % OLD_SEEDS)

    def _failed(self, seed: int, step: int, error: BaseException) -> FailedEpisode:
        where = "in the reset" if step < 0 else f"at step {step}"
        return FailedEpisode(
            f"{self.options.env_id} failed {where} of the episode of seed {seed}: {described(error)}. "
            f"{self._again(seed)} Mend the environment; committed episodes are kept."
        )

    def _again(self, seed: int) -> str:
        given = seed % OLD_SEEDS if self._takes_less else seed
        return again(seed, self.options.policy, values_of(self.options.reset_option), given)
