"""Whatever happens to collect: nothing committed is lost, and the finished store is the same."""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from memup_cli.app import app
from stores.integrity import Check, check_shard
from stores.manifest import Manifest
from stores.reader import Shard, shard_exists
from tests.cli import Memup, files_of
from tests.faults.stages import TMAZE
from tests.processes import ended, workers_of

SMALL = ["collect", "copy", "--length", "20", "--episodes", "7", "--test-episodes", "2", "--run", "run"]


def committed(run: Path) -> dict[str, int]:
    found = {}
    for path in sorted(run.glob("trajectories/*/*.zarr")):
        if shard_exists(path):
            shard = Shard(path)
            assert all(len(shard.rows(g)) for g in shard.available_groups())
            found[str(path.relative_to(run))] = shard.state.committed
    return found


def assert_nothing_lost(folder: Path, reference: Path, before: dict[str, int]) -> None:
    """What was committed is still there and whole; running again gives the same store, byte for byte."""
    run = folder / "run"
    after = committed(run)
    assert all(after.get(path, 0) >= count for path, count in before.items())
    for path in after:
        assert check_shard(run / path, Check(), lambda episodes: None) == []
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        app([*TMAZE, "--quiet", "--json"], standalone_mode=False)
    found = {name: data for name, data in files_of(run / "trajectories").items() if not name.endswith("lease.json")}
    assert found == files_of(reference / "trajectories")
    assert Manifest.load(run).stages["collect"]["status"] == "complete"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    Memup(folder)(*TMAZE)
    return folder / "run"


def kill_at_random(memup: Memup, reference: Path, kills: int, seed: int) -> None:
    """kill -9 at random moments, again and again, until so many kills have hit."""
    rng, hits = random.Random(seed), 0
    run = memup.folder / "run"
    before: dict[str, int] = {}
    began = time.monotonic()
    memup(*TMAZE)
    usual = time.monotonic() - began
    shutil.rmtree(run)
    while hits < kills:
        process = memup.start(*TMAZE)
        if not process.ends_within(rng.uniform(0, 1.2 * usual)):
            process.send_signal(signal.SIGKILL)
        code = process.wait().code
        hits += code == -signal.SIGKILL
        after = committed(run)
        assert all(after.get(path, 0) >= count for path, count in before.items())
        before = after
        if code == 0:
            assert files_of(run / "trajectories") == files_of(reference / "trajectories")
            shutil.rmtree(run)
            before = {}
    assert_nothing_lost(memup.folder, reference, before)


def test_kills_at_random_moments_lose_nothing(memup, reference, tally):
    kill_at_random(memup, reference, kills=4, seed=1)
    tally("collect", faults=4)


@pytest.mark.sweep
def test_a_hundred_kills_at_random_moments_lose_nothing(memup, reference, tally):
    kill_at_random(memup, reference, kills=100, seed=2)
    tally("collect", faults=100)


LONG = [*TMAZE[:4], "--episodes", "60", *TMAZE[6:]]
COMMITTED = "run/trajectories/train/0000.zarr/episodes/row/zarr.json"  # when a shard is made, and by each commit
FIRST_COMMIT: dict[str, Any] = {"at": COMMITTED, "nth": 2}
GYM = ["collect", "gym", "--env-id", "CartPole-v1", "--episodes", "100000", "--run", "run", "--workers", "2"]
GYM += ["--commit-every", "0"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGUSR2, 75), (signal.SIGINT, 130)])
def test_a_signal_commits_and_says_how_to_continue(memup, number, code):
    process = memup.held(*LONG, **FIRST_COMMIT)
    process.send_signal(number)
    process.send_signal(number)  # a second one is harmless
    done = process.resume()
    assert done.code == code, done.err
    assert "episodes are saved" in done.err
    assert "memup collect --run run" in done.err
    entry = memup("status", "--run", "run", "--json").json["stages"]["collect"]
    assert entry["status"] == "interrupted"
    assert 0 < entry["done"] < 61
    resumed = memup("collect", "--run", "run")
    assert "resuming at" in resumed.err
    memup(*LONG[:-4], "--run", "whole")
    assert files_of(memup.folder / "run" / "trajectories") == files_of(memup.folder / "whole" / "trajectories")


def test_stopping_worker_processes_leaves_none_behind(memup):
    process = memup.held(*GYM, **FIRST_COMMIT)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    done = process.interrupt()
    assert done.code == 75, done.err
    assert done.err.strip().count("\n") == 0, done.err
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


def test_killing_the_command_kills_its_workers(memup):
    process = memup.held(*GYM, **FIRST_COMMIT)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.kill()
    assert all(ended(pid, 60) for pid in workers)  # the kernel delivers the parent-death signal


def test_a_worker_that_dies_is_told_and_what_was_committed_is_kept(memup):
    """The other one may be stuck in handing over an episode that nobody takes any more."""
    process = memup.held(*GYM, **FIRST_COMMIT)
    first, second = workers_of(process.pid)
    os.kill(first, signal.SIGKILL)
    done = process.resume()
    assert done.code == 65, done.err
    assert "a worker process died" in done.err
    assert not Path(f"/proc/{second}").exists()
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["done"] > 0


def test_a_full_disk_is_reported_and_survived(memup, reference):
    disk = memup.folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small tmpfs is not allowed here")
    try:
        failed = memup(*TMAZE[:-4], "--workers", "1", "--run", "disk/run", code=74)
        assert "No space left" in failed.err
        assert "bytes needed" in failed.err
        assert "disk/run" in failed.err
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        memup("verify", "--run", "disk/run")
        memup(*TMAZE[:-4], "--workers", "1", "--run", "disk/run")
        assert files_of(disk / "run" / "trajectories") == files_of(reference / "trajectories")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(memup):
    (memup.folder / "closed").mkdir(mode=0o555)
    if os.geteuid() == 0:
        bound = subprocess.run(["mount", "--bind", "-o", "ro", "closed", "closed"], cwd=memup.folder, check=False)
        read_only = subprocess.run(
            ["mount", "-o", "remount,bind,ro", "closed"], cwd=memup.folder, capture_output=True, check=False
        )
        if bound.returncode or read_only.returncode:
            pytest.skip("bind mounts are not allowed here")
    try:
        failed = memup(*SMALL[:-1], "closed/run", code=74)
        assert "closed/run" in failed.err
        assert "--run" in failed.err
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", memup.folder / "closed"], check=False, stderr=subprocess.DEVNULL)


def test_a_living_owner_keeps_others_out(memup):
    process = memup.held(*LONG, **FIRST_COMMIT)
    assert f"process {process.pid}" in memup(*LONG, code=75).err
    done = process.resume()
    assert done.code == 0, done.err


def test_a_zombie_that_lost_its_lease_commits_nothing_more(memup):
    process = memup.held(*LONG, **FIRST_COMMIT)
    lease = memup.folder / "run" / "trajectories" / "train" / "0000.zarr" / "lease.json"
    lease.write_text(
        json.dumps({**json.loads(lease.read_text()), "token": "other", "host": "node7", "pid": 42, "job": "99"})
    )
    done = process.resume()
    assert done.code == 75
    assert "process 42 on node7, job 99" in done.err
    assert "taking over from process 42 on node7, job 99" in memup(*LONG).err
