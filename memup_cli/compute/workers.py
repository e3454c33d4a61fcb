"""Worker processes that never outlive the command that started them."""

import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing.context import SpawnContext, SpawnProcess
from types import FrameType
from typing import Any, TypeVar

from ..errors import BadInput
from ..interrupts import SIGNALS, StopFlag

_PR_SET_PDEATHSIG = 1


GRACE = 2.0  # seconds for workers to leave their episodes before they are killed


Shared = TypeVar("Shared")
Request = TypeVar("Request")
Result = TypeVar("Result")
_busy = threading.Event()  # in a worker: an episode is being played
_shared: Any = None  # in a worker: what all its requests are about, with whatever it has opened so far


class _Abandoned(BaseException):
    """Raised in a worker in the middle of an episode that nobody wants any more."""


class _DeafProcess(SpawnProcess):
    """Signals wait until a worker ignores them: a batch system sends them to every process of a job, also to one that
    is still starting."""

    def start(self) -> None:
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, earlier)


class _DeafContext(SpawnContext):
    Process = _DeafProcess


@contextmanager
def worker_processes(workers: int, stop: StopFlag, shared: object = None) -> Iterator[Executor]:
    """A pool of spawned processes; when the work ends early they drop their episodes instead of finishing them.

    Each gets `shared` once, for all that abandonable() runs there: a game that it starts serves until it ends.
    """
    with _pools([(workers, shared)], stop, "--workers") as pools:
        yield pools[0]


@contextmanager
def a_process_each(shares: Sequence[object], stop: StopFlag, option: str) -> Iterator[list[Executor]]:
    """A spawned process for each of what is shared out, which stays there; `option` said how many."""
    with _pools([(1, share) for share in shares], stop, option) as pools:
        yield pools


@contextmanager
def _pools(wanted: list[tuple[int, object]], stop: StopFlag, option: str) -> Iterator[list[Executor]]:
    pools: list[Executor] = [
        ProcessPoolExecutor(workers, _DeafContext(), initializer=_prepare, initargs=(os.getpid(), shared))
        for workers, shared in wanted
    ]
    finished = False
    try:
        yield pools
        finished = not stop
    except BrokenProcessPool:
        raise BadInput(
            "a worker process died: the environment crashed, or the machine ran out of memory. What was committed is "
            f"kept; try again with fewer {option}."
        ) from None
    finally:
        children = multiprocessing.active_children()
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        if not finished:
            _abandon(children)
        for pool in pools:
            pool.shutdown(wait=True)


def _abandon(children: list[Any]) -> None:
    for child in children:
        with suppress(ProcessLookupError):  # one that died, and was buried meanwhile
            os.kill(child.pid, signal.SIGUSR1)
    deadline = time.monotonic() + GRACE
    for child in children:
        child.join(max(0.0, deadline - time.monotonic()))
        if child.is_alive():  # busy in code that never comes back to Python
            child.kill()


def _prepare(parent: int, shared: object) -> None:
    """Run first in every worker: killed with its parent, deaf to the signals that the parent handles."""
    global _shared
    _shared = shared
    os.dup2(2, 1)  # what an environment prints is no result
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    signal.signal(signal.SIGUSR1, _leave_episode)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def abandonable(work: Callable[[Shared, Request], Result], request: Request) -> Result:
    """Run work(shared, request) in a worker so that it can be dropped half-way."""
    _busy.set()
    try:
        return work(_shared, request)
    finally:
        _busy.clear()


def _leave_episode(number: int, frame: FrameType | None) -> None:
    if _busy.is_set():
        _busy.clear()
        raise _Abandoned
