"""The train-baseline stage: the models of models/baselines.py on the same store, over whole sequences or truncated."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from stores.slab import Slab

from ..baselines.baseline_evaluation import predict_baseline
from ..baselines.baseline_windows import check_slab, next_batch, open_windows, window_loss
from ..baselines.networks import Baseline
from ..baselines.room import free_bytes, predict_bytes
from ..compute.adam import Adam
from ..compute.pace import Watch
from ..compute.staging import Stager
from ..errors import UsageProblem
from ..learning.goals import check_goals, reached
from ..learning.loop import Course, descend
from ..learning.update import optimiser_step
from ..learning.weights import build_baseline, fill
from ..options.baseline_options import TrainBaselineOptions
from ..options.common import MB
from ..records import checkpoint
from ..records.extending import earlier_parts
from ..records.opening import digests, open_run, spec_of, split_of
from ..records.runs import altered_weights, recorded_config
from ..registries import BASELINES
from ..selection.importance import Matters
from ..selection.rules import discount
from .jobs import TrainingJob
from .lifecycle import attempting, is_up_to_date

OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class BaselineJob(TrainingJob[TrainBaselineOptions]):
    """A fully resolved train-baseline command."""

    @property
    def stage(self) -> str:
        return f"train-baseline/{self.options.name}"

    @property
    def folder(self) -> Path:
        return self.manifest.run / "baseline" / self.options.name

    @property
    def config(self) -> dict[str, Any]:
        """What the result depends on, defaults filled in; how often it is saved and what is free does not count."""
        free = {"checkpoint_every", "slab_memory", "memory_limit"}
        chosen = {k: v for k, v in self.options.model_dump(mode="json").items() if k not in free}
        chosen["layers"] = self.options.layers or BASELINES.entry(self.options.model).layers
        chosen["gamma"] = discount(self.manifest, self.spec, self.options.gamma, scored=False)
        return {**chosen, "seed": self.seed}

    @property
    def longest(self) -> int:
        return int(split_of(self.manifest, "train").lengths.max())

    @property
    def window(self) -> int:
        """Steps of an update: a whole episode, however long, unless truncated."""
        return min(self.options.truncate or self.longest, self.longest)


def resolve(
    run: Path | None, options: TrainBaselineOptions, seed: int, device: torch.device, *, restart: bool, quiet: bool
) -> BaselineJob:
    """Check what the command needs: collected data, and options that suit the task."""
    manifest = open_run(run)
    spec = spec_of(manifest)
    if not len(split_of(manifest, "validation")):
        raise UsageProblem(f"{manifest.run} has no episodes for validation; collect at least 2 training episodes")
    asked = options.model_fields_set
    begun = {} if restart else recorded_config(manifest, f"train-baseline/{options.name}")
    begun = {name: value for name, value in begun.items() if name in TrainBaselineOptions.model_fields}
    options = TrainBaselineOptions(**{**begun, **options.model_dump(exclude_unset=True)})  # goes on as it was
    check_goals(options, spec)
    if "heads" in asked and not options.attends:
        raise UsageProblem(f"--heads is for transformers; {options.model} has none")
    return BaselineJob(
        manifest=manifest, spec=spec, options=options, seed=seed, device=device, restart=restart, quiet=quiet
    )


def memory_needed(job: BaselineJob) -> dict[str, int]:
    """What an update will need, and what it may take."""
    limit = job.options.memory_limit * MB if job.options.memory_limit else free_bytes(job.device)
    model = build_baseline(job.spec, job.config).to(job.device)
    needed = predict_bytes(job.spec, job.options, model, job.window)
    return {"predicted_bytes": needed, "limit_bytes": limit}


def train_baseline(job: BaselineJob) -> dict[str, Any]:
    """Run the stage; returns the summary to print."""
    told = {"run": str(job.manifest.run), "model": job.options.name}
    inputs = digests(job.manifest, "train")
    begun = checkpoint.exists(job.folder)
    done = is_up_to_date(job.manifest, job.stage, job.config, inputs, job.restart, begun, "updates")
    metrics = job.manifest.stages[job.stage]["metrics"] if done else {}
    if done and "outcome" not in metrics and not altered_weights(job.manifest, job.stage):
        return {**told, "outcome": "up to date", **metrics}
    progress = {"done": 0, "total": job.options.updates}
    room = memory_needed(job) if job.restart or not begun else None  # what was begun did fit
    if fits := room is None or room["predicted_bytes"] <= room["limit_bytes"]:
        check_slab(split_of(job.manifest, "train"), job.spec, job.options, job.window)
    elif done:
        return {**told, **metrics}
    with attempting(job.manifest, job.stage, job.folder, job.quiet) as attempt:
        if job.restart or job.stage not in job.manifest.stages:
            checkpoint.clear(job.folder)
        if not job.restart:
            parts = earlier_parts(job.manifest, job.stage, job.config, "updates", job.folder, job.quiet)
            job = replace(job, earlier=parts)
        base: dict[str, Any] = {
            "config": job.config,
            "inputs": inputs,
            "progress": progress,
            "earlier": job.earlier,
            "outputs": {},
            "weights": {},
        }
        if not fits:
            metrics = {"outcome": OUT_OF_MEMORY, **(room or {})}
            attempt.note("complete", **base, metrics=metrics)
            return {**told, **metrics}
        attempt.note("running", **base)
        course, learner = _begin(job)
        metrics = descend(course, learner, attempt.stop, attempt.still_ours)
        attempt.conclude(metrics, progress, f"baseline/{job.options.name}")
    return {**told, "outcome": "trained", **metrics}


class BaselineLearner:
    """A baseline with its optimiser and the states that its slots carry."""

    def __init__(self, model: Baseline, options: TrainBaselineOptions, balanced: bool) -> None:
        self.model = self.kept = model
        self._options, self._balanced = options, balanced
        self._optimiser = Adam(model.parameters(), lr=options.lr)
        self._state = model.initial(options.batch)
        device = next(model.parameters()).device
        self._stager = Stager(device)
        self.losses = torch.zeros((), device=device)

    def attach(self, slab: Slab, resumed: bool) -> None:
        self._slab = slab

    def update(self, lr: float, update: int, watch: Watch) -> None:
        tensors = self._stager(next_batch(self._slab))
        with watch.saved_tensors():
            loss, self._state = window_loss(self.model, tensors, self._state, self._balanced)
        optimiser_step(self.model, self._optimiser, loss, lr, self._options.clip)
        self.losses += loss.detach()
        self._slab.advance()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "state": list(self._state),
            "losses": self.losses,
        }

    def load(self, state: dict[str, Any]) -> None:
        fill(self.model, state["model"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._state = tuple(state["state"])
        self.losses += state["losses"]


def _begin(job: BaselineJob) -> tuple[Course, BaselineLearner]:
    options, spec, manifest, config = job.options, job.spec, job.manifest, job.config
    train, validation = split_of(manifest, "train"), split_of(manifest, "validation")
    matters = Matters(manifest, spec, config)
    torch.manual_seed(job.seed)
    model = build_baseline(spec, config, int(train.lengths.max())).to(job.device)
    course = Course(
        stage=job.stage,
        run=manifest.run,
        folder=job.folder,
        task=manifest.task,
        config=config,
        lr=options.lr,
        lr_end=options.lr_end,
        updates=options.updates,
        earlier=job.earlier,
        evaluate_every=options.evaluate_every,
        checkpoint_every=options.checkpoint_every,
        quiet=job.quiet,
        device=job.device,
        evaluate=lambda: predict_baseline(
            model, config, validation, spec, config["gamma"], matters, options.evaluate_episodes
        ),
        reached=lambda result: reached(options, result),
        slab=lambda update: open_windows(train, spec, options, job.window, config["gamma"], job.seed, update),
    )
    return course, BaselineLearner(model, options, spec.evaluate is not None)
