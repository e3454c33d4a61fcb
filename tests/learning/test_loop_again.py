"""The training loop after a stop, a crash, or numbers that are no longer any."""

import math
from typing import Any

import pytest
import torch

from memup_cli.errors import BadInput
from memup_cli.interrupts import StopFlag
from memup_cli.learning.weights import save_model
from stores.errors import DamagedData
from tests.learning.small import stored
from tests.learning.test_loop import Counting, Training, Weight, at

LONG = {"updates": 120, "evaluate_every": 30, "checkpoint_every": 25}


class Killed(Exception):
    """The process ends here, whatever it was doing."""


def kill(when: int):
    def during(update: int) -> None:
        if update == when:
            raise Killed

    return during


@pytest.fixture
def training(tmp_path) -> Training:
    return Training(tmp_path / "run", stored(tmp_path / "run"))


@pytest.fixture
def undisturbed(tmp_path) -> tuple[Training, Counting, dict[str, Any]]:
    whole, learner = Training(tmp_path / "whole", stored(tmp_path / "whole")), Counting()
    torch.manual_seed(0)
    found = untimed(whole(learner, **LONG))
    torch.manual_seed(0)
    return whole, learner, found


def untimed(found: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in found.items() if k not in ("updates_per_second", "data_wait_share", "peak_rss_bytes")}


@pytest.mark.parametrize("when", [0, 24, 49, 69, 89, 118])
def test_a_training_that_was_stopped_ends_as_if_it_had_not_been(training, undisturbed, when):
    """Learning rates, losses of a half-finished line, random numbers, the best so far: all go on."""
    whole, first, expected = undisturbed
    with StopFlag() as stop:
        training(before := Counting(at(when)), stop, **LONG)
    torch.manual_seed(1)  # of another process
    after = Counting()
    found = untimed(training(after, **LONG))
    assert before.seen + after.seen == first.seen
    assert after.resumed
    assert found == expected
    assert training.lines() == whole.lines()
    assert torch.equal(after.drawn, first.drawn)


@pytest.mark.parametrize(("when", "again"), [(60, 50), (99, 75), (119, 100)])
def test_a_training_that_was_killed_goes_on_from_its_last_checkpoint(training, undisturbed, when, again):
    whole, first, expected = undisturbed
    with pytest.raises(Killed):
        training(Counting(kill(when)), **LONG)
    assert training.checkpoints()[-1] == again
    torch.manual_seed(1)
    after = Counting()
    assert untimed(training(after, **LONG)) == expected
    assert after.seen == first.seen[again:]
    assert training.lines() == whole.lines(), "nothing twice"
    assert torch.equal(after.drawn, first.drawn)


def test_one_that_was_killed_before_its_first_checkpoint_begins_again(training, undisturbed):
    whole, first, expected = undisturbed
    with pytest.raises(Killed):
        training(Counting(kill(20)), **LONG)
    torch.manual_seed(0)
    after = Counting()
    assert untimed(training(after, **LONG)) == expected
    assert (after.seen, after.resumed, training.lines()) == (first.seen, False, whole.lines())


def test_the_best_before_a_stop_stays_the_best(training):
    training.errors = {3: 1.0, 6: 9.0, 8: 4.0}
    with StopFlag() as stop:
        training(Counting(at(3)), stop)
    found = training(Counting())
    assert (found["best_rmse"], training.weight("best"), training.weight("last")) == (1.0, 3, 8)


def test_what_somebody_put_in_place_of_the_best_before_a_stop_is_not_taken_for_it(training):
    """Whole weights, as another training would have written them."""
    training.errors = {3: 1.0, 6: 9.0, 8: 4.0}
    with StopFlag() as stop:
        training(Counting(at(3)), stop)
    save_model(training.folder / "memory", Weight(), {}, {}, "best", lambda: None)
    with pytest.raises(DamagedData, match=r"best\.safetensors is not what this training wrote"):
        training(Counting())


@pytest.mark.parametrize("lost", ["last", "best"])
def test_an_attempt_killed_after_its_last_update_has_only_the_evaluation_left(training, lost):
    """What it had logged stays, with the evaluation; a file that it did not come to write is written."""
    expected = untimed(training(Counting(), updates=6))
    lines, evaluated = training.lines(), len(training.evaluated)
    (training.folder / f"memory/{lost}.safetensors").unlink()
    after = Counting()
    assert untimed(training(after, updates=6)) == expected
    assert after.seen == []
    assert training.evaluated[evaluated:] == [6]
    assert training.lines() == lines
    assert (training.weight("best"), training.weight("last")) == (6, 6)


def spoil(learner: Counting, when: int, what: str, value: float) -> None:
    """From this update on, the loss or the weight is this."""

    def during(update: int) -> None:
        if update >= when:
            (learner.losses if what == "loss" else learner.model.w.data).fill_(value)

    learner.during = during


@pytest.mark.parametrize(("what", "value"), [("loss", math.nan), ("loss", math.inf), ("weight", -math.inf)])
def test_what_is_not_finite_is_an_error_and_never_in_a_checkpoint(training, what, value):
    learner = Counting()
    spoil(learner, 40, what, value)
    with pytest.raises(BadInput, match=r"no longer finite .* at update 45 .* of update 30, is kept"):
        training(learner, updates=60, checkpoint_every=15, evaluate_every=60)
    assert training.checkpoints() == [15, 30]


def test_a_loss_that_is_not_finite_is_noticed_at_the_next_line_of_the_log_at_the_latest(training):
    learner = Counting()
    spoil(learner, 10, "loss", math.nan)
    with pytest.raises(BadInput, match=r"at update 50 .*there is no checkpoint yet"):
        training(learner, **{**LONG, "checkpoint_every": 1000, "evaluate_every": 1000})
    assert training.lines() == []


def test_weights_that_are_not_finite_are_not_saved_when_a_signal_comes(training):
    learner = Counting()

    def during(update: int) -> None:
        at(4)(update)
        learner.model.w.data.fill_(math.inf if update == 4 else float(update))

    learner.during = during
    with StopFlag() as stop, pytest.raises(BadInput, match="of update 3, is kept"):
        training(learner, stop)
    assert training.checkpoints() == [3]


def test_a_checkpoint_of_something_else_is_said_to_be_one(training):
    class Other(Counting):
        def state(self) -> dict[str, Any]:
            return {"model": {}, "losses": self.losses, "drawn": self.drawn}

    with StopFlag() as stop:
        training(Other(at(2)), stop)
    with pytest.raises(DamagedData, match="does not fit what this version"):
        training(Counting())
