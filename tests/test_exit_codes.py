"""The exit code of each kind of error, which users' scripts go by."""

import signal
import subprocess
import sys

import pytest

from memup_cli import errors
from memup_cli.interrupts import StopFlag
from stores import errors as store_errors
from tests.processes import environment

CODES = {
    errors.UsageProblem: 2,
    errors.StageMissing: 3,
    errors.BadInput: 65,
    store_errors.DamagedData: 65,
    store_errors.Incomplete: 65,
    store_errors.StoreIO: 74,
    PermissionError: 74,
    BrokenPipeError: 74,
    errors.Stopped: 75,
    errors.RankLost: 75,
    store_errors.Fenced: 75,
    store_errors.UnsafePath: 77,
    errors.Interrupted: 130,
    ZeroDivisionError: None,  # a bug
}


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=lambda value: getattr(value, "__name__", value))
def test_every_error_has_its_exit_code(kind, code):
    assert errors.exit_code(kind("what, where, what to do")) == code


def test_an_episode_that_the_store_does_not_take_is_bad_input():
    assert errors.exit_code(store_errors.UnfitEpisode(3, "has no steps")) == 65


@pytest.mark.parametrize(("first", "second", "code"), [("SIGTERM", "SIGINT", 75), ("SIGINT", "SIGTERM", 130)])
def test_of_two_signals_the_first_gives_the_exit_code(first, second, code):
    with StopFlag() as stop:
        for name in (first, second):
            signal.raise_signal(signal.Signals[name])
    error = stop.error("checkpoint saved at update 3", "memup train-memory")
    assert errors.exit_code(error) == code
    assert f"stopped by {first}" in str(error)


BUGGY = """
import sys
from memup_cli.app import app, main
app.command("buggy")(lambda: 1 // 0)
sys.argv = ["memup", "buggy"]
main()
"""


def test_a_bug_is_exit_1_with_what_to_report():
    done = subprocess.run([sys.executable, "-c", BUGGY], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "this is a bug in memup: ZeroDivisionError" in done.stderr
