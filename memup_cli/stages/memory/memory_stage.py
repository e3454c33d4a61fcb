"""The train-memory stage: the paper's algorithm 1, streaming from disk."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ... import console
from ...compute.world import World, joined
from ...errors import BadInput, RankLost, UsageProblem
from ...interrupts import StopFlag
from ...learning.loop import descend
from ...records import checkpoint
from ...records.extending import earlier_parts
from ...records.lifecycle import conclude, continue_command, is_up_to_date, owned, record
from ...registries import PROBE
from .memory_course import begin, course_of
from .memory_job import MemoryJob, inputs_of
from .memoryless import Comparison, train_without
from .plan import BEGUN
from .race import decided, described, forget, race


def train_memory(job: MemoryJob) -> dict[str, Any]:
    """Run the stage, in as many processes as torchrun started; returns the summary to print."""
    with joined(job.device) as world:
        if world.size > job.options.slots:
            raise UsageProblem(
                f"{world.size} processes cannot share {job.options.slots} slots (--batch without what is replayed); "
                "start fewer, or use a larger --batch"
            )
        if world.from_first(lambda: is_done(job)):
            found = job.manifest.stages["train-memory"]["metrics"]
            return {"run": str(job.manifest.run), "outcome": "up to date", **found}
        if world.first:
            return _lead(job, world)
        with StopFlag() as stop:
            raced = _raced(job, world, stop, lambda: None)
            metrics = _train(raced, world, stop, lambda: None) if raced else {"updates": 0, "stopped": True}
        if metrics["stopped"]:
            raise stop.error(f"checkpoint saved at update {metrics['updates']:,}", continue_command())
        return {"run": str(job.manifest.run), "outcome": "trained", **metrics}


def is_done(job: MemoryJob) -> bool:
    """Whether the run has this memory already; an error if it has another that only --restart may discard."""
    begun = checkpoint.exists(job.folder)
    return is_up_to_date(job.manifest, "train-memory", job.config, inputs_of(job), job.restart, begun, "updates")


def _lead(job: MemoryJob, world: World) -> dict[str, Any]:
    """The one process that owns the stage's folder and its entry in the manifest."""
    progress = {"done": 0, "total": job.options.updates}
    stop = StopFlag()
    with stop, owned(job.folder, job.quiet) as still_ours:
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
        note = partial(record, job.manifest, "train-memory", still_ours=still_ours)
        made: dict[str, Any] = {"outputs": {}, "weights": {}}
        made |= {"inputs": inputs_of(job), "progress": progress, "earlier": job.earlier}
        if agents := [stage for stage in job.manifest.stages if stage.startswith("train-agent/")]:
            console.note(f"{', '.join(agents)}: on another memory; to be trained again after this", job.quiet)
        note("running", config=job.config, plan=job.plan.to_json(), **made)
        if job.plan.choices and not checkpoint.exists(job.folder):
            open_yet = {name for rival in job.rivals for name in rival}  # said when it is decided
            settled = {c.option: c.value for c in job.plan.choices if c.option not in open_yet and c.why != BEGUN}
            console.note(f"planned, for reasons that --dry-run tells: {described(settled)}", job.quiet)
        try:
            raced = _raced(job, world, stop, still_ours)
            if raced is not None and raced is not job:
                made["inputs"] = inputs_of(raced)  # the current step needs no scores
                note("running", config=raced.config, plan=raced.plan.to_json(), **made)
                forget(raced)
            metrics = _train(raced, world, stop, still_ours) if raced else {"updates": 0, "stopped": True}
        except BadInput as error:
            note("failed", problem=str(error))
            raise
        except RankLost:
            note("interrupted")
            raise
        conclude(note, metrics, progress, "memory", stop)
    return {"run": str(job.manifest.run), "outcome": "trained", **metrics}


def _raced(job: MemoryJob, world: World, stop: StopFlag, still_ours: Callable[[], None]) -> MemoryJob | None:
    """What the data did not tell, decided by the first process; None if stopped before."""
    if not job.rivals:
        return job
    winner = world.from_first(lambda: race(job, stop, still_ours))
    return None if winner is None else decided(job, winner)


def _train(job: MemoryJob, world: World, stop: StopFlag, still_ours: Callable[[], None]) -> dict[str, Any]:
    """Train the memory; what a predictor can do without one is trained first, unless that was done before."""
    if not world.from_first(lambda: train_without(job, stop, still_ours)):
        return {"updates": checkpoint.progress(job.folder, "update"), "stopped": True}
    _, learner = begin(job, world)
    compare = Comparison(job) if world.first else None
    without = compare.without("validation", job.options.evaluate_episodes) if compare else None
    course = course_of(job, world, learner, without)
    metrics = descend(course, learner, stop, still_ours)
    if compare and not metrics["stopped"]:
        metrics |= compare.training(learner.kept)
    return metrics
