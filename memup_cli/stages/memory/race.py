"""Short trainings that decide what the data do not tell: successive halving on the validation episodes.

Each rival is trained with the schedule of the whole training, for a small part of it. The better half goes on for as
long again, until one is left, or until one explains so much that there is no need to look further: the cheapest comes
first. What was found is kept, so that a race that is killed goes on where it was.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stores.errors import StoreError
from stores.files import read_json, remove_tree, to_json, write_durably

from ... import console
from ...compute.world import ALONE
from ...interrupts import StopFlag
from ...learning.loop import descend
from ...records import checkpoint
from .memory_course import begin, course_of
from .memory_job import MemoryJob, changed_by, inputs_of

SHARE = 60  # of the updates: what each rival has in the first round
LEAST = 25  # updates that say anything; with fewer there is no race
ENOUGH = 0.1  # of the loss of the best constant: a rival that has no more is taken
NAME = "race.json"  # in the folder of the memory


def race(job: MemoryJob, stop: StopFlag, still_ours: Callable[[], None]) -> int | None:
    """The number of the rival with the least error on the validation episodes; None if stopped before.

    All rounds together are a fifth of the training that is planned, at most.
    """
    length = job.options.updates // SHARE
    if length < LEAST:
        return 0
    made_from = {"config": job.config, "inputs": inputs_of(job), "rivals": list(job.rivals)}
    path = job.folder / NAME
    found: dict[str, Any] = {}
    with contextlib.suppress(StoreError):  # missing or damaged: it begins again
        found = read_json(path)
    if found.get("made_from") != made_from:
        forget(job)
        found = {"made_from": made_from, "losses": {}}
        write_durably(path, to_json(found), still_ours)
    left = list(range(len(job.rivals)))
    while len(left) > 1:
        for number in left:
            key = f"{number} after {length}"
            if key not in found["losses"]:
                loss = _train_rival(job, number, length, stop, still_ours)
                if loss is None:
                    return None
                found["losses"][key] = loss
                write_durably(path, to_json(found), still_ours)
            if found["losses"][key] <= ENOUGH:
                return number
        left = sorted(left, key=lambda number: found["losses"][f"{number} after {length}"])[: (len(left) + 1) // 2]
        length *= 2
    return left[0]


def decided(job: MemoryJob, winner: int) -> MemoryJob:
    """The job with what won."""
    rival = job.rivals[winner]
    raced = job.options.updates // SHARE >= LEAST
    why = f"the best of {len(job.rivals)} in a short race on validation episodes" if raced else "too short for a race"
    console.note(f"plan: {described(rival)}: {why}", job.quiet)
    return replace(changed_by(job, rival), plan=job.plan.decided(rival, why), rivals=())


def described(rival: dict[str, Any]) -> str:
    """A rival as options: --context window --no-near."""
    words = []
    for name, value in rival.items():
        option = name.replace("_", "-")
        words.append(f"--{'' if value else 'no-'}{option}" if isinstance(value, bool) else f"--{option} {value}")
    return " ".join(words)


def forget(job: MemoryJob) -> None:
    """Remove what rivals left, their logs too."""
    for folder in sorted([*job.manifest.run.glob("rival-*"), *job.manifest.run.glob("logs/rival-*")]):
        remove_tree(folder)


def _train_rival(
    job: MemoryJob, number: int, length: int, stop: StopFlag, still_ours: Callable[[], None]
) -> float | None:
    """Train a rival up to so many updates; its loss then, in parts of the best constant's, or None if stopped."""
    own = replace(changed_by(job, job.rivals[number]), stage=f"rival-{number}", earlier=())
    console.note(f"plan: trying {described(job.rivals[number])}, {length:,} updates", job.quiet)
    _, learner = begin(own, ALONE)
    course = replace(course_of(own, ALONE, learner, None), evaluate_every=length, reached=lambda _: True)
    if checkpoint.progress(own.folder, "update") >= length:  # killed after its last update, before it was written down
        checkpoint.clear(own.folder)
    metrics = descend(course, learner, stop, still_ours)
    if metrics["stopped"]:
        return None
    found = course.evaluate()
    return found.loss / max(found.constant().loss, 1e-12)
