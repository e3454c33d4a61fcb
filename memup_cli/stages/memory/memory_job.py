"""What a training of the memory is to do, checked before anything is touched."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stores.manifest import Manifest
from stores.slab import SlabTooSmall, fit

from ...compute.devices import weights_digest
from ...errors import UsageProblem
from ...learning.goals import check_goals
from ...memory.cell_checks import check_cell
from ...memory.encoders import FieldEncoder
from ...options.command_line import build
from ...options.common import MB
from ...options.memory_options import NEWER, TrainMemoryOptions
from ...options.old_names import renewed
from ...options.presets import paper
from ...predictor.contexts import context_class
from ...predictor.predictor import MemoryModel
from ...records.opening import check_window, digests, open_run, require_validation, spec_of, split_of
from ...records.runs import recorded_config
from ...registries import CELLS, PROBE
from ...registry import in_words
from ...selection.rules import discount, rule_of, scored_by
from ...selection.utility import probe_tells
from ...tasks.spec import TaskSpec
from ..jobs import TrainingJob
from .facts import facts_of
from .plan import BEGUN, NO_PLAN, Choice, Plan, settle


@dataclass(frozen=True, kw_only=True)
class MemoryJob(TrainingJob[TrainMemoryOptions]):
    """A fully resolved train-memory command."""

    gamma: float
    detector: str  # whose stored scores; empty if none are used
    initial: MemoryModel | None = None  # weights to go on from
    stage: str = "train-memory"
    standardised: bool = True  # False: a memory of 0.1.0, which takes its inputs as they are
    plan: Plan = NO_PLAN
    rivals: tuple[dict[str, Any], ...] = ()  # what is yet to be decided by a race

    @property
    def config(self) -> dict[str, Any]:
        """What the result depends on; how often it is looked at and saved does not."""
        free = {"checkpoint_every", "slab_memory", "detector", "gamma"}
        free |= {name for name, usual in NEWER.items() if getattr(self.options, name) == usual}
        chosen = {k: v for k, v in self.options.model_dump(mode="json").items() if k not in free}
        given: dict[str, Any] = {"initial": weights_digest(self.initial)} if self.initial is not None else {}
        given |= {"standardised": True} if self.standardised else {}
        return {**chosen, "gamma": self.gamma, "detector": self.detector, "seed": self.seed, **given}

    @property
    def folder(self) -> Path:
        return self.manifest.run / ("memory" if self.stage == "train-memory" else self.stage)

    @property
    def online(self) -> bool:
        """Whether the model's own errors are the scores."""
        return rule_of(self.options.select).online and not self.detector


def resolve(
    run: Path | None, options: TrainMemoryOptions, seed: int, device: torch.device, *, restart: bool, quiet: bool
) -> MemoryJob:
    """Check what the command needs: collected data, and scores if it uses them."""
    manifest = open_run(run)
    spec = spec_of(manifest)
    require_validation(manifest)
    asked, begun = options.model_fields_set, {} if restart else manifest.stages.get("train-memory", {})
    given = _hinted(options, spec)
    plan = _planned(manifest, spec, options, given, begun)
    plan = replace(plan, rivals=plan.undecided(given))  # what was given once is not open when it is left out later
    options = _short_stretches(plan.options(given), int(split_of(manifest, "train").lengths.max()))
    check_goals(options, spec)
    check_cell(options.cell, quiet)
    context = context_class(options.context)
    if "window" in context.takes and "window" in asked:
        check_window(manifest, options.window)
    if rule_of(options.select).choice is None and not context.alone:
        raise UsageProblem(
            f"--select {options.select} predicts every step from the memory there; it takes --context point"
        )
    if options.rollout_sampling == "priority" and context.trained_now:
        raise UsageProblem(f"--context {options.context} learns from every rollout; it takes --rollout-sampling all")
    gated = CELLS.entry(options.cell).novelty_gates
    if options.novelty_gates and (not gated or FieldEncoder(spec, spec.memory_input).images):
        names = in_words(tuple(name for name, cell in CELLS.built_in.items() if cell.novelty_gates))
        raise UsageProblem(f"--novelty-gates is for --cell {names}, and for inputs that are not images")
    if options.spread == "learned" and spec.target_kind == "classes":
        raise UsageProblem("--spread learned is for numbers; the targets of this task are classes")
    if not context.images and FieldEncoder(spec, spec.query).images:
        raise UsageProblem(f"--context {options.context} is not for images, which the queries of this task are")
    detector = scored_by(manifest, spec, options)
    gamma = discount(manifest, spec, options.gamma, bool(detector))
    row_bytes = sum(f.row_bytes for f in spec.fields) + 8  # the previous action, and y
    try:
        fit(split_of(manifest, "train"), options.slots, options.stride, row_bytes, options.slab_memory * MB)
    except SlabTooSmall as error:
        raise UsageProblem(f"--slab-memory {options.slab_memory}: {error}") from None
    standardised = _is_standardised(manifest) if begun else options.preset != "paper"
    return MemoryJob(
        manifest=manifest,
        spec=spec,
        options=options,
        gamma=gamma,
        detector=detector,
        seed=seed,
        device=device,
        restart=restart,
        quiet=quiet,
        standardised=standardised,
        plan=plan,
        rivals=plan.rivals,
    )


def changed_by(job: MemoryJob, update: dict[str, Any]) -> MemoryJob:
    """The job with some other options."""
    options = job.options.model_copy(update=update)
    return replace(job, options=options, detector=scored_by(job.manifest, job.spec, options))


def recorded_job(manifest: Manifest, device: torch.device, quiet: bool) -> MemoryJob:
    """The training that a run records; to be measured, not to be run again."""
    config = recorded_config(manifest, "train-memory")
    options = build(TrainMemoryOptions, {name: value for name, value in config.items() if name != "detector"})
    return MemoryJob(
        manifest=manifest,
        spec=spec_of(manifest),
        options=options,
        gamma=config["gamma"],
        detector=config["detector"],
        seed=config["seed"],
        device=device,
        restart=False,
        quiet=quiet,
        standardised=_is_standardised(manifest),
    )


def _is_standardised(manifest: Manifest) -> bool:
    return bool(manifest.stages["train-memory"]["config"].get("standardised", False))


def _planned(
    manifest: Manifest, spec: TaskSpec, options: TrainMemoryOptions, given: dict[str, Any], begun: dict[str, Any]
) -> Plan:
    """What was begun goes on as it was, also what was given then; what begins is planned by what its data look like."""
    if begun:
        plan = Plan.from_json(begun.get("plan", {"choices": [], "rivals": []}))
        why = {choice.option: choice.why for choice in plan.choices}
        recorded = recorded_config(manifest, "train-memory")
        known = {n: v for n, v in recorded.items() if n in TrainMemoryOptions.model_fields}
        known |= {
            name: value for name, value in TrainMemoryOptions().model_dump().items() if name in set(NEWER) - {*known}
        }
        choices = [Choice(n, v, why.get(n, BEGUN)) for n, v in known.items() if n not in ("detector", "gamma")]
        return Plan(tuple(choices), plan.rivals)
    if options.preset == "paper":
        preset = paper(manifest.task["name"], manifest.task["options"].get("length", 0), spec.recipes)
        return Plan(tuple(Choice(name, value, "as in the paper") for name, value in preset.items()))
    detector = scored_by(manifest, spec, options)
    gamma = discount(manifest, spec, options.gamma, bool(detector))
    if detector and probe_tells(manifest) and not {"select", "scores", "detector"} & set(given):
        detector = PROBE  # what is noise by its scores is no event
    return settle(facts_of(manifest, spec, detector, gamma), given)


def _hinted(options: TrainMemoryOptions, spec: TaskSpec) -> dict[str, Any]:
    """What is given, before what a task hints at."""
    hints = {} if options.preset == "paper" else renewed(spec.recipes.get("hints", {}))
    return {**hints, **options.model_dump(exclude_unset=True)}


def _short_stretches(options: TrainMemoryOptions, longest: int) -> TrainMemoryOptions:
    """Stretches that are no longer than the longest episode."""
    if options.rollout_sampling == "all":
        return options
    return options.model_copy(update={"stretch": min(options.stretch, -(-longest // options.rollout))})


def inputs_of(job: MemoryJob) -> dict[str, str]:
    return digests(job.manifest, "train", *(["scores"] if job.detector else []))
