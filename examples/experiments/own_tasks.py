"""Environments that nobody tuned anything for: what has to be remembered differs in kind, and most of what is seen is
noise. A random player is enough to learn the memory from.

    memup collect gym --import own_tasks.py --env-id own/Match-v0
"""

import os
from abc import abstractmethod
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

LENGTH = int(os.environ.get("OWN_LENGTH", "400"))  # steps of an episode
NOISE = 2  # columns of noise beside what counts

Shown = dict[str, Any]


class _Noisy(gym.Env[Shown, int]):
    """Observes `shown` (a class), `number`, `asked` and noise; subclasses say what is shown when, and what it pays."""

    action_space = spaces.Discrete(2)
    symbols = 2

    def __init__(self, length: int = LENGTH) -> None:
        self.length = length
        self.observation_space = spaces.Dict(
            shown=spaces.Discrete(self.symbols + 1),
            number=spaces.Box(0, 1, (1,), np.float32),
            asked=spaces.Discrete(self.symbols + 1),
            noise=spaces.Box(-5, 5, (NOISE,), np.float32),
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Shown, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.end = 0, self.length
        self.shown: dict[int, int] = {}  # step: symbol, from 1 on
        self.number: dict[int, float] = {}
        self.asked: dict[int, int] = {}
        self.prepare(self.np_random)
        return self._seen(), {}

    def step(self, action: int) -> tuple[Shown, float, bool, bool, dict[str, Any]]:
        reward, done = self.pays(int(action)), self.t == self.end - 1
        self.t += 1
        return self._seen(), reward, done, False, {}

    def _seen(self) -> Shown:
        return {
            "shown": self.shown.get(self.t, 0),
            "number": np.array([self.number.get(self.t, 0.0)], np.float32),
            "asked": self.asked.get(self.t, 0),
            "noise": self.np_random.normal(size=NOISE).clip(-5, 5).astype(np.float32),
        }

    @abstractmethod
    def prepare(self, rng: np.random.Generator) -> None: ...

    @abstractmethod
    def pays(self, action: int) -> float: ...


class Match(_Noisy):
    """Delayed match to sample: is the symbol that is asked for the one that was shown?"""

    symbols = 4

    def prepare(self, rng: np.random.Generator) -> None:
        self.symbol = int(rng.integers(1, 5))
        self.shown[int(rng.integers(20))] = self.symbol
        self.at = int(rng.integers(3 * self.length // 4, self.length))
        other = (self.symbol + int(rng.integers(3))) % 4 + 1
        self.asked[self.at] = self.symbol if rng.random() < 0.5 else other

    def pays(self, action: int) -> float:
        if self.t != self.at:
            return 0.0
        return 1.0 if (action == 1) == (self.asked[self.at] == self.symbol) else -1.0


class Marks(_Noisy):
    """Two marks, far apart: are they the same?"""

    def prepare(self, rng: np.random.Generator) -> None:
        half = self.length // 2
        first, second = (int(s) for s in rng.integers(1, 3, size=2))
        self.shown |= {int(rng.integers(half)): first, int(rng.integers(half, self.length - 1)): second}
        self.same = first == second
        self.asked[self.end - 1] = 1

    def pays(self, action: int) -> float:
        return 0.0 if self.t < self.end - 1 else 1.0 if (action == 1) == self.same else -1.0


class Count(_Noisy):
    """One to six pulses: how many were there?"""

    def prepare(self, rng: np.random.Generator) -> None:
        self.count = int(rng.integers(1, 7))
        self.shown |= {int(t): 1 for t in rng.choice(self.length - 1, self.count, replace=False)}
        self.asked[self.end - 1] = 1

    def pays(self, action: int) -> float:
        return self.count / 6 if self.t == self.end - 1 else 0.0


class Kept(_Noisy):
    """A number that is shown once, in episodes of very different lengths."""

    def prepare(self, rng: np.random.Generator) -> None:
        self.end = int(self.length * np.exp(rng.uniform(np.log(0.1), 0)))
        self.kept = float(rng.random())
        at = int(rng.integers(10))
        self.shown[at], self.number[at] = 1, self.kept
        self.asked[self.end - 1] = 1

    def pays(self, action: int) -> float:
        return self.kept if self.t == self.end - 1 else 0.0


class Recent(_Noisy):
    """At every step: which symbol was shown eight steps ago?"""

    ago = 8

    def prepare(self, rng: np.random.Generator) -> None:
        self.end = min(self.length, 100)
        self.shown = dict(enumerate(rng.integers(1, 3, size=self.end + 1).tolist()))

    def pays(self, action: int) -> float:
        return 0.0 if self.t < self.ago else float(action + 1 == self.shown[self.t - self.ago])


for made in (Match, Marks, Count, Kept, Recent):
    gym.register(f"own/{made.__name__}-v0", made)
