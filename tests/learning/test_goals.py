"""When a training ends before its last update."""

import pytest

from memup_cli.learning.goals import reached
from memup_cli.options.memory_options import TrainMemoryOptions


@pytest.mark.parametrize(
    ("asked", "result", "enough"),
    [
        ({}, {"explained": 0.9998}, False),
        ({}, {"explained": 0.9999}, True),
        ({}, {"rmse": 0.0}, False),
        ({"until": "rmse<0.1"}, {"rmse": 0.1, "explained": 1.0}, False),
        ({"until": "rmse<0.1"}, {"rmse": 0.099}, True),
        ({"until": "mse<0.1"}, {"rmse": 0.5, "mse": 0.05}, True),
        ({"until": "accuracy>=0.9"}, {"accuracy": 0.9, "explained": 0.0}, True),
        ({"until": "accuracy>=0.9"}, {"accuracy": 0.89, "explained": 1.0}, False),
    ],
)
def test_what_is_asked_for_is_enough_and_without_that_all_there_is_to_learn(asked, result, enough):
    assert reached(TrainMemoryOptions(**asked), result) is enough
