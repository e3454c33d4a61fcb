"""Lamps: in a dark hall one of four lamps blinks, once. Much later a bell rings: press the button of that lamp.

Observation = [light of lamp 0, 1, 2, 3, bell]. All lamps glimmer at random the whole night, the blink is brighter.
Pressing a button does nothing until the bell rings; then it pays +3 for the right lamp, -1 for another one.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

LAMPS, BELL = 4, 4  # how many; the column of the observation that is the bell
GLIMMER, BLINK = 0.1, 1.0
RIGHT, WRONG = 3.0, -1.0
SPREAD = 10  # the blink comes in the first ten steps, the bell in the ten steps after `length`

OBSERVATIONS = Box(0, 1, (LAMPS + 1,), np.float32)
ACTIONS = Discrete(LAMPS)


@dataclass(frozen=True)
class Night:
    """One episode, drawn as a whole at its start."""

    lamp: int  # the one that blinks
    seen: np.ndarray  # (T, 5) float32: the observation of every step; the bell rings at the last one


def draw_night(rng: np.random.Generator, length: int) -> Night:
    lamp, blink, late = (int(n) for n in rng.integers([LAMPS, SPREAD, SPREAD]))
    seen = np.zeros((length + late + 1, LAMPS + 1), np.float32)
    seen[:, :LAMPS] = GLIMMER * rng.integers(2, size=(len(seen), LAMPS))
    seen[blink, lamp] = BLINK
    seen[-1, BELL] = 1
    return Night(lamp, seen)


class LampsEnv(gymnasium.Env[np.ndarray, Any]):
    """One hall."""

    observation_space, action_space = OBSERVATIONS, ACTIONS

    def __init__(self, length: int = 200, render_mode: None = None) -> None:
        self.length, self.render_mode = length, render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._night, self._step = draw_night(self.np_random, self.length), 0
        return self._night.seen[0], {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        seen = self._night.seen
        if self._step < len(seen) - 1:
            self._step += 1
            return seen[self._step], 0.0, False, False, {}
        success = int(action) == self._night.lamp
        return seen[-1], RIGHT if success else WRONG, True, False, {"is_success": success}


class LampsVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many halls stepped in one go, as memup's agents use them: a finished one waits until it is reset."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": []}  # noqa: RUF012

    def __init__(self, num_envs: int = 1, length: int = 200, render_mode: None = None) -> None:
        self.num_envs, self.length, self.render_mode = num_envs, length, render_mode
        self.single_observation_space, self.single_action_space = OBSERVATIONS, ACTIONS
        self.observation_space = batch_space(OBSERVATIONS, num_envs)
        self.action_space = batch_space(ACTIONS, num_envs)
        self._seen = np.zeros((num_envs, length + SPREAD, LAMPS + 1), np.float32)
        self._lamp, self._last, self._step = np.zeros((3, num_envs), np.int64)
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed or [None] * self.num_envs
        for i in np.flatnonzero((options or {}).get("reset_mask", np.ones(self.num_envs, bool))):
            if seeds[i] is not None:
                self._rngs[i] = np.random.Generator(np.random.PCG64(seeds[i]))
            night = draw_night(self._rngs[i], self.length)
            self._seen[i, : len(night.seen)] = night.seen
            self._lamp[i], self._last[i], self._step[i] = night.lamp, len(night.seen) - 1, 0
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        rang = self._step == self._last
        right = rang & (actions == self._lamp)
        self._step = np.minimum(self._step + 1, self._last)
        rewards = np.where(rang, np.where(right, RIGHT, WRONG), 0.0)
        info = {"is_success": right, "_is_success": rang} if rang.any() else {}
        return self._observe(), rewards, rang, np.zeros(self.num_envs, bool), info

    def _observe(self) -> np.ndarray:
        return self._seen[np.arange(self.num_envs), self._step]
