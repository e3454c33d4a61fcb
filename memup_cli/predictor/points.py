"""Prediction points: the steps of a rollout from whose memory states targets are predicted."""

import numpy as np


def prediction_points(
    valid: np.ndarray,
    rollout: int,
    every: int,
    random_points: int,
    key: tuple[int, int],
    own: np.ndarray,
    total: int,
) -> np.ndarray:
    """Steps of each slot's rollout at which the memory predicts (B, P): its last, random ones, every f-th.

    The random ones are a pure function of `key`, (seed, update), and of which of all slots (own, of total) these are.
    """
    last = valid[:, None] - 1
    if rollout == 1:
        return last
    seed, update = key
    rng = np.random.Generator(np.random.PCG64((seed << 20) ^ update))
    random = (rng.random((random_points, total))[:, own] * valid).astype(np.int64).T
    regular = np.minimum(np.arange(every - 1, rollout - 1, every), last) if every else last[:, :0]
    return np.concatenate([last, random, regular], axis=1)
