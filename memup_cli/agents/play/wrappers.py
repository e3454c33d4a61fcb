"""A trained memory beside environments: its state m_t becomes part of what an agent, of any library, observes."""

from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Space
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from ...compute.devices import prepare_device
from ...errors import UsageProblem
from ...learning.weights import load_model
from ...memory.cells import State, reset
from ...memory.encoders import FieldEncoder
from ...predictor.predictor import MemoryModel
from ...records.opening import open_run, spec_of
from ...streaming.actions import none_before
from ...tasks.spec import PREVIOUS_ACTION, PREVIOUS_REWARD, TaskSpec
from ..published import is_model_folder, read_memory
from ..senses import OBSERVATION
from .environments import check_space


def load_memory(run: str | Path, checkpoint: Literal["best", "last"] = "best", device: str = "cpu") -> "Memory":
    """The memory of a run folder, or of a model folder (which has no checkpoints to choose from).

    device: cpu, cuda, cuda:1, ... or auto.
    """
    if checkpoint not in ("best", "last"):
        raise UsageProblem(f"there is no checkpoint {checkpoint!r}; use best or last")
    if is_model_folder(Path(run)):
        model, spec = read_memory(run)
    else:
        manifest = open_run(Path(run))
        model, spec = load_model(manifest, checkpoint), spec_of(manifest)
    if foreign := set(spec.memory_input) - {OBSERVATION, PREVIOUS_ACTION, PREVIOUS_REWARD}:
        raise UsageProblem(
            f"the memory of {run} reads {', '.join(sorted(foreign))}, which wrappers do not show it; they are "
            f"for tasks such as tmaze and gym, whose memory reads {OBSERVATION} and {PREVIOUS_ACTION}"
        )
    return Memory(model, spec, prepare_device(device, torch.get_num_threads()))


class Memory:
    """A frozen memory. It takes the values of N environments at a time, as the store holds them: classes from 0."""

    def __init__(self, model: MemoryModel, spec: TaskSpec, device: torch.device) -> None:
        self.spec, self.size, self.device = spec, model.memory.size, device
        self._model = model.to(device).eval().requires_grad_(False)
        self._encoder = FieldEncoder(spec, (OBSERVATION,), flat=True)
        self._observation = next(f for f in spec.fields if f.name == OBSERVATION)
        self._none = {name: none_before(spec, name) for name in spec.late(spec.memory_input)}

    def initial(self, count: int) -> State:
        """The state before the first step of `count` episodes."""
        with torch.inference_mode():
            return self._model.memory.initial(count)

    def step(
        self,
        observation: np.ndarray,
        previous_action: np.ndarray | None,
        state: State,
        fresh: np.ndarray | None = None,
        previous_reward: np.ndarray | None = None,
    ) -> tuple[np.ndarray, State]:
        """m_t (N, size) after observations (N, ...), each with the action (N, ...) that led to it; and the state after.

        Where an episode begins (fresh, (N,) bool; None: nowhere) the state and the action before it do not count.
        previous_action None: no episode has one. previous_reward (N,): what that action brought, for memories that
        read it.
        """
        arrays = {OBSERVATION: np.asarray(observation, self._observation.numpy)}
        given = {PREVIOUS_ACTION: previous_action, PREVIOUS_REWARD: previous_reward}
        if previous_action is not None and previous_reward is None and PREVIOUS_REWARD in self._none:
            raise UsageProblem("this memory reads what the action before brought; give step() the previous_reward, too")
        for name, none in self._none.items():
            arrays[name] = np.repeat(none[None], len(arrays[OBSERVATION]), 0)
            if (values := given[name]) is not None:
                arrays[name][:] = values
            if fresh is not None:
                arrays[name][fresh] = none
        with torch.inference_mode():
            if fresh is not None:
                state = reset(state, torch.from_numpy(fresh).to(self.device))
            steps = {name: torch.from_numpy(values).to(self.device).unsqueeze(1) for name, values in arrays.items()}
            m, state = self._model.rollout(steps, state)  # (N, 1, size)
            return m.squeeze(1).cpu().numpy().copy(), state  # on a CPU, m and the state may share their numbers

    def encode(self, observation: np.ndarray) -> np.ndarray:
        """Observations (N, ...) as flat floats (N, F): class numbers one-hot, as the memory reads them."""
        with torch.inference_mode():
            seen = torch.from_numpy(np.asarray(observation, self._observation.numpy))
            return self._encoder({OBSERVATION: seen}).numpy()


class MemoryWrapper(gymnasium.Wrapper[np.ndarray, Any, Any, Any], RecordConstructorArgs):
    """One environment whose observations become [observation, m_t]: flat float32, classes one-hot."""

    def __init__(self, env: gymnasium.Env[Any, Any], memory: Memory) -> None:
        RecordConstructorArgs.__init__(self, memory=memory, _disable_deepcopy=True)
        gymnasium.Wrapper.__init__(self, env)
        self.memory = memory
        self.observation_space = joint_space(memory, env.observation_space, env.action_space)
        self._state = memory.initial(1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        self._state = self.memory.initial(1)
        return self._join(observation, None), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        previous = _stored(action, self.env.action_space)[None]
        joined = self._join(observation, previous, np.array([float(reward)]))
        return joined, reward, terminated, truncated, info

    def _join(self, observation: Any, previous: np.ndarray | None, reward: np.ndarray | None = None) -> np.ndarray:
        seen = _stored(observation, self.env.observation_space)[None]
        m, self._state = self.memory.step(seen, previous, self._state, previous_reward=reward)
        return np.concatenate([self.memory.encode(seen), m], 1)[0]


class MemoryVectorWrapper(VectorWrapper[np.ndarray, np.ndarray, Any, Any, np.ndarray]):
    """The same for many environments: one step of all of them is one batched step of the memory."""

    def __init__(self, env: VectorEnv[Any, Any, np.ndarray], memory: Memory) -> None:
        super().__init__(env)
        if "autoreset_mode" not in env.metadata:
            raise UsageProblem(
                f"{env} does not say when it begins new episodes; set its metadata['autoreset_mode'] to a "
                "gymnasium.vector.AutoresetMode"
            )
        self.memory = memory
        self.single_observation_space = joint_space(memory, env.single_observation_space, env.single_action_space)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._mode = AutoresetMode(env.metadata["autoreset_mode"])
        self._state = memory.initial(env.num_envs)
        self._m = np.zeros((env.num_envs, memory.size), np.float32)
        self._ended = np.zeros(env.num_envs, bool)  # episodes that the last step ended

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin new episodes in all environments, or in those of options["reset_mask"]; the others stay as they are."""
        fresh = np.array((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        observation, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        seen = _stored(observation, self.env.single_observation_space)
        m, state = self.memory.step(seen, None, self._state, fresh)
        chosen = torch.from_numpy(fresh).to(self.memory.device).unsqueeze(1)
        self._state = tuple(torch.where(chosen, new, old) for new, old in zip(state, self._state, strict=True))
        self._m = np.where(fresh[:, None], m, self._m)
        self._ended &= ~fresh
        return np.concatenate([self.memory.encode(seen), self._m], 1), info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(actions)
        before, self._ended = self._ended, terminated | truncated
        # NEXT_STEP: where the step before ended an episode. DISABLED: nowhere, reset() has seen to those.
        begun = self._ended if self._mode is AutoresetMode.SAME_STEP else before
        seen = _stored(observation, self.env.single_observation_space)
        previous, brought = _stored(actions, self.env.single_action_space), np.asarray(reward)
        state, last = self._state, np.flatnonzero(self._ended & ("final_obs" in info))
        if len(last):  # what ended episodes saw last passes through the memory in the same batch, behind the others
            final = np.stack([info["final_obs"][i] for i in last])
            seen = np.concatenate([seen, _stored(final, self.env.single_observation_space)])
            previous, brought = (np.concatenate([values, values[last]]) for values in (previous, brought))
            begun = np.concatenate([begun, np.zeros(len(last), bool)])
            rows = torch.from_numpy(last).to(self.memory.device)
            state = tuple(torch.cat([part, part[rows]]) for part in state)
        m, state = self.memory.step(seen, previous, state, begun, brought)
        joined = np.concatenate([self.memory.encode(seen), m], 1)
        count = self.num_envs
        if len(last):
            kept = np.full(count, None, object)  # the form of Gymnasium's own: None where no episode ended
            for i, row in zip(last, joined[count:], strict=True):
                kept[i] = row
            info = {**info, "final_obs": kept}
        self._state, self._m = tuple(part[:count] for part in state), m[:count]
        return joined[:count], reward, terminated, truncated, info


def joint_space(memory: Memory, observations: Space[Any], actions: Space[Any]) -> Box:
    """The space of [observation, m]; UsageProblem if the environment's spaces are not those of the memory's task."""
    check_space(memory.spec, OBSERVATION, observations)
    check_space(memory.spec, "action", actions)
    if isinstance(observations, Box):
        with np.errstate(over="ignore"):  # bounds beyond float32 become infinite
            low, high = (b.astype(np.float32).ravel() for b in (observations.low, observations.high))
    else:
        classes = memory.spec.classes[OBSERVATION]
        low, high = np.zeros(classes, np.float32), np.ones(classes, np.float32)
    one = np.ones(memory.size, np.float32)  # the state of an LSTM or a GRU lies within -1 and 1
    return Box(np.concatenate([low, -one]), np.concatenate([high, one]), dtype=np.float32)


def _stored(values: Any, space: Space[Any]) -> np.ndarray:
    """Observations or actions as the store holds them: class numbers from 0."""
    return np.asarray(values) - getattr(space, "start", 0)
