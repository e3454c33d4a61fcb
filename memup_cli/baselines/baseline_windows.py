"""What one update of a baseline sees: a window of every slot, and its loss."""

import math

import numpy as np
import torch

from stores.layout import Field
from stores.reader import Trajectories
from stores.schedule import Visit
from stores.slab import Derived, Read, Slab, SlabTooSmall, fit

from ..errors import UsageProblem
from ..memory.cells import State, reset
from ..options.baseline_options import TrainBaselineOptions
from ..options.common import MB
from ..streaming.slabs import open_slab
from ..streaming.targets import TARGET
from ..tasks.spec import TaskSpec
from .networks import Baseline

MATTERS = "matters"


def window_loss(
    model: Baseline, tensors: dict[str, torch.Tensor], state: State, balanced: bool
) -> tuple[torch.Tensor, State]:
    """Mean loss of every step of a window; balanced: half of it of the steps that matter, half of the rest.

    Returns the state behind the window, detached: gradients flow through the window and no further.
    """
    prediction, state = model(tensors, reset(state, tensors["fresh"]))
    each = model.losses(prediction, tensors[TARGET])  # (B, r)
    exists, matters = tensors["exists"], tensors[MATTERS]
    groups = [exists & matters, exists & ~matters] if balanced else [exists]
    means = [(each * group).sum() / group.sum().clamp(min=1) for group in groups]
    return torch.stack(means).mean(), tuple(part.detach() for part in state)


def next_batch(slab: Slab) -> dict[str, np.ndarray]:
    return {
        **slab.window(),
        "fresh": slab.fresh.copy(),
        "exists": np.arange(slab.rollout) < slab.valid()[:, None],
    }


def open_windows(
    trajectories: Trajectories,
    spec: TaskSpec,
    options: TrainBaselineOptions,
    window: int,
    gamma: float,
    seed: int,
    update: int,
) -> Slab:
    """Slots that walk through whole episodes, or through windows of them, with y and which steps matter."""

    def matters(visit: Visit, read: Read, start: int, stop: int) -> np.ndarray:
        if spec.evaluate is None:
            return np.ones(stop - start, bool)
        return spec.evaluate({spec.evaluate.field: read(spec.evaluate.field, start, stop)})

    return open_slab(
        trajectories,
        spec,
        batch=options.batch,
        rollout=window,
        gamma=gamma,
        seed=seed,
        update=update,
        memory=options.slab_memory * MB,
        with_targets=True,
        more=(Derived(Field(MATTERS, "bool"), matters),),
    )


def check_slab(trajectories: Trajectories, spec: TaskSpec, options: TrainBaselineOptions, window: int) -> None:
    """UsageProblem if --slab-memory does not hold the windows."""
    row_bytes = sum(f.row_bytes for f in spec.fields) + 9  # the previous action, y, and whether the step matters
    try:
        piece, _ = fit(trajectories, options.batch, window, row_bytes, options.slab_memory * MB)
    except SlabTooSmall as error:
        raise UsageProblem(f"--slab-memory {options.slab_memory}: {error}") from None
    if piece < window:
        needed = math.ceil(2 * int(trajectories.lengths.max()) * options.batch * row_bytes / MB)
        raise UsageProblem(
            f"--slab-memory {options.slab_memory}: {options.batch} windows of {window:,} steps do not fit; give it "
            f"{needed:,}, or use a smaller --batch or --truncate"
        )
