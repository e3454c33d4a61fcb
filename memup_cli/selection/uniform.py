"""The Rnd-Pred ablation: every future step is as good a target as any other."""

import numpy as np

from .rules import OF_SCORES, Rule
from .surprise import choice


def alike(scores: np.ndarray | None, length: int) -> np.ndarray:
    return np.zeros(length, np.float32)


UNIFORM = Rule(lambda *_: "", choice, alike, OF_SCORES, "draws from all steps alike")
