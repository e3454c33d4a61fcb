"""What the predictor can do without a memory: the measure of what a memory adds, trained once per run and options."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stores.errors import StoreError
from stores.files import allowed, read_file, read_json, to_json, write_durably

from ...compute.world import ALONE
from ...evaluation.predictions import Predictions, predict_split
from ...interrupts import StopFlag
from ...learning.loop import descend
from ...learning.weights import fill, restore, save_model
from ...options.old_names import renewed
from ...predictor.predictor import MemoryModel
from ...records import checkpoint
from ...records.opening import split_of
from ...records.tensors import from_bytes
from ...selection.importance import Matters
from ..lifecycle import owned
from .memory_course import begin, course_of
from .memory_job import MemoryJob, inputs_of

DESCRIPTION = "made_from.json"
RESULT = "predictor"
FIRST_ROUND, MOST_UPDATES = 1000, 20_000  # of the predictor without a memory ...
LONGER = 4  # ... and no more than so many times those of the memory; one of its updates takes a fraction of the time
BETTER = 0.95  # of the loss before: worth another round, twice as long


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
    """The same training of a predictor that sees only the context, of as many updates as it may have."""
    plain = {"cell": "none", "hidden": 1, "layers": 1, "embedding": 0, "novelty_gates": False, "horizon": 1.0}
    plain |= {"replay": 0.0, "starts": 0.0, "rollout_sampling": "all", "average": 0.05, "evaluate_every": 200}
    plain |= {"lr": 3e-3, "lr_end": 0.1, "clip": 1.0, "checkpoint_every": 500}
    plain |= {"updates": min(LONGER * job.options.updates, MOST_UPDATES)}
    plain |= {"until": None}
    return replace(job, options=job.options.model_copy(update=plain), initial=None, earlier=(), stage="memoryless")


def train_without(job: MemoryJob, stop: StopFlag, allow: Callable[[], None] = allowed) -> bool:
    """Train the predictor without a memory unless the run has it already; False if stopped before the end.

    It is trained in rounds, each as long as all before, while they make it better. Unless it is surely better than the
    best constant on the validation split, it is that constant. `allow` is a check of the stage that wants it, made
    before each commit.
    """
    job = without_memory(job)
    described = {"config": job.config, "inputs": inputs_of(job)}
    if _is_described(job.folder, described):
        return True
    with owned(job.folder, job.quiet) as own:

        def still_ours() -> None:
            own()
            allow()

        if _read_description(job.folder).get("begun") != described:
            checkpoint.clear(job.folder)
            write_durably(job.folder / DESCRIPTION, to_json({"begun": described, "losses": []}), still_ours)
        found = _train_in_rounds(job, described, stop, still_ours)
        if found is None:
            return False
        model, predictions = found
        if predictions.explained(predictions.constant())[1][0] <= 0:
            model.predict_always(predictions.best_constant())
        digest = save_model(job.folder, model, job.manifest.task, job.config, RESULT, still_ours)
        write_durably(job.folder / DESCRIPTION, to_json({"begun": described, "digest": digest}), still_ours)
        checkpoint.clear(job.folder)
    return True


def _train_in_rounds(
    job: MemoryJob, described: dict[str, Any], stop: StopFlag, still_ours: Callable[[], None]
) -> tuple[MemoryModel, Predictions] | None:
    """The best weights, and what they predict of validation episodes; None if stopped before the end."""
    losses = _read_description(job.folder).get("losses", [])  # after each round
    matters, validation = Matters(job.manifest, job.spec, job.config), split_of(job.manifest, "validation")
    while True:
        earlier = tuple((FIRST_ROUND << n, FIRST_ROUND << n) for n in range(len(losses)))
        updates = min(job.options.updates, FIRST_ROUND << len(losses))
        part = replace(job, options=job.options.model_copy(update={"updates": updates}), earlier=earlier)
        model, learner = begin(part, ALONE)
        if descend(course_of(part, ALONE, learner, None), learner, stop, still_ours)["stopped"]:
            return None
        path = job.folder / "best.safetensors"
        fill(model, from_bytes(read_file(path), path))
        found = predict_split(model, validation, job.spec, job.gamma, matters, job.options.evaluate_episodes)
        before = losses[-1] if losses else found.constant().loss
        if updates == job.options.updates or found.loss > BETTER * before:
            return model, found
        losses.append(found.loss)
        write_durably(job.folder / DESCRIPTION, to_json({"begun": described, "losses": losses}), still_ours)


def read_without(job: MemoryJob) -> bytes:
    """Weights of the predictor without a memory."""
    return read_file(without_memory(job).folder / f"{RESULT}.safetensors")


def _is_described(folder: Path, described: dict[str, Any]) -> bool:
    found = _read_description(folder)
    path = folder / f"{RESULT}.safetensors"
    if found.get("begun") != described or not path.exists():
        return False
    return bool(found.get("digest") == hashlib.sha256(read_file(path)).hexdigest())


def _read_description(folder: Path) -> dict[str, Any]:
    with contextlib.suppress(StoreError, KeyError, TypeError, AttributeError):  # missing or damaged: it is made again
        found = read_json(folder / DESCRIPTION)
        begun = {**found["begun"], "config": renewed(found["begun"]["config"])}
        return {**found, "begun": begun}
    return {}
