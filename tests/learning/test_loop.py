"""The training loop, with a learner that counts: what it does at which update, and what a second attempt does."""

import dataclasses
import json
import math
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from memup_cli.compute.pace import Watch
from memup_cli.evaluation.predictions import Predictions
from memup_cli.interrupts import StopFlag
from memup_cli.learning.loop import Course, descend, learning_rate
from memup_cli.tasks.spec import TaskSpec
from stores.reader import Trajectories
from stores.slab import Slab
from tests.learning.small import SPEC, stored


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))  # counts
        self.other = nn.Parameter(torch.ones(()))  # stays


class Counting:
    """Its weight counts the updates, the n-th has loss n; what it draws on the way tells the generator's state."""

    def __init__(self, during: Callable[[int], None] = lambda update: None) -> None:
        self.model = self.kept = Weight()
        self.losses, self.drawn = torch.zeros(()), torch.zeros(())
        self.seen: list[tuple[int, float]] = []
        self.resumed: bool | None = None
        self.during = during

    def attach(self, slab: Slab, resumed: bool) -> None:
        self.slab, self.resumed = slab, resumed

    def update(self, lr: float, update: int, watch: Watch) -> None:
        assert self.slab.update == update
        self.during(update)
        self.seen.append((update, lr))
        with torch.no_grad():
            self.model.w += 1
        self.losses += update + 1
        self.drawn += torch.rand(())
        self.slab.advance()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "losses": self.losses, "drawn": self.drawn}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.losses += state["losses"]
        self.drawn += state["drawn"]


class Training:
    """A run folder, and what every attempt at its training has in common."""

    def __init__(self, folder: Path, train: Trajectories) -> None:
        self.folder, self.evaluated = folder, []
        self.errors: dict[int, float] = {}  # at evaluations; else the square of the updates that are left to 100
        self.losses: dict[int, float] = {}  # of classes, there; else by how many are right
        self.course = Course(
            stage="train-memory",
            run=folder,
            folder=folder / "memory",
            task={},
            config={},
            lr=1.0,
            lr_end=0.1,
            updates=8,
            evaluate_every=3,
            checkpoint_every=3,
            quiet=True,
            device=torch.device("cpu"),
            evaluate=lambda: Predictions(*[np.zeros(1)] * 5, SPEC),
            reached=lambda result: False,
            slab=lambda update: Slab(train, 2, 3, 0, update=update),
        )

    def __call__(self, learner: Counting, stop: StopFlag | None = None, **changes: Any) -> dict[str, Any]:
        def evaluate() -> Predictions:
            update = int(learner.kept.w)
            self.evaluated.append(update)
            error = np.array([self.errors.get(update, float((100 - update) ** 2))])
            nll = np.array([self.losses[update]]) if self.losses else -np.log(error)
            return Predictions(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1), error, nll, spec)

        spec: TaskSpec = changes.pop("spec", SPEC)
        course = dataclasses.replace(self.course, **{"evaluate": evaluate, **changes})
        return descend(course, learner, StopFlag() if stop is None else stop, lambda: None)

    def lines(self) -> list[dict[str, float]]:
        """What was logged, without how fast it was."""
        found = (self.folder / "logs/train-memory/metrics.jsonl").read_text().splitlines()
        timed = ("updates_per_second", "data_wait_share")
        return [{k: v for k, v in json.loads(line).items() if k not in timed} for line in found]

    def checkpoints(self) -> list[int]:
        return sorted(int(path.name.split("-")[1]) for path in (self.folder / "memory").glob("checkpoint-*.pt"))

    def weight(self, which: str) -> float:
        return float(load_file(self.folder / "memory" / f"{which}.safetensors")["w"])


@pytest.fixture
def training(tmp_path) -> Training:
    return Training(tmp_path, stored(tmp_path))


def test_the_learning_rate_falls_along_a_cosine():
    assert learning_rate(2.0, 0.1, 0.0) == 2.0
    assert learning_rate(2.0, 0.1, 1 / 3) == pytest.approx(2 * (0.1 + 0.9 * 0.75))
    assert learning_rate(2.0, 0.1, 0.5) == pytest.approx(1.1)
    assert learning_rate(2.0, 0.1, 1.0) == pytest.approx(0.2)


def test_every_update_has_its_number_and_its_learning_rate(training):
    learner = Counting()
    found = training(learner, updates=4, lr=2.0)
    half = math.sqrt(0.5)
    expected = [2.0, 2 * (0.55 + 0.45 * half), 1.1, 2 * (0.55 - 0.45 * half)]
    assert [update for update, _ in learner.seen] == [0, 1, 2, 3]
    assert [lr for _, lr in learner.seen] == pytest.approx(expected)
    assert learner.resumed is False
    assert (found["updates"], found["stopped"], found["early"]) == (4, False, False)


def test_losses_are_logged_every_fifty_updates_and_at_the_end_each_counted_once(training):
    training(Counting(), updates=120, evaluate_every=60, checkpoint_every=7)
    assert training.lines() == [
        {"update": 50, "loss": 25.5},
        {"update": 60, "validation_rmse": 40.0, "validation_mse": 1600.0},
        {"update": 100, "loss": 75.5},
        {"update": 120, "loss": 110.5},
        {"update": 120, "validation_rmse": 20.0, "validation_mse": 400.0},
    ]


def test_evaluations_and_checkpoints_come_when_they_are_due_and_the_last_two_stay(training):
    found = training(Counting(), updates=11, evaluate_every=4, checkpoint_every=3)
    assert training.evaluated == [4, 8, 11], "and at the end"
    assert training.checkpoints() == [9, 11]
    assert (found["rmse"], found["best_rmse"]) == (89.0, 89.0)
    assert (training.weight("last"), training.weight("best")) == (11, 11)


def test_the_best_of_all_evaluations_is_kept_and_of_equals_the_later(training):
    training.errors = {2: 9.0, 4: 1.0, 6: 4.0, 8: 1.0, 10: 2.25}
    found = training(Counting(), updates=10, evaluate_every=2)
    assert (training.weight("best"), training.weight("last")) == (8, 10)
    assert (found["rmse"], found["best_update"], found["last_weights"]["rmse"]) == (1.0, 8, 1.5)


def test_of_classes_the_highest_accuracy_is_the_best(training):
    classes = dataclasses.replace(SPEC, target_kind="classes", classes={"y": 2})
    training.errors = {2: 0.25, 4: 0.75, 6: 0.5}
    found = training(Counting(), spec=classes, updates=6, evaluate_every=2)
    assert (training.weight("best"), training.weight("last")) == (4, 6)
    assert (found["accuracy"], found["last_weights"]["accuracy"]) == (0.75, 0.5)


@pytest.mark.parametrize(("by_loss", "best"), [(False, 4), (True, 6)])
def test_of_classes_the_least_loss_is_the_best_where_it_is_to_be(training, by_loss, best):
    classes = dataclasses.replace(SPEC, target_kind="classes", classes={"y": 2})
    training.errors, training.losses = {2: 0.25, 4: 0.75, 6: 0.5}, {2: 0.7, 4: 0.8, 6: 0.6}
    training(Counting(), spec=classes, updates=6, evaluate_every=2, by_loss=by_loss)
    assert (training.weight("best"), training.weight("last")) == (best, 6)


def test_training_ends_at_the_first_evaluation_that_reached_the_goal(training):
    """92 would do from update 8 on: it is looked at after 9."""
    found = training(Counting(), updates=20, reached=lambda result: result["rmse"] <= 92)
    assert training.evaluated == [3, 6, 9]
    assert (found["updates"], found["early"], found["rmse"], training.weight("last")) == (9, True, 91.0, 9)


def at(when: int, number: signal.Signals = signal.SIGTERM) -> Callable[[int], None]:
    """A signal that comes in the middle of an update."""
    return lambda update: signal.raise_signal(number) if update == when else None


def test_a_signal_ends_the_training_after_its_update_with_a_checkpoint(training):
    with StopFlag() as stop:
        found = training(Counting(at(4)), stop)
    assert found == {"updates": 5, "stopped": True}
    assert training.checkpoints() == [3, 5]
    assert not (training.folder / "memory/last.safetensors").exists()


def test_a_signal_before_the_first_update_leaves_all_updates_to_the_next_attempt(training):
    with StopFlag() as stop:
        signal.raise_signal(signal.SIGUSR2)
        found = training(first := Counting(), stop)
    assert (found, first.seen, training.checkpoints()) == ({"updates": 0, "stopped": True}, [], [0])
    second = Counting()
    assert training(second)["updates"] == len(second.seen) == 8
    assert second.resumed is False, "it begins: what begins with it is still to be made"


def test_what_is_reached_while_a_signal_came_is_complete(training):
    with StopFlag() as stop:
        found = training(Counting(at(5)), stop, reached=lambda result: result["rmse"] <= 94)
    assert (found["updates"], found["stopped"], found["early"], found["rmse"]) == (6, False, True, 94.0)
    assert training.weight("last") == 6


def test_a_signal_at_an_evaluation_that_did_not_reach_the_goal_stops(training):
    with StopFlag() as stop:
        found = training(Counting(at(5)), stop, reached=lambda result: result["rmse"] < 94)
    assert (found, training.evaluated, training.checkpoints()) == ({"updates": 6, "stopped": True}, [3, 6], [3, 6])
