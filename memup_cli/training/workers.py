"""Worker processes that never outlive the command that started them."""

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from ..errors import BadInput
from ..interrupts import StopFlag

_PR_SET_PDEATHSIG = 1


@contextmanager
def worker_processes(workers: int, stop: StopFlag) -> Iterator[Executor]:
    """A pool of spawned processes; when the work ends early they are killed, not waited for."""
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_die_with_parent, initargs=(os.getpid(),)
    )
    finished = False
    try:
        yield pool
        finished = not stop
    except BrokenProcessPool:
        raise BadInput(
            "a worker process died: the environment crashed, or the machine ran out of memory. What was committed is "
            "kept; try again with fewer --workers."
        ) from None
    finally:
        if not finished:
            for child in multiprocessing.active_children():
                child.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def _die_with_parent(parent: int) -> None:
    """Run first in every worker: killed with its parent, deaf to the signals that the parent handles."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
