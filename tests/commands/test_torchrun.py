"""train-memory on several processes: the same updates as one makes, one writer, no hang when one of them dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.cli import Memup
from tests.processes import COMMAND, environment, told

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]


def start(memup: Memup, processes: int, *arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    launcher = [*TORCHRUN, f"--nproc-per-node={processes}", "--", *COMMAND]
    return subprocess.Popen(
        [*launcher, *map(str, arguments)],
        cwd=memup.folder,
        env=environment(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def torchrun(memup: Memup, processes: int, *arguments: object) -> tuple[int, str, str]:
    process = start(memup, processes, *arguments)
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def prepare(memup: Memup, task: str, *options: object) -> Path:
    memup("collect", task, *options, "--run", "run")
    memup("score", "--run", "run", "--updates", 100)
    return memup.folder / "run"


def newest(run: Path) -> dict[str, Any]:
    path = max((run / "memory").glob("checkpoint-*.pt"))
    found: dict[str, Any] = torch.load(path, weights_only=True)
    return found


def gradients(run: Path) -> list[torch.Tensor]:
    """Of the one update that was made: Adam's first moment is a tenth of it."""
    state = newest(run)["learner"]["optimiser"]["state"]
    return [10 * state[key]["exp_avg"] for key in sorted(state)]


UNFINISHED = 400  # updates of a training that is stopped near its start
WALKING = ("--replay", 0, "--rollout-sampling", "all")  # what each process would keep for itself


@pytest.mark.parametrize("rollout", [pytest.param(1, marks=pytest.mark.learning), 10])
def test_gradients_are_those_of_a_single_process(memup, rollout):
    run = prepare(memup, "tmaze", "--length", 50, "--episodes", 60, "--test-episodes", 10)
    train = ["train-memory", "--updates", 1, "--checkpoint-every", 1, "--batch", 16, "--rollout", rollout]
    train += ["--clip", 1e9, "--random-points", 4, "--run", "run", "--restart", *WALKING]
    memup(*train)
    alone = gradients(run)
    for processes in (2, 3):  # 16 slots are not a multiple of 3
        code, out, err = torchrun(memup, processes, *train)
        assert code == 0, err
        assert out.count("waiting for data") == 1, "only one process speaks"
        for one, several in zip(alone, gradients(run), strict=True):
            torch.testing.assert_close(several, one, rtol=0, atol=1e-6)


@pytest.mark.learning
def test_two_processes_come_as_far_as_one(memup):
    prepare(memup, "tmaze", "--length", 100, "--episodes", 500, "--test-episodes", 50)
    train = ["train-memory", "--updates", 600, "--run", "run", "--json"]
    alone = memup(*train).json["rmse"]
    code, out, err = torchrun(memup, 2, *train, "--restart")
    assert code == 0, err
    together = json.loads(out)["rmse"]
    assert max(alone, together) < 0.1
    assert abs(alone - together) < 0.05  # the order of sums differs, and with it the noise; guessing has 3.5
    assert memup("evaluate", "memory", "--run", "run", "--json").json["rmse"] < 0.1
    code, out, err = torchrun(memup, 2, *train)
    assert (code, json.loads(out)["outcome"]) == (0, "up to date"), err


RECIPES = {
    "stored scores": ("tmaze", ["--length", 60], WALKING),
    "replay": ("copy", ["--length", 30], ["--replay", 0.5]),
    "online scores, carried context": (
        "scattered-copy", ["--length", 30], ["--scores", "online", "--context", "carried"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "which", [pytest.param(which, marks=pytest.mark.learning if which != "stored scores" else ()) for which in RECIPES]
)
def test_another_number_of_processes_goes_on(memup, which):
    task, sizes, options = RECIPES[which]
    run = prepare(memup, task, *sizes, "--episodes", 100, "--test-episodes", 10)
    train = ["train-memory", "--batch", 8, "--hidden", 8, "--predictor-hidden", 8, "--run", "run", *options]
    train += ["--updates", UNFINISHED, "--evaluate-every", 5, "--checkpoint-every", 5]
    done = 0
    for processes in (2, 3):
        with told(memup.folder, "run/memory/checkpoint-*.pt") as moment:
            process = start(memup, processes, *train, env=moment.variables)
            moment.wait(process.pid)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=300)
        assert process.returncode not in (0, None)
        assert err.count("checkpoint saved at update") == 1, err
        assert done == 0 or f"resuming at update {done:,}" in err
        found = newest(run)
        assert done < found["update"] < UNFINISHED
        walkers = 8 if which == "stored scores" else 4  # of the others, half of the batch is replayed
        assert all(len(part) == walkers for part in found["learner"]["state"])
        done = found["update"]
    assert memup("status", "--run", "run", "--json").json["stages"]["train-memory"]["status"] == "interrupted"


def test_more_updates_follow_the_same_course_in_all_processes(memup):
    run = prepare(memup, "tmaze", "--length", 20, "--episodes", 60, "--test-episodes", 10)
    shutil.copytree(run, memup.folder / "alone")
    train = ["train-memory", "--batch", 8, "--rollout", 5, "--hidden", 8, "--predictor-hidden", 8, "--lr", 0.01]
    train += WALKING
    for updates in (6, 12):
        code, _, err = torchrun(memup, 2, *train, "--run", "run", "--updates", updates)
        assert code == 0, err
        memup(*train, "--run", "alone", "--updates", updates)
    ours, theirs = (load_file(memup.folder / name / "memory/last.safetensors") for name in ("run", "alone"))
    assert all(torch.allclose(ours[name], theirs[name], atol=1e-4) for name in theirs)


def test_a_process_that_dies_stops_the_others(memup):
    run = prepare(memup, "tmaze", "--length", 60, "--episodes", 100, "--test-episodes", 10)
    train = ["train-memory", "--hidden", 8, "--predictor-hidden", 8, "--batch", 8, "--run", "run"]
    train += ["--updates", UNFINISHED, "--evaluate-every", 5, "--checkpoint-every", 5]
    with told(memup.folder, "run/memory/checkpoint-*.pt") as moment:
        process = start(memup, 2, *train, env=moment.variables)
        moment.wait(process.pid)
    ranks = [pid for pid in children_of(process.pid) if b"train-memory" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    second = next(p for p in ranks if b"\0RANK=1\0" in b"\0" + Path(f"/proc/{p}/environ").read_bytes())
    os.kill(second, signal.SIGKILL)
    _, err = process.communicate(timeout=300)
    assert process.returncode not in (0, None)
    assert "SIGKILL" in err or "Signal 9" in err  # torchrun names the rank and its signal
    assert "another process of this training is gone" in err
    reached = newest(run)["update"]
    assert reached < UNFINISHED
    resumed = memup.held(*train, at="run/memory/checkpoint-*.pt").interrupt()
    assert f"resuming at update {reached:,}" in resumed.err
    assert resumed.code == 75


def test_stages_of_one_process_say_so(memup):
    prepare(memup, "tmaze", "--length", 30, "--episodes", 20, "--test-episodes", 5)
    code, _, err = torchrun(memup, 2, "score", "--run", "run", "--restart")
    assert code != 0
    assert err.count("score runs in one process; start it without torchrun") == 1
    code, _, err = torchrun(memup, 2, "train-memory", "--batch", 1, "--run", "run")
    assert code != 0
    assert err.count("2 processes cannot share 1 slots") == 1


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
