"""A fault at every call that changes a file, for every stage that writes.

Whatever happens at whatever call: the exit code is right, there is no traceback, nothing that was committed is lost,
and the same command again gives the same result as one that was never disturbed, byte for byte.
"""

import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from stores.manifest import Manifest
from tests.faults.stages import STAGES, Stage, fresh
from tests.processes import Forks

KILLED = {-signal.SIGKILL}
FAULTS = {
    "kill": KILLED,
    "after": KILLED,
    "torn": KILLED,
    "once:28": {0, 74},
    "from:28": {0, 74},
    "once:5": {0, 74},
    "did:2": {0, 74},
    "once:2": {0, 74},
}
# Dying before a call is dying after the one before it, and torn dies before every call that writes nothing.
EVERYWHERE = ["torn", "from:28", "once:5", "did:2", "once:2"]


def status(run: Path, stage: Stage) -> str:
    return Manifest.load(run).stages.get(stage.name, {}).get("status", "") if Manifest.exists(run) else ""


def leftovers(run: Path) -> list[str]:
    """Half-written files that nobody will clear away; a manifest's may belong to a stage that is running."""
    found = [p for pattern in ("*.partial", "*.deleting") for p in run.rglob(pattern)]
    return [str(p) for p in found if not p.name.startswith("manifest")]


def sweep(
    forks: Forks, places: Path, start: Path, stage: Stage, expected: dict[str, Any], action: str, points: list[int]
) -> tuple[list[str], int]:
    """Disturb a stage at some points, each on a copy of start; what went wrong, and how many commits were lost."""
    wrong, all_lost = [], 0
    for at in points:
        folder = fresh(places, start)
        run = folder / "run"
        committed = stage.committed(run)
        done = forks.with_fault(folder, stage.command, at, action)
        if done.code not in FAULTS[action] or (done.code == 0) > (status(run, stage) == "complete"):
            wrong.append(f"{action} at {at}: exit {done.code} {done.err}")
        assert "Traceback" not in done.err, f"{action} at {at}: {done.err}"
        before = stage.committed(run)
        if stage.name in ("collect", "score"):
            all_lost += sum(before.get(name) != inode for name, inode in committed.items())
        again = forks(folder, stage.command)
        assert again.code == 0, f"{action} at {at}: {done.err}; then {again.err}"
        all_lost += stage.lost(run, before, again)
        assert stage.result(run) == expected, f"{action} at {at}: another result; {done.err}"
        assert leftovers(run) == [], f"{action} at {at}"
        shutil.rmtree(folder)
    return wrong, all_lost


@pytest.mark.parametrize("action", FAULTS)
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_fault_at_some_call_loses_nothing(forks, places, prepare, undisturbed, tally, stage, action):
    calls, expected = undisturbed(stage)
    points = [random.Random(f"{stage.name} {action}").randint(1, calls)]
    wrong, lost = sweep(forks, places, prepare(stage), stage, expected, action, points)
    tally(stage.name, points=len(points), faults=len(points), lost=lost, wrong=len(wrong))
    assert wrong == []
    assert lost == 0


@pytest.mark.sweep
@pytest.mark.parametrize("action", EVERYWHERE)
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_fault_at_every_call_loses_nothing(forks, places, prepare, undisturbed, tally, stage, action):
    calls, expected = undisturbed(stage)
    points = list(range(1, calls + 1))
    wrong, lost = sweep(forks, places, prepare(stage), stage, expected, action, points)
    tally(stage.name, points=len(points), faults=len(points), lost=lost, wrong=len(wrong))
    assert wrong == []
    assert lost == 0


@pytest.mark.sweep
@pytest.mark.parametrize("action", ["torn", "from:28"])
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_fault_at_every_call_of_a_second_attempt_loses_nothing(
    forks, places, prepare, undisturbed, tally, stage, action
):
    """The first attempt was killed half-way; what it had committed must survive whatever happens to the second."""
    calls, expected = undisturbed(stage)
    begun = fresh(places, prepare(stage))
    half = 2 * calls // 3
    while not stage.committed(begun / "run") or status(begun / "run", stage) == "complete":
        shutil.rmtree(begun)
        begun = fresh(places, prepare(stage))
        assert forks.with_fault(begun, stage.command, half, "kill").code == -signal.SIGKILL
        half += 5
    rest = fresh(places, begun)
    points = list(range(1, forks.count_calls(rest, stage.command) + 1))
    wrong, lost = sweep(forks, places, begun, stage, expected, action, points)
    tally(stage.name, points=len(points), faults=len(points) + 1, lost=lost, wrong=len(wrong))
    assert wrong == []
    assert lost == 0
