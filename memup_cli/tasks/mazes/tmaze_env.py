"""Mazes as Gymnasium environments, single and vectorised. `memup collect` writes what stepping these gives."""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from .endless import EndlessOptions
from .tmaze import RIGHT, WRONG, CorridorOptions, TMazeOptions


def _spaces(options: CorridorOptions) -> tuple[Box, Discrete]:
    high = np.array([1, options.marks, 1], np.float32)
    return Box(np.array([-1, 0, -1], np.float32), high, dtype=np.float32), Discrete(2)


class MazeEnv(gymnasium.Env[np.ndarray, Any]):
    """One maze. Actions: 0 left, 1 right; they matter at junctions only. The hint +1 asks for right.

    An episode is a success if all its turns were right.
    """

    def __init__(self, options: CorridorOptions, render_mode: None = None) -> None:
        self.options, self.render_mode = options, render_mode
        self.observation_space, self.action_space = _spaces(self.options)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._maze = maze = self.options.draw(self.np_random)
        self._hints = dict(zip(maze.begins.tolist(), maze.hints.tolist(), strict=True))
        self._points = {int(step): i for i, step in enumerate(maze.places)}
        self._step, self._success = 0, True
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        maze, point, reward = self._maze, self._points.get(self._step), 0.0
        if point is not None:
            reward = float(maze.payoffs[point])
            if maze.turns[point] >= 0:
                right = int(action) == maze.turns[point]
                reward = RIGHT if right else WRONG
                self._success &= bool(right)
        self._step += 1
        if self._step > maze.length:  # the walk is over: show the last place again
            self._step = maze.length
            return self._observe(), reward, True, False, {"is_success": self._success}
        return self._observe(), reward, False, False, {}

    def _observe(self) -> np.ndarray:
        bit = (self._maze.noise[self._step >> 3] >> (7 - (self._step & 7))) & 1
        point = self._points.get(self._step)
        mark = 0 if point is None else int(self._maze.marks[point])
        return np.array([self._hints.get(self._step, 0), mark, 2 * int(bit) - 1], np.float32)


class MazeVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """Many mazes stepped in one go; sub-environment i behaves as MazeEnv seeded with seed + i."""

    def __init__(self, num_envs: int, options: CorridorOptions, autoreset_mode: AutoresetMode | str) -> None:
        self.options, self.num_envs, self.render_mode = options, num_envs, None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": []}
        self.single_observation_space, self.single_action_space = _spaces(self.options)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        maze = options.draw(np.random.default_rng(0))  # only for its shapes
        self._noise = np.zeros((num_envs, options.max_length // 8 + 1), np.uint8)  # packed bits
        self._hints, self._begins = (np.zeros((num_envs, len(maze.begins)), np.int64) for _ in range(2))
        self._places, self._marks, self._turns = (np.zeros((num_envs, len(maze.places)), np.int64) for _ in range(3))
        self._payoffs = np.zeros((num_envs, len(maze.places)), np.float32)
        self._length = np.zeros(num_envs, np.int64)
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
            turns = self._turns[rows, points]
            right = np.asarray(actions)[rows] == turns
            rewards[rows] = np.where(turns >= 0, np.where(right, RIGHT, WRONG), self._payoffs[rows, points])
            self._success[rows] &= right | (turns < 0)
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
            maze = self.options.draw(self._rngs[i])
            self._length[i] = maze.length
            self._noise[i, : len(maze.noise)] = maze.noise
            self._hints[i], self._begins[i] = maze.hints, maze.begins
            self._places[i], self._marks[i] = maze.places, maze.marks
            self._turns[i], self._payoffs[i] = maze.turns, maze.payoffs
        self._step[which] = 0
        self._over[which] = False
        self._success[which] = True
        self._arrive()

    def _arrive(self) -> None:
        """Environments that are at a decision point now, and which one each: (k,) and (k,). Those with a hint, too."""
        step = self._step[:, None]
        self._here, self._hinted = np.nonzero(self._places == step), np.nonzero(self._begins == step)

    def _observe(self) -> np.ndarray:
        bits = self._noise[self._rows, self._step >> 3] << (self._step & 7) & 128
        observation = np.zeros((self.num_envs, 3), np.float32)
        for column, at, values in ((0, self._hinted, self._hints), (1, self._here, self._marks)):
            if len(at[0]):
                observation[at[0], column] = values[at]
        observation[:, 2] = (bits >> 6) - 1  # a bit of the noise is 128 or 0 here
        return observation


class TMazeEnv(MazeEnv):
    """memup/TMaze-v0."""

    def __init__(
        self,
        length: int = 1000,
        mode: Literal["LN", "LNR"] = "LNR",
        distractors: int = 0,
        render_mode: None = None,
    ) -> None:
        super().__init__(TMazeOptions(length=length, mode=mode, distractors=distractors), render_mode)


class TMazeVectorEnv(MazeVectorEnv):
    """memup/TMaze-v0, vectorised."""

    def __init__(
        self,
        num_envs: int = 1,
        length: int = 1000,
        mode: Literal["LN", "LNR"] = "LNR",
        distractors: int = 0,
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: None = None,
    ) -> None:
        super().__init__(num_envs, TMazeOptions(length=length, mode=mode, distractors=distractors), autoreset_mode)


class EndlessTMazeEnv(MazeEnv):
    """memup/EndlessTMaze-v0."""

    def __init__(
        self,
        corridors: int = 10,
        length: int = 100,
        mode: Literal["LN", "LNR"] = "LNR",
        render_mode: None = None,
    ) -> None:
        super().__init__(EndlessOptions(corridors=corridors, length=length, mode=mode), render_mode)


class EndlessTMazeVectorEnv(MazeVectorEnv):
    """memup/EndlessTMaze-v0, vectorised."""

    def __init__(
        self,
        num_envs: int = 1,
        corridors: int = 10,
        length: int = 100,
        mode: Literal["LN", "LNR"] = "LNR",
        autoreset_mode: AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: None = None,
    ) -> None:
        super().__init__(num_envs, EndlessOptions(corridors=corridors, length=length, mode=mode), autoreset_mode)
