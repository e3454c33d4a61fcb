"""The chain of examples/slurm on a real Slurm: preempted, requeued and cancelled, it ends with the same result."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli import files_of

from .cluster import until
from .conftest import SHARDS

pytestmark = pytest.mark.slurm


def manifest(run: Path) -> dict:
    return json.loads((run / "manifest.json").read_text())


def assert_same_result(run: Path, expected: Path) -> None:
    """Trajectories and scores byte for byte, digests of all weights, and what was measured."""
    for folder in ("trajectories", "scores", "evaluation"):
        assert files_of(run / folder) == files_of(expected / folder)
    left, right = manifest(run)["stages"], manifest(expected)["stages"]
    assert left.keys() == right.keys()
    for stage in left:
        assert left[stage]["status"] == "complete", stage
        for what in ("config", "inputs", "outputs", "weights", "progress"):
            assert left[stage].get(what) == right[stage].get(what), f"{what} of {stage}"


def process_of(*words: str) -> int | None:
    """The process that runs memup with these words in its command line, once it listens to signals."""
    for folder in Path("/proc").iterdir():
        try:
            found = (folder / "cmdline").read_text().split("\0") if folder.name.isdecimal() else []
            is_memup = len(found) > 1 and "python" in found[0] and Path(found[1]).name == "memup"
            if is_memup and set(words) <= set(found) and "USR2" in signals_of(int(folder.name), "SigCgt"):
                return int(folder.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return None


def signals_of(process: int, which: str) -> set[str]:
    """Names of the signals in a mask of /proc/PID/status: SigCgt are caught, ShdPnd are yet to be delivered."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    mask = int(next(line.split()[1] for line in lines if line.startswith(f"{which}:")), 16)
    return {s.name.removeprefix("SIG") for s in signal.Signals if mask >> (s - 1) & 1}


@contextmanager
def frozen(process: int, until_warned_with: str) -> Iterator[None]:
    """Holds a process still until the signal has come, so that it cannot finish first, however fast it is."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
        until(lambda: until_warned_with in signals_of(process, "ShdPnd"), f"SIG{until_warned_with} for {process}")
    finally:
        os.kill(process, signal.SIGCONT)


def test_preempted_and_requeued_it_ends_with_the_same_result(cluster, chain, undisturbed):
    run = chain.folder / "run"
    jobs = chain.submit()

    task = f"{jobs['collect']}_1"
    until(lambda: process_of("collect", "--shard", f"1/{SHARDS}"), "the second task of the array")
    with frozen(process_of("collect", "--shard", f"1/{SHARDS}"), until_warned_with="USR2"):
        cluster.cancel(task, "--signal=USR2")
    until(lambda: cluster.job(task)["Restarts"] == "1", "the array task back in the queue")

    until(lambda: (run / "logs" / "train-memory" / "metrics.jsonl").exists(), "the memory's first updates")
    with frozen(process_of("train-memory"), until_warned_with="TERM"):
        urgent = cluster.occupy("urgent")
    until(lambda: cluster.state(urgent) == "RUNNING", "the urgent job in its place")
    assert cluster.state(jobs["train-memory"]) == "PENDING"
    assert manifest(run)["stages"]["train-memory"]["status"] == "interrupted"
    cluster.cancel(urgent)

    until(lambda: list((run / "agent" / "ppo").glob("checkpoint-*")), "the agent's first checkpoint")
    with frozen(process_of("train-agent"), until_warned_with="USR2"):
        cluster.cancel(jobs["train-agent"], "--signal=USR2")

    until(lambda: all(map(cluster.ended, jobs.values())), "the end of all jobs")
    assert {stage: cluster.state(job) for stage, job in jobs.items()} == dict.fromkeys(jobs, "COMPLETED")
    for name in ("collect-1", "train-memory", "train-agent"):
        log = chain.log(name)
        assert "attempt 1" in log
        assert "Back into the queue" in log
        assert "attempt 2" in log
        assert "Traceback" not in log
    assert "train-memory: resuming at update" in chain.log("train-memory")
    assert_same_result(run, undisturbed)
