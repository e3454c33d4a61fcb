"""Disks that are full, read-only, or lose their power."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli import files_of
from tests.faults.mounts import after_power_cut, fragile_disk, mounted, read_only
from tests.faults.stages import AGENT_STAGE, MEMORY_STAGE, SCORE_STAGE, STAGES, fresh, words

LATER = [SCORE_STAGE, MEMORY_STAGE, AGENT_STAGE]
VERIFY = words("verify --run run")


@pytest.mark.parametrize("stage", [SCORE_STAGE, MEMORY_STAGE, AGENT_STAGE], ids=lambda s: s.name)
def test_a_full_disk_is_reported_and_survived(forks, places, prepare, undisturbed, tally, tmp_path, stage):
    _, expected = undisturbed(stage)
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=8m", "tmpfs") as disk:
        shutil.copytree(prepare(stage), disk, dirs_exist_ok=True)
        before = files_of(disk / "run")
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        with (disk / "filler").open("wb") as file:
            file.write(bytes(free - (8 << 10)))
        failed = forks(disk, stage.command)
        assert failed.code == 74, failed.err
        assert "No space left" in failed.err
        assert "bytes needed" in failed.err
        assert "run/" in failed.err
        kept = files_of(disk / "run")
        assert {name: kept.get(name) for name in before if "manifest" not in name} == {
            name: data for name, data in before.items() if "manifest" not in name
        }
        (disk / "filler").unlink()
        assert forks(disk, VERIFY).code == 0
        again = forks(disk, stage.command)
        assert again.code == 0, again.err
        assert stage.result(disk / "run") == expected
    tally(stage.name, faults=1)


@pytest.mark.parametrize("stage", LATER, ids=lambda s: s.name)
def test_a_read_only_run_is_refused_before_any_work(forks, prepare, tally, tmp_path, stage):
    folder = fresh(tmp_path, prepare(stage))
    with read_only(folder):
        before = files_of(folder)
        failed = forks(folder, stage.command)
        assert failed.code == 74, failed.err
        assert "run/" in failed.err
        assert "read-only" in failed.err.lower()
        assert "--run" in failed.err
        assert files_of(folder) == before
        assert forks(folder, VERIFY).code == 0, "looking is allowed"
    tally(stage.name, faults=1)


def cut_power(forks, tmp_path: Path, start: Path, stage, expected, at: int | None) -> None:
    """Kill the stage at a call (None: let it finish) and cut the power at once; then look at what is left."""
    with fragile_disk(tmp_path) as (live, image):
        if start.joinpath("run").exists():
            shutil.copytree(start / "run", live / "run")
            os.sync()  # what earlier stages wrote is old
        if at is None:
            done = forks(live, stage.command)
            assert done.code == 0, done.err
        else:
            assert forks.with_fault(live, stage.command, at, "kill").code == -signal.SIGKILL
        with after_power_cut(image) as after:
            if (after / "run" / "manifest.json").exists():
                looked = forks(after, VERIFY)
                assert looked.code == 0, f"power cut at {at}: {looked.out}{looked.err}"
            again = forks(after, stage.command)
            assert again.code == 0, f"power cut at {at}: {again.err}"
            if at is None:
                assert "up to date" in again.out, "what was reported as done stays done"
            assert stage.result(after / "run") == expected, f"power cut at {at}"


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_after_a_power_cut_all_that_was_committed_is_intact(forks, prepare, undisturbed, tally, tmp_path, stage):
    calls, expected = undisturbed(stage)
    points = [None, calls // 2]
    for at in points:
        cut_power(forks, tmp_path, prepare(stage), stage, expected, at)
    tally(stage.name, points=len(points), faults=len(points))


@pytest.mark.sweep
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_after_power_cuts_at_many_calls_all_that_was_committed_is_intact(
    forks, prepare, undisturbed, tally, tmp_path, stage
):
    calls, expected = undisturbed(stage)
    points = list(range(1, calls + 1, max(1, calls // 15)))
    for at in points:
        cut_power(forks, tmp_path, prepare(stage), stage, expected, at)
    tally(stage.name, points=len(points), faults=len(points))
