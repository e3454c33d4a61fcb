"""T-Maze as a Gymnasium environment, single and vectorised. `memup collect tmaze` writes what stepping these gives."""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from .tmaze import RIGHT, WRONG, Maze, TMazeOptions, draw_maze, right_action


def _spaces(options: TMazeOptions) -> tuple[Box, Discrete]:
    high = np.array([1, options.distractors + 1, 1], np.float32)
    return Box(np.array([-1, 0, -1], np.float32), high, dtype=np.float32), Discrete(2)


class TMazeEnv(gymnasium.Env[np.ndarray, Any]):
    """One maze. Actions: 0 left, 1 right; they matter at the junction only. The hint +1 asks for right."""

    def __init__(
        self,
        length: int = 1000,
        mode: Literal["LN", "LNR"] = "LNR",
        distractors: int = 0,
        render_mode: None = None,
    ) -> None:
        self.options = TMazeOptions(length=length, mode=mode, distractors=distractors)
        self.observation_space, self.action_space = _spaces(self.options)
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._maze = draw_maze(self.np_random, self.options)
        self._events = {int(step): i for i, step in enumerate(self._maze.places)}
        self._step, self._success = 0, False
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        event = self._events.get(self._step)
        reward = 0.0
        if event == 0:
            self._success = int(action) == right_action(self._maze.hint)
            reward = RIGHT if self._success else WRONG
        elif event is not None:
            reward = float(self._maze.payoffs[event])
        self._step += 1
        if self._step > self._maze.length:  # the walk is over: show the last place again
            self._step = self._maze.length
            return self._observe(), reward, True, False, {"is_success": self._success}
        return self._observe(), reward, False, False, {}

    def _observe(self) -> np.ndarray:
        bit = (self._maze.noise[self._step >> 3] >> (7 - (self._step & 7))) & 1
        hint = self._maze.hint if self._step == 0 else 0
        return np.array([hint, self._events.get(self._step, -1) + 1, 2 * int(bit) - 1], np.float32)


class TMazeVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many mazes stepped in one go; sub-environment i behaves as TMazeEnv seeded with seed + i."""

    def __init__(
        self,
        num_envs: int = 1,
        length: int = 1000,
        mode: Literal["LN", "LNR"] = "LNR",
        distractors: int = 0,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: None = None,
    ) -> None:
        self.options = TMazeOptions(length=length, mode=mode, distractors=distractors)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space, self.single_action_space = _spaces(self.options)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        points = distractors + 1
        self._noise = np.zeros((num_envs, (length + 9) // 8 + 1), np.uint8)  # packed bits
        self._hint = np.zeros(num_envs, np.float32)
        self._length = np.zeros(num_envs, np.int64)
        self._places = np.zeros((num_envs, points), np.int64)
        self._payoffs = np.zeros((num_envs, points), np.float32)
        self._step = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, bool)
        self._success = np.zeros(num_envs, bool)
        self._rows = np.arange(num_envs)
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        seeds: list[int | None] = [None] * self.num_envs
        if seed is not None:
            seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else list(seed)
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        for i in np.flatnonzero(mask):
            if (own := seeds[i]) is not None:
                self._rngs[i] = np.random.Generator(np.random.PCG64(own))
        self._draw(np.flatnonzero(mask))
        return self._observe(), {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        moved: bool | np.ndarray = True
        if self.autoreset_mode is AutoresetMode.NEXT_STEP and self._over.any():
            moved = ~self._over
            self._draw(np.flatnonzero(self._over))
        rewards = np.zeros(self.num_envs)
        rows, points = self._here
        if len(rows):
            rewards[rows] = self._payoffs[rows, points]
            junction = rows[points == 0]
            right = np.asarray(actions)[junction] == (self._hint[junction] > 0)
            self._success[junction] = right
            rewards[junction] = np.where(right, RIGHT, WRONG)
        self._step += moved
        done = self._step > self._length
        self._over = done.copy()
        np.minimum(self._step, self._length, out=self._step)
        self._arrive()
        info: dict[str, Any] = {}
        if done.any():
            info = {"is_success": self._success & done, "_is_success": done.copy()}
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info = {"final_obs": self._observe(), "_final_obs": done.copy(), "final_info": info}
                self._draw(np.flatnonzero(done))
        return self._observe(), rewards, done, np.zeros(self.num_envs, bool), info

    def _draw(self, which: np.ndarray) -> None:
        for i in which:
            maze: Maze = draw_maze(self._rngs[i], self.options)
            self._hint[i], self._length[i] = maze.hint, maze.length
            self._noise[i, : len(maze.noise)] = maze.noise
            self._places[i], self._payoffs[i] = maze.places, maze.payoffs
        self._step[which] = 0
        self._over[which] = False
        self._arrive()

    def _arrive(self) -> None:
        """Environments that are at a decision point now, and which one each: (k,) and (k,)."""
        self._here = np.nonzero(self._places == self._step[:, None])

    def _observe(self) -> np.ndarray:
        bits = self._noise[self._rows, self._step >> 3] << (self._step & 7) & 128
        observation = np.zeros((self.num_envs, 3), np.float32)
        observation[:, 0] = np.where(self._step == 0, self._hint, 0)
        rows, points = self._here
        if len(rows):
            observation[rows, 1] = points + 1
        observation[:, 2] = (bits >> 6) - 1  # a bit of the noise is 128 or 0 here
        return observation
