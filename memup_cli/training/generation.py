"""Generate episodes and append them to a shard, commit group by commit group."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stores.layout import EncodedGroup, Identity, Layout, encode_group
from stores.writer import ShardWriter

from ..interrupts import StopFlag
from ..runs import SPLITS
from ..tasks.spec import Task
from .workers import worker_processes


@dataclass(frozen=True)
class GroupRequest:
    """One commit group to be made: all that a worker needs to know."""

    task: Task
    layout: Layout
    seed: int
    split: str
    first: int  # episodes [first, stop) of the split
    stop: int


def episode_seed(seed: int, split: str, index: int) -> int:
    """Seed of episode `index`: the only thing its contents depend on, besides the task's options."""
    state = np.random.SeedSequence((seed, SPLITS.index(split), index)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def make_group(request: GroupRequest) -> EncodedGroup:
    seeds = [episode_seed(request.seed, request.split, i) for i in range(request.first, request.stop)]
    return encode_group(request.layout, [request.task.episode(seed) for seed in seeds])


def available_cpus() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def open_executor(task: Task, workers: int, stop: StopFlag) -> Iterator[Executor]:
    """Threads where numpy and the codec do the work, processes where Python steps an environment."""
    if task.vectorised:
        with ThreadPoolExecutor(workers, thread_name_prefix="memup-collect") as threads:
            yield threads
        return
    with worker_processes(workers, stop) as processes:
        yield processes


def collect_shard(
    path: Path,
    identity: Identity,
    task: Task,
    executor: Executor,
    *,
    window: int,
    commit_every: float,
    stop: StopFlag,
    progress: Callable[[int, int], None],
    started: Callable[[ShardWriter], None],
) -> int:
    """Complete one shard, or commit what is done when asked to stop; returns the steps written."""
    steps = 0
    with ShardWriter(path, identity) as writer:
        started(writer)
        requests = [
            (group, GroupRequest(task, identity.layout, identity.seed, identity.split, *_span(identity, group)))
            for group in writer.missing_groups()
        ]
        committed_at = time.monotonic()
        for group, request, encoded in _ordered(executor, requests, window, stop):
            writer.add(group, encoded)
            steps += encoded.steps
            if time.monotonic() - committed_at >= commit_every:
                writer.commit()
                committed_at = time.monotonic()
            progress(request.stop - request.first, encoded.steps)
        if stop:
            writer.commit()
        else:
            writer.finish()
    return steps


def _span(identity: Identity, group: int) -> tuple[int, int]:
    first, stop = identity.layout.group_bounds(group, identity.episodes)
    return identity.first + first, identity.first + stop


def _ordered(
    executor: Executor, requests: list[tuple[int, GroupRequest]], window: int, stop: StopFlag
) -> Iterator[tuple[int, GroupRequest, EncodedGroup]]:
    """Groups in order, `window` of them under way: RAM does not depend on how many there are."""
    waiting: deque[tuple[int, GroupRequest, Future[EncodedGroup]]] = deque()
    todo = iter(requests)
    try:
        while not stop:
            while len(waiting) < window and (following := next(todo, None)):
                waiting.append((*following, executor.submit(make_group, following[1])))
            if not waiting:
                return
            while not waiting[0][2].done() and not stop:
                _wait(waiting[0][2])
            if not stop:
                group, request, future = waiting.popleft()
                yield group, request, future.result()
    finally:
        for _, _, future in waiting:
            future.cancel()


def _wait(future: Future[EncodedGroup]) -> None:
    """Wait a moment: long enough to cost nothing, short enough to notice a signal."""
    try:
        future.exception(timeout=0.2)
    except TimeoutError:
        return
