"""Generate episodes and append them to a shard, commit group by commit group."""

import hashlib
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from stores.groups import EncodedGroup, Episode, GroupBuffer, GroupStream, encode_group
from stores.layout import Identity, Layout
from stores.writer import ShardWriter

from ..errors import BadInput
from ..interrupts import StopFlag
from ..tasks.spec import DataSet, SideBySide, Streamed, Task, TaskSpec
from .workers import abandonable, worker_processes

FINISH_GROUPS = 5.0  # seconds that groups under way get to finish after a signal


@dataclass(frozen=True)
class GroupRequest:
    """One commit group of a task to be made: all that a worker needs to know besides the task."""

    layout: Layout
    seed: int
    split: str
    first: int  # episodes [first, stop) of the split
    stop: int


def episode_seed(seed: int, split: str, index: int) -> int:
    """Seed of episode `index`: the only thing its contents depend on, besides the task's options."""
    digest = hashlib.blake2b(f"{seed}/{split}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # the episode table holds signed numbers


def episodes_of(task: Task, request: GroupRequest) -> Iterator[Episode]:
    """The episodes of a group; those of a task that does not vouch for them are looked at."""
    if getattr(task, "checked", False):
        return _made(task, request)
    spec = task.spec
    return (
        _fitting(spec, episode, f"episode {index} of the {request.split} split")
        for index, episode in enumerate(_made(task, request), request.first)
    )


def _fitting(spec: TaskSpec, episode: Episode, name: str) -> Episode:
    """BadInput if an episode holds numbers that no network could be trained on."""
    for field, values in episode.arrays.items():
        count = spec.classes.get(field)
        if count is not None and len(values) and not 0 <= int(values.min()) <= int(values.max()) < count:
            wrong = int(values.max() if values.min() >= 0 else values.min())
            step = int((values.reshape(len(values), -1) == wrong).any(1).argmax())
            raise BadInput(
                f"{name} has class {wrong} in `{field}` at step {step}; the task says that there are {count} classes, "
                f"0 to {count - 1}. Mend the task or the environment; what was committed is kept."
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            step = int((~np.isfinite(values)).reshape(len(values), -1).any(1).argmax())
            raise BadInput(
                f"{name} has a number in `{field}` at step {step} that is not finite. Mend the task or the "
                "environment; what was committed is kept."
            )
    return episode


def _made(task: Task, request: GroupRequest) -> Iterator[Episode]:
    if isinstance(task, DataSet):
        yield from task.items(request.split, request.first, request.stop)
        return
    if isinstance(task, SideBySide):
        yield from task.episodes(_seeds(request))
    else:
        yield from map(task.episode, _seeds(request))


def _seeds(request: GroupRequest) -> list[int]:
    return [episode_seed(request.seed, request.split, index) for index in range(request.first, request.stop)]


def make_group(task: Task, request: GroupRequest) -> EncodedGroup:
    """What a worker process does: play and encode one group."""
    if isinstance(task, Streamed):
        stream = GroupStream(request.layout)
        for seed in _seeds(request):
            stream.add(seed, task.blocks(seed, request.layout.chunk_steps))
        return stream.finish()
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
            (group, GroupRequest(identity.layout, identity.seed, identity.split, *_span(identity, group)))
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
