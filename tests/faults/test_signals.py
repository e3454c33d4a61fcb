"""TERM, USR2 and Ctrl-C: a checkpoint, the right exit code, and the command that continues; twice is harmless."""

import os
import random
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from stores.manifest import Manifest
from tests.faults.stages import AGENT_STAGE, MEMORY_STAGE, SCORE_STAGE, STAGES, Stage, fresh, words
from tests.faults.test_collect import FIRST_COMMIT, GYM
from tests.processes import Forks

CODES = {signal.SIGTERM: 75, signal.SIGUSR2: 75, signal.SIGINT: 130}


def signal_at(
    forks: Forks, places: Path, start: Path, stage: Stage, expected: dict[str, Any], number: int, points: list[int]
) -> list[int]:
    """Signal a stage twice, at each point; its exit codes. Running it again gives the same result."""
    codes = []
    for at in points:
        folder = fresh(places, start)
        done = forks.with_fault(folder, stage.command, at, f"sig:{int(number)}")
        codes.append(done.code)
        assert "Traceback" not in done.err, f"signal at {at}: {done.err}"
        if done.code:
            begun = Manifest.load(folder / "run").stages if Manifest.exists(folder / "run") else {}
            entry = begun.get(stage.name, {"status": "interrupted"})
            assert entry["status"] == "interrupted", f"signal at {at}"
            assert "run the same command again" in done.err or f"To continue: memup {stage.command[0]}" in done.err
        again = forks(folder, stage.command)
        assert again.code == 0, f"signal at {at}: {again.err}"
        assert stage.result(folder / "run") == expected, f"signal at {at}"
        shutil.rmtree(folder)
    return codes


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda n: n.name)
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_signal_stops_a_stage_at_a_checkpoint(forks, places, prepare, undisturbed, tally, stage, number):
    calls, expected = undisturbed(stage)
    codes = signal_at(forks, places, prepare(stage), stage, expected, number, [calls // 3])
    tally(stage.name, faults=2, wrong=sum(code != CODES[number] for code in codes))
    assert codes == [CODES[number]]


@pytest.mark.sweep
@pytest.mark.parametrize("number", CODES, ids=lambda n: n.name)
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_signal_at_any_call_loses_nothing(forks, places, prepare, undisturbed, tally, stage, number):
    calls, expected = undisturbed(stage)
    points = sorted(random.Random(f"{stage.name} {number}").sample(range(1, calls + 1), min(calls, 20)))
    codes = signal_at(forks, places, prepare(stage), stage, expected, number, points)
    wrong = sum(code not in (0, CODES[number]) for code in codes)
    tally(stage.name, points=len(points), faults=2 * len(points), wrong=wrong)
    assert wrong == 0, codes
    assert CODES[number] in codes


def test_a_detector_that_was_stopped_goes_on_where_it_was(forks, places, prepare, undisturbed, tally):
    calls, expected = undisturbed(SCORE_STAGE)
    folder = stopped_in_training(forks, places, prepare, calls)
    again = forks(folder, SCORE_STAGE.command)
    assert re.search(r"resuming at update \d+ of the detector", again.err)
    assert SCORE_STAGE.result(folder / "run") == expected
    assert not list((folder / "run/detector").glob("checkpoint-*"))
    tally("score", faults=2)


def stopped_in_training(forks: Forks, places, prepare, calls: int) -> Path:
    """A folder with a score stage that was stopped while it trained the detector: after two fifths of its calls."""
    for at in sorted(range(10, calls), key=lambda at: abs(at - 0.4 * calls)):
        folder = fresh(places, prepare(SCORE_STAGE))
        done = forks.with_fault(folder, SCORE_STAGE.command, at, "sig:15")
        assert done.code == 75, done.err
        if "a checkpoint of the detector is saved" in done.err:
            return folder
    raise AssertionError("no signal came while the detector was trained")


def test_what_is_reached_while_a_signal_comes_is_complete(forks, places, prepare, tally):
    """Otherwise the next attempt would train beyond the update where an undisturbed one ends."""
    folder = fresh(places, prepare(MEMORY_STAGE))
    command = [*MEMORY_STAGE.command, "--until", "rmse<1000", "--checkpoint-every", "1000"]
    last = forks.count_calls(folder, command)
    digest = Manifest.load(folder / "run").stages["train-memory"]["weights"]
    for at in range(last - 40, last, 4):
        folder = fresh(places, prepare(MEMORY_STAGE))
        if forks.with_fault(folder, command, at, "sig:15").code == 75:
            assert forks(folder, command).code == 0
        entry = Manifest.load(folder / "run").stages["train-memory"]
        assert entry["metrics"]["updates"] == 2
        assert entry["weights"] == digest
        tally("train-memory", faults=2)


def test_a_baseline_and_an_evaluation_stop_too(forks, places, prepare, tally):
    folder = fresh(places, prepare(AGENT_STAGE))
    baseline = words("train-baseline --run run --model lstm --hidden 8 --batch 4 --updates 4 --checkpoint-every 2")
    stopped = forks.with_fault(folder, baseline, 25, "sig:12")
    assert stopped.code == 75, stopped.err
    assert "checkpoint saved at update" in stopped.err
    assert forks(folder, baseline).code == 0
    evaluate = words("evaluate memory --run run")
    stopped = forks.with_fault(folder, evaluate, 1, "sig:15")
    assert stopped.code == 75
    assert "run the same command again" in stopped.err
    assert forks.with_fault(folder, evaluate, 1, "sig:2").code == 130
    assert forks(folder, evaluate).code == 0
    tally("train-baseline", faults=2)
    tally("evaluate", faults=3)


def test_a_signal_to_the_whole_group_reaches_workers_harmlessly(memup, tally):
    """As a batch system sends it: to every process of the job."""
    process = memup.held(*GYM, **FIRST_COMMIT, group=True)
    for _ in range(2):
        os.killpg(process.pid, signal.SIGTERM)
    done = process.resume()
    assert done.code == 75, done.err
    assert "episodes are saved" in done.err
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["status"] == "interrupted"
    tally("collect", faults=2)
