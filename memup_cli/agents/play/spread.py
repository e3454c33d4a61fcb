"""Environments stepped in several processes. Which of them steps an environment changes nothing of what it does."""

import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, cast

import numpy as np

from ... import console
from ...compute.workers import a_process_each, abandonable
from ...interrupts import StopFlag
from ...limits import available_cpus
from ...tasks.spec import TaskSpec
from .environments import Arena, open_arena

SLOW = 1e-3  # seconds a step; asking a process costs about a third of that, once for all of its environments
TIMED, FEWEST = 20, 3  # steps that are timed, and how many at least ...
LONGEST = 1.0  # ... if they take so many seconds
OPTION = "--env-workers"

Request = tuple[str, tuple[Any, ...], dict[str, Any]]  # a method of the environments, and its arguments


@dataclass(frozen=True)
class Share:
    """The environments of one process."""

    task: dict[str, Any]
    spec: TaskSpec
    count: int

    @cached_property
    def arena(self) -> Arena:
        return open_arena(self.task, self.spec, self.count)


def _answer(share: Share, request: Request) -> Any:
    """What a worker process does. Of what environments tell besides, only the success is of interest."""
    method, args, kwargs = request
    found = share.arena.ask(method, *args, **kwargs)
    if found is None:
        return None
    *values, info = found
    return *values, {name: info[name] for name in ("is_success", "_is_success") if name in info}


class SpreadEnvs:
    """Many environments, a share of them in each process: of a Gymnasium VectorEnv, what an arena asks for."""

    def __init__(self, like: Arena, shares: list[Share], processes: list[Executor]) -> None:
        self.single_observation_space = like.envs.single_observation_space
        self.single_action_space = like.envs.single_action_space
        self._counts, self._processes = [share.count for share in shares], processes
        self.num_envs = sum(self._counts)
        self._rows = [slice(first, stop) for first, stop in pairwise(np.cumsum([0, *self._counts]).tolist())]
        self._seen: list[Any] = []  # last, by each; none: no process has begun

    def reset(self, *, seed: list[int | None] | None = None, options: dict[str, Any] | None = None) -> Any:
        """All of them, or with options those of their reset_mask."""
        requests: list[Request | None] = []
        for rows in self._rows:
            if options is None:
                requests.append(("reset", (), {"seed": seed and seed[rows]}))
            else:
                mask = options["reset_mask"][rows]  # Gymnasium takes no empty one
                requests.append(("reset", (), {"options": {"reset_mask": mask}}) if mask.any() else None)
        answers = self._ask(requests)
        self._seen = [answer[0] if answer else self._seen[i] for i, answer in enumerate(answers)]
        return _joined(self._seen), {}

    def step(self, actions: np.ndarray) -> Any:
        answers = self._ask([("step", (actions[rows],), {}) for rows in self._rows])
        observation, reward, terminated, truncated, infos = zip(*answers, strict=True)
        self._seen = list(observation)
        joined = [np.concatenate(parts) for parts in (reward, terminated, truncated)]
        return _joined(self._seen), *joined, self._successes(infos)

    def close(self) -> None:
        if self._seen:
            self._ask([("close", (), {})] * len(self._rows))

    def _ask(self, requests: list[Request | None]) -> list[Any]:
        """At the same time; of several errors, the first environment's is told, as if they were stepped in turn."""
        asked: list[Future[Any] | None] = [
            process.submit(abandonable, _answer, request) if request else None
            for process, request in zip(self._processes, requests, strict=True)
        ]
        return [future and future.result() for future in asked]

    def _successes(self, infos: tuple[dict[str, Any], ...]) -> dict[str, Any]:
        if not any(infos):
            return {}
        nothing = {"is_success": 0.0, "_is_success": False}
        told = [{"_is_success": True, **info} if info else nothing for info in infos]
        return {
            name: np.concatenate([np.broadcast_to(a[name], n) for a, n in zip(told, self._counts, strict=True)])
            for name in nothing
        }


def _joined(parts: list[Any]) -> Any:
    """Observations of all processes: arrays, or a dictionary of them."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate(parts)


@contextmanager
def spread_arena(
    task: dict[str, Any], spec: TaskSpec, count: int, workers: int | None, stop: StopFlag, quiet: bool
) -> Iterator[Arena]:
    """The environments of a task: in this process if there are no workers; None: as many as their steps are worth."""
    one = open_arena(task, spec, 1)
    if workers is None:
        workers = _fitting(one, count, quiet)
    if not workers:
        one.close()
        arena = open_arena(task, spec, count)
        yield arena
        arena.close()
        return
    shares = [Share(task, spec, len(part)) for part in np.array_split(np.arange(count), min(workers, count))]
    with a_process_each(shares, stop, OPTION) as processes:
        arena = Arena(cast(Any, SpreadEnvs(one, shares, processes)), spec, one.threshold, one.name)
        one.close()
        yield arena
        arena.close()


def _fitting(one: Arena, count: int, quiet: bool) -> int:
    """How many processes are worth it: one for each core if the environment is slow, else none."""
    if min(count, cores := available_cpus()) < 2 or (seconds := step_seconds(one)) < SLOW:
        return 0
    workers = min(count, cores)
    console.note(f"{one.name} takes {1000 * seconds:.1f} ms a step: {workers} processes step {count} of it", quiet)
    return workers


def step_seconds(one: Arena) -> float:
    """How long an environment takes to be stepped with random actions: the median of a few times."""
    rng = np.random.default_rng(0)
    one.reset([0])
    assert one.actions.shape is not None
    actions = np.zeros((1, *one.actions.shape), one.actions.dtype)
    took: list[float] = []
    while len(took) < TIMED and (len(took) < FEWEST or sum(took) < LONGEST):
        one.explore(actions, 1.0, rng)
        playable, began = one.playable(actions), time.perf_counter()
        ended = one.step(playable).ended
        took.append(time.perf_counter() - began)
        if ended.any():
            one.restart(ended)
    return float(np.median(took))
