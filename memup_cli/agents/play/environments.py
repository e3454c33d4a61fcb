"""The environments of a run's task, many side by side, in the number types that the store and the memory use."""

from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Wrapper
from gymnasium.spaces import Box, Dict
from gymnasium.vector import SyncVectorEnv, VectorEnv

from ...blame import described
from ...errors import BadInput, MemupError, UsageProblem
from ...streaming.actions import none_before
from ...tasks import load_task
from ...tasks.own.spaces import OBSERVATION, counts_of
from ...tasks.spec import PREVIOUS_ACTION, TaskSpec

Seen = dict[str, np.ndarray]  # (N, *row) of each field that is observed
MEND = "Mend the environment, then run the same command again."


@dataclass(frozen=True)
class Outcome:
    """What one step of every environment led to."""

    observation: Seen  # of the next step, also where the episode has just ended
    reward: np.ndarray  # (N,) float32
    terminated: np.ndarray  # (N,) bool
    ended: np.ndarray  # (N,) bool: terminated or truncated
    success: np.ndarray | None  # (N,) float32: 1 or 0 where the environment can tell, else nan; None: no episode ended


class Watched(Wrapper[Any, Any, Any, Any]):
    """One of N environments, which says where in which episode it failed."""

    def __init__(self, env: Any, name: str) -> None:
        super().__init__(env)
        self._name = name
        self._seed: int | None = None
        self._resets = self._steps = 0  # since the seed, and since the last of those

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is not None:
            self._seed, self._resets = seed, 0
        self._resets, self._steps = self._resets + 1, 0
        try:
            return self.env.reset(seed=seed, options=options)
        except (Exception, SystemExit) as error:
            raise self._failed("in the reset", error) from error

    def step(self, action: Any) -> Any:
        try:
            found = self.env.step(action)
        except (Exception, SystemExit) as error:
            raise self._failed(f"at step {self._steps}", error) from error
        self._steps += 1
        return found

    def _failed(self, where: str, error: BaseException) -> BadInput:
        """Whatever the environment raises is about that environment, not about memup."""
        earlier = self._resets - 1
        then = f", then play {earlier} episodes before it" if earlier else ""
        return BadInput(
            f"{self._name} failed {where} of episode {earlier} of seed {self._seed}: {described(error)}. To see it "
            f"again: env.reset(seed={self._seed}){then}. {MEND}"
        )


class Arena:
    """N environments stepped together. An environment whose episode has ended waits until restart()."""

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        spec: TaskSpec,
        threshold: float | None = None,
        name: str = "the environment",
    ) -> None:
        self.envs, self.count = envs, envs.num_envs
        if isinstance(envs, SyncVectorEnv):
            envs.envs = [Watched(env, name) for env in envs.envs]
        self.frames: list[np.ndarray] | None = None  # set to a list, it gets a picture of the first one a step
        fields = {f.name: f for f in spec.fields}
        self._observed = {name: (fields[name].numpy, space) for name, space in observed_spaces(spec, envs).items()}
        self.actions = space = envs.single_action_space
        counts = spec.counts("action")  # of a Box there are none
        self._counts = np.array(counts, np.int64).reshape(fields["action"].shape if counts else 0)
        self.name = name
        check_space(spec, "action", space)
        self.returns = np.zeros(self.count, np.float64)  # of the current episodes so far
        self.threshold = threshold  # an episode with this return counts as a success
        late = dict.fromkeys((PREVIOUS_ACTION, *spec.late(spec.memory_input)))
        self._none = {name: none_before(spec, name) for name in late}
        self._sources = {name: spec.source(name) for name in late}

    def nothing_before(self) -> Seen:
        """The previous actions, and what else is a step late, of an episode's first step."""
        return {name: np.repeat(none[None], self.count, 0) for name, none in self._none.items()}

    def before(self, **stored: np.ndarray) -> Seen:
        """The same at the next step: what is stored of this one, action and reward."""
        return {name: stored[self._sources[name]].astype(none.dtype) for name, none in self._none.items()}

    def reset(self, seeds: list[int]) -> Seen:
        observation, _ = self.ask("reset", seed=list[int | None](seeds))
        self.returns[:] = 0
        return self._store(observation)

    def restart(self, which: np.ndarray) -> Seen:
        """Begin a new episode in some environments (N,); the observations of all of them."""
        observation, _ = self.ask("reset", options={"reset_mask": which})
        self.returns[which] = 0
        return self._store(observation)

    def playable(self, actions: np.ndarray) -> np.ndarray:
        """Actions as the environment takes them, within its bounds, in the store's terms."""
        if isinstance(self.actions, Box):
            return np.clip(actions, self.actions.low, self.actions.high).astype(self.actions.dtype)
        return actions

    def stored(self, actions: np.ndarray) -> np.ndarray:
        """Actions as a recording holds them: millions of numbered ones, as bytes."""
        return actions.astype(np.uint8) if 0 < self._counts.max(initial=0) <= 256 else actions

    def explore(self, actions: np.ndarray, epsilon: float, rng: np.random.Generator) -> None:
        """Replace a share of the actions (N, ...), in place, by random ones."""
        which = rng.random(self.count) < epsilon
        if not isinstance(self.actions, Box):
            actions[which] = rng.integers(self._counts, size=(self.count, *self._counts.shape))[which]
            return
        low, high = (np.nan_to_num(edge, posinf=1.0, neginf=-1.0) for edge in (self.actions.low, self.actions.high))
        actions[which] = rng.uniform(low, high, (self.count, *low.shape))[which]

    def step(self, actions: np.ndarray) -> Outcome:
        """Actions (N, ...) as playable() gives them."""
        if self.frames is not None:
            self.frames.append(np.asarray(self.envs.render()[0]))  # type: ignore[index]
        if not isinstance(self.actions, Box):
            actions = actions + getattr(self.actions, "start", 0)
            if self.actions.shape:
                actions = actions.astype(self.actions.dtype)
        observation, reward, terminated, truncated, info = self.ask("step", actions)
        self.returns += reward
        ended = terminated | truncated
        success = self._successes(ended, info) if ended.any() else None
        return Outcome(self._store(observation), np.asarray(reward, np.float32), terminated, ended, success)

    def _successes(self, ended: np.ndarray, info: dict[str, Any]) -> np.ndarray:
        if not np.isfinite(self.returns[ended]).all():
            raise BadInput(
                f"{self.name} gave a reward that is not finite. Mend the environment, or clip its rewards with a "
                "wrapper."
            )
        success = np.full(self.count, np.nan, np.float32)
        if "is_success" in info:
            told = ended & info.get("_is_success", ended)
            success[told] = np.asarray(info["is_success"])[told]
        elif self.threshold is not None:
            success[ended] = self.returns[ended] >= self.threshold
        return success

    def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call the environments. Whatever they raise is about them, not about memup; a process that died is not."""
        try:
            return getattr(self.envs, method)(*args, **kwargs)
        except (MemupError, BrokenProcessPool):
            raise
        except (Exception, SystemExit) as error:
            raise BadInput(f"{self.name} failed: {described(error)}. {MEND}") from error

    def _store(self, observation: Any) -> Seen:
        given = observation if isinstance(observation, dict) else {OBSERVATION: observation}
        return {name: self._stored(given[name], *how) for name, how in self._observed.items()}

    def _stored(self, observation: np.ndarray, dtype: np.dtype[Any], space: Any) -> np.ndarray:
        if observation.dtype.kind == "f" and not np.isfinite(observation).all():
            raise BadInput(
                f"{self.name} gave an observation that is not finite. Mend the environment, or clip what it shows "
                "with a wrapper."
            )
        start = getattr(space, "start", 0)
        return (observation - start if start else observation).astype(dtype)

    def close(self) -> None:
        self.ask("close")


def open_arena(task: dict[str, Any], spec: TaskSpec, count: int, render_mode: str | None = None) -> Arena:
    """The environments of a task as a manifest describes it."""
    kind = load_task(task["name"])
    if not hasattr(kind, "vector_environment"):
        raise UsageProblem(
            f"the task {task['name']} is a data set without an environment, so no agent can act in it; agents are for "
            "tasks such as tmaze and gym"
        )
    built: Any = kind(kind.Options(**task["options"]))
    name = task["options"].get("env_id", task["name"])
    return Arena(
        built.vector_environment(count, render_mode),
        spec,
        getattr(built, "success_return", None),
        f"the environment {name}",
    )


def observed_spaces(spec: TaskSpec, envs: Any) -> dict[str, Any]:
    """The spaces of the fields that are observed; UsageProblem if they are not what the run was collected with."""
    space = envs.single_observation_space
    if isinstance(space, Dict) and set(space.spaces) >= set(spec.observed):
        found = {name: space[name] for name in spec.observed}
    else:
        found = dict.fromkeys(spec.observed, space)
    for name, own in found.items():
        check_space(spec, name, own)
    return found


def check_space(spec: TaskSpec, name: str, space: Any) -> None:
    """UsageProblem if observations or actions are not what the run was collected with."""
    shape = next(f for f in spec.fields if f.name == name).shape
    if counts := spec.counts(name):
        fits = counts_of(space) == counts and space.shape == shape
        wanted = f"MultiDiscrete({list(counts)})" if name in spec.components else f"Discrete({counts[0]})"
    else:
        fits = isinstance(space, Box) and space.shape == shape
        wanted = f"a Box of shape {shape}"
    if not fits:
        raise UsageProblem(
            f"the run was collected with {name}s from {wanted}, but this environment has {space}. Use an environment "
            "of the task that the run was collected from."
        )
