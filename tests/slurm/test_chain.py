"""The chain of examples/slurm on a real Slurm: preempted, requeued and cancelled, it ends with the same result."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli import files_of
from tests.processes import shim

from .cluster import Cluster, until

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


def process_of(cluster: Cluster, job: str) -> int | None:
    """The process of memup in a job of this cluster, once it listens to signals."""
    own = {f"SLURM_CONF={cluster.folder / 'slurm.conf'}", f"SLURM_JOB_ID={cluster.job(job)['JobId']}"}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program, *words = (folder / "cmdline").read_text().split("\0")
            if "python" not in program or Path(words[0]).name != "memup":
                continue
            if own <= set((folder / "environ").read_text().split("\0")):
                return int(folder.name) if has_usr2(int(folder.name), "SigCgt") else None
        except OSError:  # gone meanwhile, or somebody else's
            continue
    return None


def status_of(process: int, field: str) -> str:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


def has_usr2(process: int, mask: str) -> bool:
    """Whether SIGUSR2 is in one of the kernel's masks: SigCgt are caught, ShdPnd wait to be delivered."""
    return bool(int(status_of(process, mask), 16) >> (signal.SIGUSR2 - 1) & 1)


@contextmanager
def frozen(process: int) -> Iterator[None]:
    """Holds a process still until it is warned, so that it cannot finish first, however fast it is.

    Slurm wakes a job that it preempts; a signal that somebody sends it waits.
    """
    os.kill(process, signal.SIGSTOP)
    until(lambda: status_of(process, "State") == "T", f"process {process} to stand still")
    try:
        yield
        with suppress(FileNotFoundError, ProcessLookupError):  # woken, and gone already
            until(lambda: status_of(process, "State") != "T" or has_usr2(process, "ShdPnd"), f"{process} to be warned")
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


class Barrier:
    """While it is up, memup stands still where it first changed a file of this path, until a signal takes it on."""

    def __init__(self, pipe: Path, root: Path, path: str) -> None:
        self.pipe = pipe
        self.variables = {"LD_PRELOAD": shim(), "SHIM_ROOT": str(root), "SHIM_PATH": path}
        self.variables |= {"SHIM_AT": "1", "SHIM_ACT": "tell", "SHIM_PIPE": str(pipe)}

    def __enter__(self) -> None:
        os.mkfifo(self.pipe)  # nobody reads it

    def __exit__(self, *_: object) -> None:
        self.pipe.unlink()


def test_preempted_and_requeued_it_ends_with_the_same_result(cluster, chain, undisturbed):
    run = chain.folder / "run"
    barrier = Barrier(chain.folder / "barrier", chain.folder, "run/[am]*[oy]/checkpoint-*.pt")  # agent/ppo, memory
    jobs = chain.submit(**barrier.variables)
    cluster.ask("scontrol", "hold", jobs["train-agent"])

    task = f"{jobs['collect']}_1"
    until(lambda: process_of(cluster, task), "the second task of the array")
    with frozen(process_of(cluster, task)):
        cluster.cancel(task, "--signal=USR2")
    until(lambda: cluster.job(task)["Restarts"] == "1", "the array task back in the queue")

    with barrier:
        until(lambda: list((run / "memory").glob("checkpoint-*.pt")), "the memory's first checkpoint")
        urgent = cluster.occupy("urgent")
        until(lambda: cluster.state(urgent) == "RUNNING", "the urgent job in its place")
    assert cluster.state(jobs["train-memory"]) == "PENDING"
    assert manifest(run)["stages"]["train-memory"]["status"] == "interrupted"
    cluster.cancel(urgent)
    until(lambda: cluster.ended(jobs["train-memory"]), "the end of the memory's second attempt")

    with barrier:
        cluster.ask("scontrol", "release", jobs["train-agent"])
        until(lambda: list((run / "agent" / "ppo").glob("checkpoint-*.pt")), "the agent's first checkpoint")
        cluster.cancel(jobs["train-agent"], "--signal=USR2")
        until(lambda: cluster.job(jobs["train-agent"])["Restarts"] == "1", "the agent back in the queue")

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


def test_a_cancelled_array_task_is_named_by_the_next_stage_and_completes_when_submitted_again(
    cluster, chain, undisturbed
):
    run = chain.folder / "run"
    first = cluster.occupy("test")
    until(lambda: cluster.state(first) == "RUNNING", "a node that is taken")
    jobs = chain.submit()
    cluster.cancel(f"{jobs['collect']}_1")
    refused = chain.call()
    assert refused.returncode == 2
    assert f"scancel {jobs['collect']}" in refused.stderr
    cluster.cancel(first)

    until(lambda: all(map(cluster.ended, jobs.values())), "the end of the chain")
    assert cluster.job(jobs["score"])["ExitCode"] == "3:0"
    assert "Missing: shard 1 of 3" in chain.log("score")
    assert "memup collect --run run --shard 1/3" in chain.log("score")
    later = [stage for stage in jobs if stage not in ("collect", "score")]
    assert {stage: cluster.state(jobs[stage]) for stage in later} == dict.fromkeys(later, "CANCELLED")

    again = chain.submit(ARRAY="1", AGENT="")
    until(lambda: all(map(cluster.ended, again.values())), "the end of the second chain")
    assert {stage: cluster.state(job) for stage, job in again.items()} == dict.fromkeys(again, "COMPLETED")
    for folder in ("trajectories", "scores"):
        assert files_of(run / folder) == files_of(undisturbed / folder)
    memories = [manifest(each)["stages"]["train-memory"] for each in (run, undisturbed)]
    assert memories[0]["weights"] == memories[1]["weights"]


def test_a_cancelled_job_saves_and_stays_cancelled(cluster, chain):
    jobs = chain.submit(AGENT="", TRAIN_MEMORY="--updates 1000000 --checkpoint-every 1000000")
    metrics = chain.folder / "run" / "logs" / "train-memory" / "metrics.jsonl"
    until(metrics.exists, "the memory's first updates")
    cluster.cancel(jobs["train-memory"])
    until(lambda: all(map(cluster.ended, jobs.values())), "the end of all jobs")
    assert cluster.state(jobs["train-memory"]) == "CANCELLED"
    assert cluster.job(jobs["train-memory"])["Restarts"] == "0"
    assert cluster.state(jobs["evaluate-memory"]) == "CANCELLED"
    assert "checkpoint saved at update" in chain.log("train-memory")
    assert manifest(chain.folder / "run")["stages"]["train-memory"]["status"] == "interrupted"
