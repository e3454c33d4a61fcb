"""The train-memory stage: the paper's algorithm 1, streaming from disk."""

from dataclasses import replace
from typing import Any

from ... import console
from ...compute.world import World, joined
from ...errors import UsageProblem
from ...learning.loop import descend
from ...records import checkpoint
from ...records.extending import earlier_parts
from ...registries import PROBE
from ..lifecycle import Attempt, attempting, is_up_to_date
from .memory_course import begin, course_of
from .memory_job import MemoryJob, inputs_of
from .memoryless import Comparison, train_without
from .plan import BEGUN
from .race import decided, described, forget, race


def train_memory(job: MemoryJob) -> dict[str, Any]:
    """Run the stage, in as many processes as torchrun started; returns the summary to print."""
    with joined(job.device) as world:
        _check_shares(job, world)
        if world.from_first(lambda: is_done(job)):
            found = job.manifest.stages["train-memory"]["metrics"]
            return {"run": str(job.manifest.run), "outcome": "up to date", **found}
        progress = {"done": 0, "total": job.options.updates}
        with attempting(job.manifest, "train-memory", job.folder, job.quiet, world.first) as attempt:
            job = _begun(job, attempt, progress) if world.first else job
            raced = _raced(job, world, attempt, progress)
            # What a predictor can do without a memory is trained first, unless that was done before.
            if raced is None or not world.from_first(lambda: train_without(raced, attempt.stop, attempt.still_ours)):
                progress["done"] = checkpoint.progress(job.folder, "update") if world.first else 0
                raise attempt.interrupted(f"checkpoint saved at update {progress['done']:,}", progress=progress)
            _, learner = begin(raced, world)
            compare = Comparison(raced) if world.first else None
            without = compare.without("validation", raced.options.evaluate_episodes) if compare else None
            metrics = descend(course_of(raced, world, learner, without), learner, attempt.stop, attempt.still_ours)
            if compare and not metrics["stopped"]:
                metrics |= compare.training(learner.kept)
            attempt.conclude(metrics, progress, "memory")
        return {"run": str(job.manifest.run), "outcome": "trained", **metrics}


def is_done(job: MemoryJob) -> bool:
    """Whether the run has this memory already; an error if it has another that only --restart may discard."""
    begun = checkpoint.exists(job.folder)
    return is_up_to_date(job.manifest, "train-memory", job.config, inputs_of(job), job.restart, begun, "updates")


def _check_shares(job: MemoryJob, world: World) -> None:
    if world.size > job.options.slots:
        raise UsageProblem(
            f"{world.size} processes cannot share {job.options.slots} slots (--batch without what is replayed); "
            "start fewer, or use a larger --batch"
        )


def _begun(job: MemoryJob, attempt: Attempt, progress: dict[str, int]) -> MemoryJob:
    """The job, with what was done of it before; recorded as running."""
    if job.restart or "train-memory" not in job.manifest.stages:
        checkpoint.clear(job.folder)
    if job.options.select == "utility" and job.detector != PROBE:
        console.note(
            "the probe cannot tell here what memory is useful for (see `memup score`): targets are selected by the "
            f"surprise of the {job.detector} detector",
            job.quiet,
        )
    if not job.restart:
        parts = earlier_parts(job.manifest, "train-memory", job.config, "updates", job.folder, job.quiet)
        job = replace(job, earlier=parts)
    if agents := [stage for stage in job.manifest.stages if stage.startswith("train-agent/")]:
        console.note(f"{', '.join(agents)}: on another memory; to be trained again after this", job.quiet)
    _note_running(job, attempt, progress)
    if job.plan.choices and not checkpoint.exists(job.folder):
        open_yet = {name for rival in job.rivals for name in rival}  # said when it is decided
        settled = {c.option: c.value for c in job.plan.choices if c.option not in open_yet and c.why != BEGUN}
        console.note(f"planned, for reasons that --dry-run tells: {described(settled)}", job.quiet)
    return job


def _note_running(job: MemoryJob, attempt: Attempt, progress: dict[str, int]) -> None:
    made: dict[str, Any] = {"outputs": {}, "weights": {}, "progress": progress, "earlier": job.earlier}
    attempt.note("running", config=job.config, plan=job.plan.to_json(), inputs=inputs_of(job), **made)


def _raced(job: MemoryJob, world: World, attempt: Attempt, progress: dict[str, int]) -> MemoryJob | None:
    """What the data did not tell, decided by the first process; None if stopped before."""
    if not job.rivals:
        return job
    winner = world.from_first(lambda: race(job, attempt.stop, attempt.still_ours))
    if winner is None:
        return None
    found = decided(job, winner)
    if world.first:
        _note_running(found, attempt, progress)  # its inputs, too: the current step needs no scores
        forget(found)
    return found
