"""Generate episodes and append them to a shard, commit group by commit group."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from stores.groups import EncodedGroup, GroupBuffer, GroupStream, encode_group
from stores.layout import Identity, Layout
from stores.writer import ShardWriter

from ...compute.workers import abandonable, worker_processes
from ...interrupts import StopFlag
from ...tasks.spec import Streamed, Task
from .episodes import GroupRequest, blocks_of, episodes_of, named, seeds_of

FINISH_GROUPS = 5.0  # seconds that groups under way get to finish after a signal


def make_group(task: Task, request: GroupRequest) -> EncodedGroup:
    """What a worker process does: play and encode one group."""
    if isinstance(task, Streamed):
        stream = GroupStream(request.layout)
        for index, seed in enumerate(seeds_of(request), request.first):
            with named(request):
                stream.add(seed, blocks_of(task, request, index, seed))
        return stream.finish()
    with named(request):
        return encode_group(request.layout, episodes_of(task, request))


class GroupMaker:
    """Makes groups in the background. Use as a context manager.

    A vectorised task fills buffers here, in many short numpy calls that would only fight over the interpreter in
    threads, while threads compress the buffers before; a stepped one is played in worker processes.
    """

    def __init__(self, task: Task, workers: int, stop: StopFlag) -> None:
        self._task = task
        pool = ThreadPoolExecutor(workers) if task.vectorised else worker_processes(workers, stop, task)
        self._pool: AbstractContextManager[Executor] = pool
        self._free: list[GroupBuffer] = []
        self._made: Counter[Layout] = Counter()
        self.window = (
            workers + 1 if task.vectorised else 2 * workers
        )  # a buffer is filled while each thread empties one

    def __enter__(self) -> "GroupMaker":
        self._executor = self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._pool.__exit__(kind, error, trace)

    def start(self, request: GroupRequest) -> Future[EncodedGroup]:
        if not self._task.vectorised:
            return self._executor.submit(abandonable, make_group, request)
        with named(request):
            buffer = self._take(request.layout).fill(episodes_of(self._task, request))
        return self._executor.submit(self._encode, buffer)

    def _take(self, layout: Layout) -> GroupBuffer:
        """A buffer, new ones first: how much memory it takes in all does not hang on which thread was quicker."""
        fitting = [buffer for buffer in self._free if buffer.layout == layout]
        if self._made[layout] < self.window or not fitting:
            self._made[layout] += 1
            return GroupBuffer(layout)
        self._free.remove(fitting[0])
        return fitting[0]

    def _encode(self, buffer: GroupBuffer) -> EncodedGroup:
        encoded = buffer.encode()
        self._free.append(buffer)
        return encoded


def collect_shard(
    path: Path,
    identity: Identity,
    maker: GroupMaker,
    *,
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
            (
                group,
                GroupRequest(identity.task, identity.layout, identity.seed, identity.split, *_span(identity, group)),
            )
            for group in writer.missing_groups()
        ]
        committed_at = time.monotonic()
        for group, request, encoded in _ordered(maker, requests, stop):
            writer.add(group, encoded)
            steps += encoded.steps
            if time.monotonic() - committed_at >= commit_every:
                writer.commit()
                committed_at = time.monotonic()
            progress(request.stop - request.first, encoded.steps)
        writer.commit()
    return steps


def _span(identity: Identity, group: int) -> tuple[int, int]:
    first, stop = identity.layout.group_bounds(group, identity.episodes)
    return identity.first + first, identity.first + stop


def _ordered(
    maker: GroupMaker, requests: list[tuple[int, GroupRequest]], stop: StopFlag
) -> Iterator[tuple[int, GroupRequest, EncodedGroup]]:
    """Groups in order, a window of them under way: RAM does not depend on how many there are."""
    waiting: deque[tuple[int, GroupRequest, Future[EncodedGroup]]] = deque()
    todo = iter(requests)
    deadline = math.inf
    try:
        while time.monotonic() < deadline:
            if stop and deadline == math.inf:
                deadline = time.monotonic() + FINISH_GROUPS
            if not stop and len(waiting) < maker.window and (following := next(todo, None)):
                waiting.append((*following, maker.start(following[1])))
                if not waiting[0][2].done():
                    continue
            if not waiting:
                return
            if not waiting[0][2].done():
                _wait(waiting[0][2])
                continue
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
