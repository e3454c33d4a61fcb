"""An environment whose steps take as long as it is told: at work, or waiting as for a simulator elsewhere."""

import time

import gymnasium
import numpy as np


class Slow(gymnasium.Env[np.ndarray, np.int64]):
    """Fifty steps, and one bit to be remembered."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, milliseconds: float = 5.0, busy: bool = False) -> None:
        self._seconds, self._busy = milliseconds / 1000, busy

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._step, self._side = 0, int(self.np_random.integers(2))
        return self._shown(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        if self._busy:  # for so much time of a core, however many others want it
            until = time.thread_time() + self._seconds
            while time.thread_time() < until:
                pass
        else:
            time.sleep(self._seconds)
        self._step += 1
        over = self._step == 50
        return self._shown(), float(over and action == self._side), over, False, {}

    def _shown(self) -> np.ndarray:
        hint = 2.0 * self._side - 1 if self._step == 0 else 0.0
        return np.array([hint, *self.np_random.uniform(-1, 1, 3)], np.float32)


gymnasium.register("Slow-v0", Slow)
