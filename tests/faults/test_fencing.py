"""Two attempts at one stage: the one that lost its lease commits nothing more, and says who has it."""

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from stores import lease as leases
from stores.manifest import Manifest
from tests.cli import files_of
from tests.faults.stages import AGENT_STAGE, MAZE, MEMORY_STAGE, SCORE, SCORE_STAGE, STAGES, Stage, fresh
from tests.processes import Forks, environment

ELSEWHERE = {"host": "node7", "pid": 42, "job": "99"}


def give_away(run: Path, token: str) -> list[Path]:
    """As if attempts on another host had taken every lease over; with the same token, as if ours ran there."""
    leases = sorted(run.rglob("lease.json"))
    for lease in leases:
        found = {**json.loads(lease.read_text()), **ELSEWHERE}
        lease.write_text(json.dumps(found | ({"token": token} if token else {})))
    return leases


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_an_attempt_that_lost_its_lease_stops_and_the_next_takes_over(
    forks,
    places,
    prepare,
    undisturbed,
    tally,
    stage,
):
    calls, expected = undisturbed(stage)
    folder = fresh(places, prepare(stage))
    zombie = forks.stopped(folder, stage.command, calls // 2)
    alive = forks(folder, stage.command)
    assert alive.code == 75
    assert f"process {zombie.pid} on " in alive.err
    assert give_away(folder / "run", "other")
    before = committed_files(folder / "run")
    zombie.send_signal(signal.SIGCONT)
    fenced = zombie.wait()
    assert fenced.code == 75, fenced.err
    assert "process 42 on node7, job 99" in fenced.err
    assert "without committing anything more" in fenced.err
    after = committed_files(folder / "run")
    assert {name: after.get(name) for name in before} == before
    new = after.keys() - before.keys()  # chunks may be there that the commit point, the same as before, does not count
    assert all(Path(name).name.startswith("c.") for name in new), new
    again = forks(folder, stage.command)
    assert again.code == 0, again.err
    assert "taking over from process 42 on node7, job 99" in again.err
    assert stage.result(folder / "run") == expected
    tally(stage.name, faults=1, wrong=0)


def committed_files(run: Path) -> dict[str, bytes]:
    """What counts: no half-written files, no logs (a zombie still has its own open), no copy of the old manifest."""
    skipped = (".partial", "metrics.jsonl", "manifest.previous.json")
    return {k: v for k, v in files_of(run).items() if not k.endswith(skipped) and "tfevents" not in k}


def fence(forks: Forks, places: Path, start: Path, stage: Stage, expected: dict, points: list[int]) -> list[int]:
    """Stop at each point, let a successor finish, wake the zombie; its exit codes. The result is the same for all."""
    codes = []
    for at in points:
        folder = fresh(places, start)
        zombie = forks.stopped(folder, stage.command, at)
        give_away(folder / "run", "")
        successor = forks(folder, stage.command)
        assert successor.code == 0, f"successor of one stopped at {at}: {successor.err}"
        zombie.send_signal(signal.SIGCONT)
        done = zombie.wait()
        assert "Traceback" not in done.err, f"stopped at {at}: {done.err}"
        assert done.code in (0, 75), f"stopped at {at}: {done.err}"
        codes.append(done.code)
        again = forks(folder, stage.command)
        assert again.code == 0, f"after one stopped at {at}: {again.err}"
        assert stage.result(folder / "run") == expected, f"stopped at {at}"
        shutil.rmtree(folder)
    return codes


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_zombie_whose_successor_is_done_and_gone_stops(forks, places, prepare, undisturbed, tally, stage):
    """There is no lease any more, of whomever: the folder is not the zombie's."""
    calls, expected = undisturbed(stage)
    assert fence(forks, places, prepare(stage), stage, expected, [calls // 2]) == [75]
    tally(stage.name, points=1, faults=1)


@pytest.mark.sweep
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: s.name)
def test_a_zombie_that_wakes_after_its_successor_finished_changes_nothing(
    forks,
    places,
    prepare,
    undisturbed,
    tally,
    stage,
):
    calls, expected = undisturbed(stage)
    points = sorted(random.Random(stage.name).sample(range(1, calls + 1), min(calls, 40)))
    codes = fence(forks, places, prepare(stage), stage, expected, points)
    tally(stage.name, points=len(points), faults=len(points))
    assert codes.count(75) > len(points) // 2, "most of them had something left to commit"


def last_record(forks: Forks, places: Path, start: Path, stage: Stage, calls: int) -> int:
    """The call that makes the temporary file of the manifest in which a stage is complete."""
    for at in range(calls, 0, -1):
        folder = fresh(places, start)
        zombie = forks.stopped(folder, stage.command, at)
        zombie.send_signal(signal.SIGKILL)
        zombie.wait()
        status = Manifest.load(folder / "run").stages[stage.name]["status"]
        shutil.rmtree(folder)
        if status != "complete":
            return at - 4  # opened, written, synced, closed, and renamed here
    raise AssertionError("it was complete from the start")


@pytest.mark.parametrize("stage", [SCORE_STAGE, MEMORY_STAGE, AGENT_STAGE], ids=lambda s: s.name)
def test_a_zombie_does_not_record_its_stage_as_complete(forks, places, prepare, undisturbed, tally, stage):
    """Stopped before the last record in the manifest: its lease goes, and the record must not come."""
    calls, _ = undisturbed(stage)
    at = last_record(forks, places, prepare(stage), stage, calls)
    folder = fresh(places, prepare(stage))
    run = folder / "run"
    zombie = forks.stopped(folder, stage.command, at)
    give_away(run, "other")
    zombie.send_signal(signal.SIGCONT)
    fenced = zombie.wait()
    assert fenced.code == 75, fenced.err
    assert "process 42 on node7, job 99" in fenced.err
    assert Manifest.load(run).stages[stage.name]["status"] == "running"
    tally(stage.name, faults=1)


def test_a_zombie_of_collect_keeps_what_later_stages_recorded(forks, places, prepare, tally):
    stage = Stage("collect", (), MAZE)
    calls = forks.count_calls(fresh(places, prepare(stage)), stage.command)
    at = last_record(forks, places, prepare(stage), stage, calls)
    folder = fresh(places, prepare(stage))
    run = folder / "run"
    zombie = forks.stopped(folder, stage.command, at)
    give_away(run, "")
    for command in (stage.command, SCORE):
        done = forks(folder, command)
        assert done.code == 0, done.err
    before = Manifest.load(run).stages
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait().code in (0, 75)
    after = Manifest.load(run).stages
    assert after["score"] == before["score"]
    assert after["collect"]["status"] == "complete"
    tally("collect", faults=1)


RECORDER = """
import sys
from pathlib import Path
from memup_cli.stages.lifecycle import record
from stores.manifest import Manifest
manifest = Manifest.load(Path("run"))
for i in range(int(sys.argv[2])):
    record(manifest, sys.argv[1], "running", progress={"done": i + 1, "total": 0})
"""


def test_stages_that_record_at_the_same_time_do_not_lose_each_other(places, prepare, tally):
    folder = fresh(places, prepare(MEMORY_STAGE))
    names = ["train-baseline/lstm", "train-baseline/srnn"]
    processes = [
        subprocess.Popen([sys.executable, "-c", RECORDER, name, "60"], cwd=folder, env=environment()) for name in names
    ]
    assert [process.wait() for process in processes] == [0, 0]
    stages = Manifest.load(folder / "run").stages
    assert [stages[name]["progress"]["done"] for name in names] == [60, 60]
    tally("manifest", faults=1)


def test_restart_does_not_touch_the_scores_that_somebody_makes(forks, places, prepare, undisturbed, tally):
    calls, _ = undisturbed(SCORE_STAGE)
    folder = fresh(places, prepare(SCORE_STAGE))
    zombie = forks.stopped(folder, SCORE_STAGE.command, 3 * calls // 4)
    before = files_of(folder / "run")
    refused = forks(folder, [*SCORE_STAGE.command, "--restart"])
    assert refused.code == 75
    assert files_of(folder / "run") == before
    zombie.send_signal(signal.SIGCONT)
    assert zombie.wait().code == 0
    tally("score", faults=1)


def test_an_owner_that_nobody_has_buried_is_dead(memup):
    """Killed, and its parent has not asked for its exit code: as in containers whose first process never does."""
    command = ["collect", "gym", "--env-id", "CartPole-v1", "--episodes", 3000, "--test-episodes", 10, "--run", "run"]
    owner = memup.held(*command, "--workers", 1, at="run/trajectories/train/*/lease.json")
    owner.die_unburied()
    again = memup.held(*command, at="run/trajectories/train/*/row/zarr.json", nth=2).interrupt()
    assert again.code == 75, again.err
    assert f"train: taking over from process {owner.pid} on " in again.err
    owner.wait()


@pytest.mark.parametrize("pid", [10**20, "12", -1, 0, None, True])
def test_a_lease_that_makes_no_sense_stops_nobody(memup, pid):
    command = ["collect", "tmaze", "--length", 20, "--episodes", 4, "--test-episodes", 1, "--run", "run"]
    memup(*command)
    lease = {"token": "a", "host": socket.gethostname(), "pid": pid, "born": "", "job": ""}
    (memup.folder / "run/trajectories/train/0000.zarr/lease.json").write_text(json.dumps(lease))
    assert "up to date" not in memup(*command, "--restart").out


def test_a_process_with_the_number_of_a_dead_owner_is_another():
    ours = leases.Lease("a", socket.gethostname(), os.getppid(), "", "")
    assert leases.is_alive(ours)
    assert not leases.is_alive(replace(ours, born="1"))  # whoever it belongs to: no permission is needed to look
