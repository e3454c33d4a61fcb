"""The episodes of a commit group, as a task makes them. Whatever is wrong with one is told as the task's."""

import hashlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from stores.errors import StoreError, UnfitEpisode
from stores.groups import Episode, misfit
from stores.layout import Layout

from ...blame import described
from ...errors import BadInput, FailedEpisode, MemupError
from ...tasks.spec import DataSet, Loading, SideBySide, Streamed, Task, TaskSpec

TOLD = (MemupError, StoreError)  # what says by itself what to do
KEPT = "Mend the task; committed episodes are kept."


@dataclass(frozen=True)
class GroupRequest:
    """One commit group of a task to be made: all that a worker needs to know besides the task."""

    task: str  # its name
    layout: Layout
    seed: int
    split: str
    first: int  # episodes [first, stop) of the split
    stop: int

    def name(self, index: int) -> str:
        return f"episode {index} of the {self.split} split of the task {self.task}"

    def seed_of(self, index: int) -> int:
        return episode_seed(self.seed, self.split, index)

    def failed(self, index: int, error: BaseException) -> BadInput:
        return BadInput(f"{self.name(index)} failed: {described(error)}. Its seed is {self.seed_of(index)}. {KEPT}")


def episode_seed(seed: int, split: str, index: int) -> int:
    """Seed of episode `index`: the only thing its contents depend on, besides the task's options."""
    digest = hashlib.blake2b(f"{seed}/{split}/{index}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # the episode table holds signed numbers


def seeds_of(request: GroupRequest) -> list[int]:
    return [request.seed_of(index) for index in range(request.first, request.stop)]


def episodes_of(task: Task, request: GroupRequest) -> Iterator[Episode]:
    """The episodes of a group; those of a task that does not vouch for them are looked at."""
    made, spec, vouched = _made(task, request), task.spec, getattr(task, "checked", False)
    for index in range(request.first, request.stop):
        try:
            episode = next(made, None)
        except FailedEpisode as error:
            raise BadInput(f"{request.name(index)}: {error}") from error
        except (Exception, SystemExit) as error:  # not what signals raise, nor what abandons a worker's episode
            if isinstance(error, TOLD) or (isinstance(error, OSError) and isinstance(task, Loading)):
                raise  # a task that reads files can be refused them, as memup itself can
            raise request.failed(index, error) from error
        if not isinstance(episode, Episode) or not isinstance(episode.seed, (int, np.integer)):
            found = f"no Episode but {episode!r:.60}" if not isinstance(episode, Episode) else f"seed {episode.seed!r}"
            raise BadInput(f"{request.name(index)}: the task gave {found}. {KEPT}")
        if not vouched:
            _look_at(spec, request, episode, request.name(index))
        yield episode


def blocks_of(
    task: Streamed, request: GroupRequest, index: int, seed: int
) -> Generator[dict[str, np.ndarray], None, bool]:
    """An episode in blocks, as episodes_of() has whole ones."""
    try:
        return (yield from task.blocks(seed, request.layout.chunk_steps))
    except TOLD:
        raise
    except (Exception, SystemExit) as error:
        raise request.failed(index, error) from error


@contextmanager
def named(request: GroupRequest) -> Iterator[None]:
    """Says which episode it was that the store did not take."""
    try:
        yield
    except UnfitEpisode as error:
        raise BadInput(f"{request.name(request.first + error.number)} {error}. {KEPT}") from error


def _made(task: Task, request: GroupRequest) -> Iterator[Episode]:
    if isinstance(task, DataSet):
        yield from task.items(request.split, request.first, request.stop)
    elif isinstance(task, SideBySide):
        yield from task.episodes(seeds_of(request))
    else:
        for seed in seeds_of(request):
            yield task.episode(seed)


def _look_at(spec: TaskSpec, request: GroupRequest, episode: Episode, name: str) -> None:
    """BadInput if an episode holds numbers that no network could be trained on."""
    if problem := misfit(request.layout.fields, episode.arrays):
        raise BadInput(f"{name} {problem}. {KEPT}")
    for field in request.layout.fields:
        values, counts = episode.arrays[field.name], spec.counts(field.name)
        if counts and (found := _out_of_range(values, counts)):
            step, wrong, count = found
            raise BadInput(
                f"{name} has class {wrong} in `{field.name}` at step {step}; the task says that there are {count} "
                f"classes, 0 to {count - 1}. Mend the task or the environment; committed episodes are kept."
            )
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            step = int((~np.isfinite(values)).reshape(len(values), -1).any(1).argmax())
            raise BadInput(
                f"{name} has a number in `{field.name}` at step {step} that is not finite. Mend the task or the "
                "environment; committed episodes are kept."
            )


def _out_of_range(values: np.ndarray, counts: tuple[int, ...]) -> tuple[int, int, int] | None:
    """The first step with a class that there is not, that class, and how many there are."""
    rows = values.reshape(len(values), -1)
    wrong = (rows < 0) | (rows >= np.array(counts, np.int64))
    if not wrong.any():
        return None
    step, column = (int(place) for place in np.argwhere(wrong)[0])
    return step, int(rows[step, column]), counts[column]
