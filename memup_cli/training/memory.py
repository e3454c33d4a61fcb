"""The train-memory stage: the paper's algorithm 1, streaming from disk."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_weights

from stores.errors import StoreError
from stores.files import allowed, read_file, read_json, to_json, write_durably
from stores.manifest import Manifest
from stores.slab import Read, Slab, SlabTooSmall, fit

from .. import console
from ..configs import MB, TrainMemoryOptions
from ..errors import BadInput, RankLost, UsageProblem
from ..interrupts import StopFlag
from ..models.encoders import FieldEncoder
from ..models.predictor import MemoryModel
from ..tasks.spec import TaskSpec
from . import checkpoint
from .candidates import Candidates, gather_candidates
from .choosing import discount, scored_by, stored_choice
from .descent import Course, descend
from .evaluation import Predictions, predict_split
from .extending import Earlier, earlier_parts
from .goals import check_goals, reached
from .importance import Matters
from .learner import MemoryLearner
from .rarity import sample_features
from .selection import SuffixTop
from .stages import (
    check_window,
    conclude,
    continue_command,
    digests,
    is_up_to_date,
    open_run,
    owned,
    record,
    spec_of,
    split_of,
    weights_digest,
)
from .weights import build_model, fill, restore, save_model
from .windows import open_slab
from .world import ALONE, World, joined

DESCRIPTION = "made_from.json"
WITHOUT_UPDATES = 1000  # of the predictor without a memory, if the memory has as many


@dataclass(frozen=True)
class MemoryJob:
    """A fully resolved train-memory command."""

    manifest: Manifest
    spec: TaskSpec
    options: TrainMemoryOptions
    gamma: float
    detector: str  # whose stored scores; empty if none are used
    seed: int
    device: torch.device
    restart: bool
    quiet: bool
    initial: MemoryModel | None = None  # weights to go on from
    stage: str = "train-memory"
    earlier: Earlier = ()  # of a training that is extended

    @property
    def config(self) -> dict[str, Any]:
        """What the result depends on; how often it is looked at and saved does not."""
        free = {"checkpoint_every", "slab_memory", "detector", "gamma"}
        free |= set() if self.options.select == "utility" else {"explore"}
        free |= set() if self.options.novelty_gates else {"novelty_gates"}  # runs of older versions do not have it
        chosen = {k: v for k, v in self.options.model_dump(mode="json").items() if k not in free}
        given = {"initial": weights_digest(self.initial)} if self.initial is not None else {}
        return {**chosen, "gamma": self.gamma, "detector": self.detector, "seed": self.seed, **given}

    @property
    def folder(self) -> Path:
        return self.manifest.run / ("memory" if self.stage == "train-memory" else self.stage)

    @property
    def online(self) -> bool:
        """Whether the model's own errors are the scores."""
        return self.options.select == "surprise" and not self.detector


def resolve(
    run: Path | None, options: TrainMemoryOptions, seed: int, device: torch.device, *, restart: bool, quiet: bool
) -> MemoryJob:
    """Check what the command needs: collected data, and scores if it uses them."""
    manifest = open_run(run)
    spec = spec_of(manifest)
    asked = options.model_fields_set
    options = _short_stretches(with_recipe(options, spec), int(split_of(manifest, "train").lengths.max()))
    if not len(split_of(manifest, "validation")):
        raise UsageProblem(f"{manifest.run} has no episodes for validation; collect at least 2 training episodes")
    check_goals(options, spec)
    if options.context == "window" and "window" in asked:
        check_window(manifest, options.window)
    if options.select == "current" and options.context != "point":
        raise UsageProblem("--select current predicts every step from the memory there; it takes --context point")
    if options.rollout_sampling == "priority" and options.context == "carried":
        raise UsageProblem("--context carried learns from every rollout; it takes --rollout-sampling all")
    if options.novelty_gates and (options.cell != "lstm" or FieldEncoder(spec, spec.memory_input).images):
        raise UsageProblem("--novelty-gates is for --cell lstm, and for inputs that are not images")
    if options.spread == "learned" and spec.target_kind == "classes":
        raise UsageProblem("--spread learned is for numbers; the targets of this task are classes")
    if options.context == "totals" and FieldEncoder(spec, spec.query).images:
        raise UsageProblem("--context totals adds up numbers and counts classes; the queries of this task are images")
    detector = scored_by(manifest, spec, options)
    gamma = discount(manifest, spec, options.gamma, bool(detector))
    row_bytes = sum(f.row_bytes for f in spec.fields) + 8  # the previous action, and y
    try:
        fit(split_of(manifest, "train"), options.slots, options.stride, row_bytes, options.slab_memory * MB)
    except SlabTooSmall as error:
        raise UsageProblem(f"--slab-memory {options.slab_memory}: {error}") from None
    return MemoryJob(manifest, spec, options, gamma, detector, seed, device, restart, quiet)


def recorded_job(manifest: Manifest, device: torch.device, quiet: bool) -> MemoryJob:
    """The training that a run records; to be measured, not to be run again."""
    config = manifest.stages["train-memory"]["config"]
    fields = {k: v for k, v in config.items() if k in TrainMemoryOptions.model_fields and k != "detector"}
    options = TrainMemoryOptions(**fields)
    return MemoryJob(
        manifest, spec_of(manifest), options, config["gamma"], config["detector"], config["seed"], device, False, quiet
    )


def with_recipe(options: TrainMemoryOptions, spec: TaskSpec) -> TrainMemoryOptions:
    """What was not given comes from the task's recipe, as far as it fits what was, then from the general defaults."""
    given = options.model_dump(exclude_unset=True)
    recipe = {
        **spec.recipes.get("fast", {}),
        **(spec.recipes.get(options.preset, {}) if options.preset != "fast" else {}),
    }
    if given.get("select") == "current":
        recipe |= {"context": "point", "replay": 0.0}
    if given.get("context") == "carried":
        recipe |= {"rollout_sampling": "all"}
    if given.get("cell", "lstm") != "lstm":
        recipe |= {"novelty_gates": False}
    return TrainMemoryOptions(**{**recipe, **given})


def _short_stretches(options: TrainMemoryOptions, longest: int) -> TrainMemoryOptions:
    """Stretches that are no longer than the longest episode."""
    if options.rollout_sampling == "all":
        return options
    return options.model_copy(update={"stretch": min(options.stretch, -(-longest // options.rollout))})


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
            metrics = _train(job, world, stop, lambda: None)
        if metrics["stopped"]:
            raise stop.error(f"checkpoint saved at update {metrics['updates']:,}", continue_command())
        return {"run": str(job.manifest.run), "outcome": "trained", **metrics}


def is_done(job: MemoryJob) -> bool:
    """Whether the run has this memory already; an error if it has another that only --restart may discard."""
    begun = checkpoint.exists(job.folder)
    return is_up_to_date(job.manifest, "train-memory", job.config, _inputs(job), job.restart, begun, "updates")


def _inputs(job: MemoryJob) -> dict[str, str]:
    return digests(job.manifest, "train", *(["scores"] if job.detector else []))


def _lead(job: MemoryJob, world: World) -> dict[str, Any]:
    """The one process that owns the stage's folder and its entry in the manifest."""
    progress = {"done": 0, "total": job.options.updates}
    stop = StopFlag()
    with stop, owned(job.folder, job.quiet) as still_ours:
        if job.restart or "train-memory" not in job.manifest.stages:
            checkpoint.clear(job.folder)
        if job.options.select == "utility" and job.detector != "probe":
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
        note("running", config=job.config, inputs=_inputs(job), progress=progress, earlier=job.earlier, **made)
        try:
            metrics = _train(job, world, stop, still_ours)
        except BadInput as error:
            note("failed", problem=str(error))
            raise
        except RankLost:
            note("interrupted")
            raise
        conclude(note, metrics, progress, "memory", stop)
    return {"run": str(job.manifest.run), "outcome": "trained", **metrics}


def _train(job: MemoryJob, world: World, stop: StopFlag, still_ours: Callable[[], None]) -> dict[str, Any]:
    """Train the memory; what a predictor can do without one is trained first, unless that was done before."""
    if not world.from_first(lambda: train_without(job, stop, still_ours)):
        return {"updates": 0, "stopped": True}
    _, learner = _begin(job, world)
    compare = Comparison(job) if world.first else None
    without = compare.without("validation", job.options.evaluate_episodes) if compare else None
    course = _course(job, world, learner, without)
    metrics = descend(course, learner, stop, still_ours)
    if compare and not metrics["stopped"]:
        metrics |= compare.training(learner.kept)
    return metrics


class Comparison:
    """Predictions of a memory beside those without one, at the steps that matter."""

    def __init__(self, job: MemoryJob) -> None:
        self._job = job
        self._matters = Matters(job.manifest, job.spec, job.config)
        self._without = restore(job.spec, without_memory(job).config, read_without(job)).to(job.device)

    @property
    def by(self) -> str:
        return self._matters.by

    def predict(self, model: MemoryModel, split: str, episodes: int | None) -> Predictions:
        job = self._job
        return predict_split(model, split_of(job.manifest, split), job.spec, job.gamma, self._matters, episodes)

    def without(self, split: str, episodes: int | None) -> Predictions:
        return self.predict(self._without, split, episodes)

    def training(self, model: MemoryModel) -> dict[str, float]:
        """What the memory explains of episodes that it was trained on, and how many events these have in all."""
        count = self._job.options.evaluate_episodes
        found = self.predict(model, "train", count)
        episodes = len(split_of(self._job.manifest, "train"))
        return {
            "explained_of_training": found.explained(self.without("train", count))[0],
            "training_episodes": episodes,
            "training_events": round(found.events() * episodes),
        }


def without_memory(job: MemoryJob) -> MemoryJob:
    """The same training of a predictor that sees only the context."""
    updates = min(job.options.updates, max(WITHOUT_UPDATES, job.options.updates // 20))
    plain = {"cell": "none", "hidden": 1, "layers": 1, "embedding": 0, "novelty_gates": False, "horizon": 1.0}
    plain |= {"replay": 0.0, "starts": 0.0, "rollout_sampling": "all", "average": 0.5, "evaluate_every": 100}
    plain |= {"lr": 1e-3, "lr_end": 0.1, "clip": 1.0, "checkpoint_every": 500}
    plain |= {"updates": updates, "until_rmse": None, "until_mse": None, "until_accuracy": None}
    return replace(job, options=job.options.model_copy(update=plain), initial=None, earlier=(), stage="memoryless")


def train_without(job: MemoryJob, stop: StopFlag, allow: Callable[[], None] = allowed) -> bool:
    """Train the predictor without a memory unless the run has it already; False if stopped before the end.

    Unless it is surely better than the best constant on the validation split, it is that constant. `allow` is a check
    of the stage that wants it, made before each commit.
    """
    job = without_memory(job)
    described = {"config": job.config, "inputs": _inputs(job)}
    if _is_described(job.folder, described):
        return True
    with owned(job.folder, job.quiet) as own:

        def still_ours() -> None:
            own()
            allow()

        if _read_description(job.folder).get("begun") != described:
            checkpoint.clear(job.folder)
            write_durably(job.folder / DESCRIPTION, to_json({"begun": described}), still_ours)
        model, learner = _begin(job, ALONE)
        metrics = descend(_course(job, ALONE, learner, None), learner, stop, still_ours)
        if metrics["stopped"]:
            return False
        fill(model, load_weights(read_file(job.folder / "best.safetensors")))
        found = predict_split(
            model,
            split_of(job.manifest, "validation"),
            job.spec,
            job.gamma,
            Matters(job.manifest, job.spec, job.config),
            job.options.evaluate_episodes,
        )
        if found.explained(found.constant())[1][0] <= 0:
            model.predict_always(found.best_constant())
        digest = save_model(job.folder, model, job.manifest.task, job.config, "best", still_ours)
        write_durably(job.folder / DESCRIPTION, to_json({"begun": described, "digest": digest}), still_ours)
        checkpoint.clear(job.folder)
    return True


def read_without(job: MemoryJob) -> bytes:
    """Weights of the predictor without a memory."""
    return read_file(without_memory(job).folder / "best.safetensors")


def _is_described(folder: Path, described: dict[str, Any]) -> bool:
    found = _read_description(folder)
    path = folder / "best.safetensors"
    if found.get("begun") != described or not path.exists():
        return False
    return bool(found.get("digest") == hashlib.sha256(read_file(path)).hexdigest())


def _read_description(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(StoreError):  # missing or damaged: it is made again
        return read_json(folder / DESCRIPTION)
    return {}


def _begin(job: MemoryJob, world: World) -> tuple[MemoryModel, MemoryLearner]:
    options, spec, train = job.options, job.spec, split_of(job.manifest, "train")
    torch.manual_seed(job.seed)
    model = build_model(spec, job.config, int(train.lengths.max())).to(job.device)
    if options.novelty_gates:
        model.memory.close_to_usual(sample_features(train, spec, model.inputs))
    if job.initial is not None:
        model.load_state_dict(job.initial.state_dict())
    return model, MemoryLearner(model, options, spec, train, job.seed, online=job.online, world=world)


def _course(job: MemoryJob, world: World, learner: MemoryLearner, without: Predictions | None) -> Course:
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
    choose = None
    if options.select != "current" and not job.online:
        choose = stored_choice(job.manifest, spec, options, job.detector, job.seed)

    def gather(top: SuffixTop, block: int, length: int, read: Read) -> Candidates:
        return gather_candidates(top, spec, job.gamma, options.context, options.window, block, length, read)

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
        whole=job.online or options.context == "carried",
        own=world.share(options.slots),
        with_targets=choose is None or options.context == "carried",
        choose=choose,
        gather=gather,
        on_fresh=learner.on_fresh,
    )


def _dwell(options: TrainMemoryOptions, longest: int) -> int:
    """How often the start of an episode is read: choosing its targets takes as long as the episode is."""
    return max(1, longest // (4 * options.stride)) if options.rollout_sampling == "priority" else 1
