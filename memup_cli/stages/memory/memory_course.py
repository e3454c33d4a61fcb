"""How a memory is trained: its learner, the slab it reads, and when it is looked at."""

import torch

from stores.slab import Read, Slab

from ...compute.world import World
from ...evaluation.predictions import Predictions, predict_split
from ...learning.goals import reached
from ...learning.learner import MemoryLearner
from ...learning.loop import Course
from ...learning.weights import build_model
from ...options.common import MB
from ...options.memory_options import TrainMemoryOptions
from ...predictor.contexts import context_class
from ...predictor.predictor import MemoryModel
from ...records.opening import split_of
from ...selection.candidates import Candidates, gather_candidates
from ...selection.choosing import preparing
from ...selection.gumbel import SuffixTop
from ...selection.importance import Matters
from ...selection.rules import rule_of
from ...streaming.moments import moments_of
from ...streaming.slabs import open_slab
from .facts import target_moments
from .memory_job import MemoryJob


def begin(job: MemoryJob, world: World) -> tuple[MemoryModel, MemoryLearner]:
    options, spec, train = job.options, job.spec, split_of(job.manifest, "train")
    torch.manual_seed(job.seed)
    model = build_model(spec, job.config, int(train.lengths.max())).to(job.device)
    if job.standardised:
        numbers = target_moments(job.manifest, spec, job.detector, job.gamma)
        model.standardise(world.from_first(lambda: moments_of(job.manifest, spec, keep=True)), numbers)
    if job.initial is not None:
        model.load_state_dict(job.initial.state_dict())
    return model, MemoryLearner(model, options, spec, train, job.seed, online=job.online, world=world)


def course_of(job: MemoryJob, world: World, learner: MemoryLearner, without: Predictions | None) -> Course:
    options, spec, manifest = job.options, job.spec, job.manifest
    validation, matters = split_of(manifest, "validation"), Matters(manifest, spec, job.config)
    return Course(
        stage=job.stage,
        run=manifest.run,
        folder=job.folder,
        task=manifest.task,
        config=job.config,
        lr=options.lr,
        lr_end=options.lr_end,
        updates=options.updates,
        earlier=world.from_first(lambda: job.earlier),
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        quiet=job.quiet,
        device=job.device,
        evaluate=lambda: predict_split(learner.kept, validation, spec, job.gamma, matters, options.evaluate_episodes),
        reached=lambda result: reached(options, result),
        slab=lambda update: _open(job, world, learner, update),
        world=world,
        without=without,
        by_loss=job.stage == "memoryless",
    )


def _open(job: MemoryJob, world: World, learner: MemoryLearner, update: int) -> Slab:
    options, spec, train = job.options, job.spec, split_of(job.manifest, "train")

    def gather(top: SuffixTop, block: int, length: int, read: Read) -> Candidates:
        return gather_candidates(top, spec, job.gamma, options.context, options.window, block, length, read)

    trained_now = context_class(options.context).trained_now
    choice, prepare = rule_of(options.select).choice, None
    if choice and not job.online:
        prepare = preparing(choice(job.manifest, spec, options, job.detector, job.seed), gather)
    return open_slab(
        train,
        spec,
        batch=options.slots,
        rollout=options.stride,
        gamma=job.gamma,
        seed=job.seed,
        update=update,
        memory=options.slab_memory * MB,
        starters=options.starters,
        dwell=_dwell(options, int(train.lengths.max())),
        whole=job.online or trained_now,
        own=world.share(options.slots),
        with_targets=prepare is None or trained_now,
        prepare=prepare,
        on_fresh=learner.on_fresh,
    )


def _dwell(options: TrainMemoryOptions, longest: int) -> int:
    """How often the start of an episode is read: choosing its targets takes as long as the episode is."""
    return max(1, longest // (4 * options.stride)) if options.rollout_sampling == "priority" else 1
