"""The training loop that the memory and the baselines share: log, evaluate, keep the best, save, stop, resume."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from stores.slab import Slab

from .. import console
from ..compute.pace import Watch, give_back, peak_rss
from ..compute.world import ALONE, World
from ..errors import BadInput
from ..evaluation.predictions import Predictions
from ..interrupts import StopFlag
from ..records import checkpoint
from ..records.extending import Earlier, Extent
from ..records.metrics import Metrics
from .weights import save_model, saved_digest

LOG_EVERY = 50


class Learner(Protocol):
    """What is trained. Its state is all that an update depends on, besides the slab."""

    losses: Tensor  # summed since the last log

    @property
    def model(self) -> nn.Module: ...

    @property
    def kept(self) -> nn.Module:
        """What is evaluated and saved: the model, or an average of it over the last updates."""
        ...

    def attach(self, slab: Slab, resumed: bool) -> None: ...

    def update(self, lr: float, update: int, watch: Watch) -> None: ...

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Course:
    """How long a model is trained, how often it is looked at, and where everything goes."""

    stage: str
    run: Path
    folder: Path  # of weights and checkpoints
    task: dict[str, Any]
    config: dict[str, Any]
    lr: float
    lr_end: float  # of lr
    updates: int
    evaluate_every: int
    checkpoint_every: int
    quiet: bool
    device: torch.device
    evaluate: Callable[[], Predictions]  # on the validation split
    reached: Callable[[dict[str, float]], bool]  # whether to stop early
    slab: Callable[[int], Slab]  # opened at an update
    earlier: Earlier = ()  # of a training that was extended
    world: World = ALONE  # the first of several processes evaluates and writes
    without: Predictions | None = None  # of the same steps, by a predictor without a memory
    by_loss: bool = False  # the best weights are those with the least loss, also of classes


def learning_rate(lr: float, end: float, done: float) -> float:
    """A cosine from lr to `end` times it; `done` goes from 0 to 1."""
    return lr * (end + (1 - end) * 0.5 * (1 + math.cos(math.pi * done)))


def descend(course: Course, learner: Learner, stop: StopFlag, still_ours: Callable[[], None]) -> dict[str, Any]:
    """Train to the end, or until any process is told to stop.

    Returns the metrics, with the digests of the best and last weights; fewer if it was stopped, or is not the first.
    """
    update, best, kept_best, world = 0, math.inf, "", course.world
    of_best: dict[str, float] = {}  # what was measured of the best weights, and at which update
    schedule = Extent(course.updates, course.earlier)
    saved_at = None
    watch, folder = Watch(learner.model), course.folder
    if (saved := world.from_first(lambda: checkpoint.load_latest(folder, course.device))) is not None:
        with checkpoint.fitting(folder):
            learner.load(saved["learner"])
            torch.set_rng_state(saved["rng"].cpu())
            update, best, watch.saved_bytes = saved["update"], saved["best"], saved["saved_tensor_bytes"]
            kept_best = saved.get("kept_best", "")  # of 0.1.0 it is not known, nor is what was measured of it
            of_best = saved.get("of_best", {})
            saved_at = update
        if (update, update) not in course.earlier:  # where it is extended, that is said
            console.resuming(course.stage, f"update {update:,}", course.quiet)
    began_at = logged = update
    result: dict[str, float] = {}

    def rate() -> float:
        return learning_rate(course.lr, course.lr_end, schedule.share(update))

    def enough() -> bool:
        return bool(result) and update > schedule.begun and course.reached(result)

    def save() -> None:
        nonlocal saved_at
        largest = torch.stack([p.detach().abs().max() for p in learner.model.parameters()]).max()
        _check_finite(folder, float(learner.losses + largest), update, rate())
        if metrics:
            metrics.sync()
        content = {"update": update, "best": best, "kept_best": kept_best, "of_best": of_best}
        content |= {"learner": learner.state(), "rng": torch.get_rng_state()}
        if world.first:
            checkpoint.save(folder, update, {**content, "saved_tensor_bytes": watch.saved_bytes}, still_ours)
        saved_at = update

    def keep(which: str) -> str:
        return save_model(folder, learner.kept, course.task, course.config, which, still_ours)

    quiet, looked = course.quiet or not world.first, ""
    logs = course.run / "logs" / course.stage
    with (
        Metrics(logs, update, still_ours) if world.first else nullcontext() as metrics,
        console.Progress(course.stage, "update", course.updates, update, quiet=quiet) as bar,
        course.slab(update) as slab,
    ):
        learner.attach(slab, resumed=update > 0)
        stopping = world.any(bool(stop))
        while update < course.updates and not stopping:
            asked = world.begin_any(stop)
            learner.update(rate(), update, watch)
            update += 1
            stopping = asked()
            if update % LOG_EVERY == 0 or schedule.ends(update):
                mean = float(world.sum(learner.losses)) / schedule.since_line(update, LOG_EVERY)
                _check_finite(folder, mean, update, rate())
                learner.losses.zero_()
                speed, waiting = watch.rate(update - logged), watch.wait_share(slab)
                if metrics:
                    metrics.write(update, loss=mean, updates_per_second=speed, data_wait_share=waiting)
                bar.advance(update - logged, f"{looked}loss {mean:.4g}, waiting for data {waiting:.0%}")
                logged = update
            if update % course.evaluate_every == 0 or schedule.ends(update):
                still_ours()
                if metrics:
                    with watch.paused():
                        found = course.evaluate()
                        result = _measured(found, course.without)
                        give_back()
                    metrics.write(update, **{f"validation_{name}": value for name, value in result.items()})
                    value = found.loss if course.by_loss else found.objective
                    if value <= best:
                        best, of_best = value, {**result, "update": update}
                        kept_best = keep("best")
                    looked = f"validation {_shown(result, found.main)}, "
                if world.any(enough()):
                    break
            if update % course.checkpoint_every == 0:
                with watch.paused():
                    save()
        # What is reached is done, however late the signal came.
        stopped = world.any(bool(stop)) and not world.any(enough())
        if saved_at != update:  # also what is done: more may be asked for
            save()
    if stopped or not world.first:
        return {"updates": update, "stopped": stopped}
    if not result:  # an attempt that was killed after its last update left only the evaluation to do
        result = _measured(course.evaluate(), course.without)
        if not (folder / "best.safetensors").exists():
            kept_best = keep("best")
    main = "accuracy" if "accuracy" in result else "rmse"
    of_best = of_best or {**result, "update": update}
    return {
        "updates": update,
        "stopped": False,
        "early": update < course.updates,
        **{name: value for name, value in of_best.items() if name != "update"},
        f"best_{main}": abs(best),
        "best_update": int(of_best["update"]),
        "last_weights": result,
        "updates_per_second": watch.overall(update - began_at),
        "data_wait_share": watch.wait_share(slab),
        "peak_rss_bytes": peak_rss(),
        "saved_tensor_bytes": watch.saved_bytes,
        "last": keep("last"),
        "best": saved_digest(folder, "best", kept_best),
    }


def _measured(found: Predictions, without: Predictions | None) -> dict[str, float]:
    explained = {} if without is None else {"explained": found.explained(without)[0]}
    return {**explained, **found.metrics()}


def _shown(result: dict[str, float], main: str) -> str:
    explained = f"{console.percent(result['explained'])} explained, " if "explained" in result else ""
    return f"{explained}{main} {result[main]:.4g}"


def _check_finite(folder: Path, loss: float, update: int, lr: float) -> None:
    """BadInput, which says what is kept, if the loss (or the largest weight) is not a number any more."""
    if math.isfinite(loss):
        return
    kept = checkpoint.load_latest(folder, torch.device("cpu"))
    where = f"the last good checkpoint, of update {kept['update']:,}, is kept" if kept else "there is no checkpoint yet"
    raise BadInput(
        f"the loss is no longer finite ({loss}) at update {update:,} with learning rate {lr:.3g}; {where}. Use a "
        "smaller --lr or --clip with --restart, and check the data for extreme values."
    )
