"""Whether scores tell some steps from others: they stand out, and what is drawn deviates."""

import numpy as np
import pytest
import torch

from memup_cli.detector.examining import LONGEST, examine
from memup_cli.detector.network import Detector
from stores.groups import Episode
from stores.layout import Layout
from stores.reader import Trajectories
from tests.learning.small import FIELDS, SPEC, numbers, stored
from tests.stores.test_roundtrip import write


class Told(Detector):
    """A score of 1, and `more` where q is above 1; there y deviates ten times as much."""

    def __init__(self, more: float) -> None:
        super().__init__(SPEC, "quantile", 1, 2)
        self._more = more

    def forward(self, windows, real, past=None):
        return windows["q"][:, -1]

    def score(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 1 + self._more * (output > 1)

    def deviation(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 1 + 9.0 * (output > 1)


@pytest.mark.parametrize(("more", "separates"), [(0.02, False), (0.5, True)])
def test_scores_that_hardly_differ_tell_nothing_whatever_is_drawn_by_them(tmp_path, more, separates):
    made = [{**numbers(20, seed), "q": np.float32(np.arange(20) == 9 + seed) * 2} for seed in range(4)]
    found = examine(stored(tmp_path, made), SPEC, Told(more), 0.0)
    assert found["separation"] > 2, "what is drawn deviates"
    assert found["separates"] is separates


@pytest.mark.parametrize("step", [0, LONGEST + 99])
def test_of_a_very_long_episode_the_last_steps_are_looked_at(tmp_path, step):
    """One step stands out: the first, which is too long ago, or the last."""
    length = LONGEST + 100
    arrays = {**numbers(length, 0), "q": np.float32(np.arange(length) == step) * 2}
    write(tmp_path / "train" / "0000.zarr", Layout(FIELDS, 1 << 16, 1), [Episode(arrays, 0)])
    found = examine(Trajectories(tmp_path / "train", 1), SPEC, Told(0.5), 0.0)
    assert found["separates"] is (step > 0)
