"""memup status --watch follows a run that others work on, on a terminal and in a pipe."""

import json
import os
import pty
import signal
import subprocess

import pytest

from tests.processes import COMMAND, environment

PART = ["collect", "copy", "--length", 40, "--episodes", 20, "--test-episodes", 4, "--run", "run", "--shard"]
WATCH = ["status", "--run", "run", "--watch", "--every", 0.1]


@pytest.fixture
def half(memup):
    """A run of two parts, of which one is there."""
    memup(*PART, "0/2")
    return memup


def test_a_watch_in_a_pipe_tells_each_change_and_ends_with_the_work(half):
    process = half.popen(*WATCH)
    assert "collect: interrupted, 12 of 24" in process.stdout.readline()
    half(*PART, "1/2")
    rest, errors = process.communicate()
    assert rest.splitlines()[-1].endswith("collect: complete, 24 of 24")
    assert (process.returncode, errors) == (0, "")


def test_a_watch_for_programs_is_an_object_a_line(half):
    process = half.popen(*WATCH, "--json")
    assert json.loads(process.stdout.readline())["stages"]["collect"]["done"] == 12
    half(*PART, "1/2")
    assert json.loads(process.communicate()[0].splitlines()[-1])["stages"]["collect"]["status"] == "complete"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_leaving_a_watch_is_no_error(half, number):
    process = half.popen(*WATCH)
    process.stdout.readline()
    process.send_signal(number)
    assert process.communicate()[1] == ""
    assert process.returncode == 0


def test_on_a_terminal_the_table_is_drawn_again_in_place(half):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, WATCH)],
        cwd=half.folder,
        env=environment({"TERM": "xterm", "COLUMNS": "100"}),
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    seen = b""
    while b"interrupted" not in seen:
        seen += os.read(ours, 4096)
    half(*PART, "1/2")
    try:
        while more := os.read(ours, 4096):
            seen += more
    except OSError:  # how a terminal ends whose last process is gone
        pass
    assert process.wait() == 0
    assert b"complete" in seen
    assert b"\x1b[1A" in seen  # up again: the same lines are written over
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l")  # the cursor is back
    process.stderr.close()
    os.close(ours)


def test_a_running_training_is_shown_as_far_as_it_has_come(memup, maze):
    train = ["train-memory", "--run", "run", "--hidden", 8, "--batch", 4, "--checkpoint-every", 60]
    watcher = memup.popen(*WATCH, "--until", "train-memory")
    process = memup.held(*train, "--updates", 1200, at="run/memory/checkpoint-000000060-*.pt")
    line = ""
    while "loss" not in line:
        line = watcher.stdout.readline()
        assert line
    assert "train-memory: running" in line
    assert " of 1,200" in line
    assert process.interrupt().code == 75
    while "interrupted" not in line:
        line = watcher.stdout.readline()
    memup(*train, "--updates", 70, "--restart")
    assert "train-memory: complete, 70 of 70" in watcher.communicate()[0].splitlines()[-1]
    assert watcher.returncode == 0
