"""Episodes of a few steps with known numbers, and a memory so small that a plain loop can follow it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from memup_cli.compute.world import ALONE, World
from memup_cli.learning.learner import MemoryLearner
from memup_cli.learning.weights import build_model
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.predictor.predictor import MemoryModel
from memup_cli.selection.candidates import gather_candidates
from memup_cli.selection.choosing import chooser, preparing
from memup_cli.selection.gains import candidates_wanted
from memup_cli.streaming.slabs import open_slab
from memup_cli.tasks.spec import TaskSpec
from stores.groups import Episode
from stores.layout import Field, Layout
from stores.reader import Trajectories
from stores.schedule import Visit
from stores.slab import Slab
from tests.stores.test_roundtrip import write

FIELDS = (Field("x", "float32"), Field("q", "float32"), Field("y", "float32"))
SPEC = TaskSpec(FIELDS, ("x",), ("q",), "y", "scalar")
LENGTHS = (7, 5, 9, 4, 11)
SHARP = 1e-6  # a temperature at which noise does not count


def numbers(length: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f.name: rng.normal(size=length).astype(np.float32) for f in FIELDS}


EPISODES = [numbers(length, number) for number, length in enumerate(LENGTHS)]
SCORES = [np.random.default_rng(100 + number).permutation(length) / 10 for number, length in enumerate(LENGTHS)]


def stored(folder: Path, episodes: list[dict[str, np.ndarray]] = EPISODES, group: int = 2) -> Trajectories:
    """A store of these episodes, `group` to a commit group, with chunks shorter than some of them."""
    made = [Episode(arrays, number) for number, arrays in enumerate(episodes)]
    write(folder / "train" / "0000.zarr", Layout(FIELDS, 8, group), made)
    return Trajectories(folder / "train", 1)


def sharp(**more: Any) -> TrainMemoryOptions:
    """Two walkers, three steps an update, two targets each from the second and from the last step of a rollout."""
    options = {
        "rollout": 3,
        "batch": 2,
        "targets": 2,
        "predict_every": 2,
        "random_points": 0,
        "temperature": SHARP,
        "hidden": 3,
        "context_hidden": 3,
        "predictor_hidden": 4,
        "window": 4,
        "lr": 0.05,
    }
    return TrainMemoryOptions(**{**options, **more})


def model_of(options: TrainMemoryOptions, seed: int = 0) -> MemoryModel:
    torch.manual_seed(seed)
    return build_model(SPEC, options.model_dump(), max(LENGTHS))


def learner_of(train: Trajectories, options: TrainMemoryOptions, seed: int = 0, world: World = ALONE) -> MemoryLearner:
    return MemoryLearner(model_of(options, seed), options, SPEC, train, 0, options.scores == "online", world)


def walk(train: Trajectories, learner: MemoryLearner, options: TrainMemoryOptions, update: int = 0) -> Slab:
    """The learner's slab, opened at an update, with targets by SCORES unless they are the model's own errors."""

    def scores(visit: Visit) -> np.ndarray:
        return SCORES[visit.index]

    online, carried = options.scores == "online", options.context == "carried"
    slab = open_slab(
        train,
        SPEC,
        batch=options.slots,
        rollout=options.stride,
        gamma=0.0,
        seed=0,
        update=update,
        memory=1 << 20,
        starters=options.starters,
        whole=online or carried,
        with_targets=online or carried or options.select == "current",
        prepare=None
        if online
        else preparing(
            chooser(scores, candidates_wanted(options), options.temperature, 0),
            lambda top, *where: gather_candidates(top, SPEC, 0.0, options.context, options.window, *where),
        ),
        on_fresh=learner.on_fresh,
    )
    learner.attach(slab, resumed=update > 0)
    return slab
