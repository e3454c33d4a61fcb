"""The Endless T-Maze through the command line: collected, learned with near targets, evaluated by corridor."""

import numpy as np
import pytest

from memup_cli.evaluation.predictions import Predictions
from tests.cli import Memup, episodes


def collect(memup: Memup, *options: object) -> None:
    memup("collect", "endless-tmaze", "--corridors", 3, "--length", 12, "--run", "run", *options)


@pytest.mark.learning
def test_it_is_solved_corridor_by_corridor(memup):
    collect(memup, "--episodes", 300, "--test-episodes", 40)
    assert (episodes(memup.folder / "run")[0]["observation"][:, 1] == 1).sum() == 3
    memup("score", "--run", "run", "--updates", 500)
    memup("train-memory", "--run", "run", "--rollout", 10, "--updates", 700, "--evaluate-every", 700)
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["right"] > 0.9
    assert [row["corridor"] for row in found["by_order"]] == [1, 2, 3]
    assert all(row["count"] == 40 and row["right"] > 0.8 for row in found["by_order"])
    shown = memup("evaluate", "memory", "--run", "run").out
    assert "by corridor" in shown
    assert "nearer to what came" in shown


def test_evaluation_tells_the_corridors_apart(memup):
    collect(memup, "--episodes", 20, "--test-episodes", 5)
    memup("score", "--run", "run", "--updates", 50)
    memup("train-memory", "--run", "run", "--updates", 5, "--batch", 8)
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert [(row["corridor"], row["count"]) for row in found["by_order"]] == [(1, 5), (2, 5), (3, 5)]
    assert "by corridor" in memup("evaluate", "memory", "--run", "run").out


def test_too_many_steps_are_refused(memup):
    said = memup("collect", "endless-tmaze", "--corridors", 1000, "--length", 1_000_000, code=2).err
    assert "100,000,000 steps" in said


def test_steps_that_matter_are_counted_within_each_episode():
    from memup_cli.tasks.mazes.endless import EndlessOptions, EndlessTMaze

    episode, step = np.array([1, 0, 0, 1, 1]), np.array([30, 5, 20, 10, 20])
    error = np.array([16.0, 0.0, 0.0, 1.0, 49.0])
    found = Predictions(episode, step, error, np.ones(5), error, error, EndlessTMaze(EndlessOptions()).spec).by_order()
    assert [(row["corridor"], row["count"], row["right"]) for row in found] == [(1, 2, 1.0), (2, 2, 0.5), (3, 1, 0.0)]
