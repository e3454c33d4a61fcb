"""How well a baseline predicts the steps that matter, in the same sense as predict_split() does for the memory."""

from typing import Any

import numpy as np
import torch

from stores.layout import LENGTH
from stores.reader import Shard, Trajectories

from ..evaluation.predictions import SWEEP, Predictions, joined_predictions, read_block
from ..selection.importance import Matters
from ..streaming.reading import ChunkReader
from ..streaming.targets import TARGET
from ..tasks.spec import TaskSpec
from .networks import SPAN, Baseline

ACTIVATION_BYTES = 256 << 20  # of one forward pass, about
FLOATS_PER_UNIT = 16  # that a step needs at the same time in a forward pass without gradients, about


def predict_baseline(
    model: Baseline,
    config: dict[str, Any],
    trajectories: Trajectories,
    spec: TaskSpec,
    gamma: float,
    matters: Matters,
    episodes: int | None = None,
) -> Predictions:
    """Predict at the steps that matter.

    A state carries over, so blocks of any size do (short ones suit attention); the transformer has none, and reads the
    windows it was trained on: whole episodes, or pieces of `truncate` steps.
    """
    count = min(len(trajectories), episodes or len(trajectories))
    where = [(shard, row) for shard, group in trajectories.groups() for row in shard.rows(group)][:count]
    where.sort(key=lambda item: int(item[1][LENGTH]))  # alike lengths together: less padding
    longest = int(where[-1][1][LENGTH])
    window = {"transformer": config["truncate"] or longest, "gtrxl": SPAN}.get(config["model"], SWEEP)
    step_bytes = 4 * FLOATS_PER_UNIT * config["hidden"]
    batch = max(1, min(count, ACTIVATION_BYTES // (min(window, longest) * step_bytes)))
    parts = []
    for first in range(0, count, batch):
        parts += _walk(model, where[first : first + batch], first, spec, gamma, matters, window)
    return joined_predictions(parts, count, trajectories, spec)


@torch.no_grad()
def _walk(
    model: Baseline,
    where: list[tuple[Shard, np.ndarray]],
    first: int,
    spec: TaskSpec,
    gamma: float,
    matters: Matters,
    window: int,
) -> list[tuple[np.ndarray, ...]]:
    device = next(model.parameters()).device
    lengths = np.array([int(row[LENGTH]) for _, row in where])
    weigh = [matters.episode(shard, row) for shard, row in where]
    state = model.initial(len(where))
    found: list[tuple[np.ndarray, ...]] = []
    read = ChunkReader()
    episodes = [read.episode(shard, row, spec, gamma) for shard, row in where]
    for start in range(0, int(lengths.max()), window):
        arrays, weight = read_block(episodes, spec, weigh, start, min(start + window, int(lengths.max())))
        inputs = {name: torch.from_numpy(arrays[name]).to(device) for name in model.inputs.names}
        prediction, state = model(inputs, state)  # (B, window, ...)
        episode, step = np.nonzero(weight)
        if not len(episode):
            continue
        y = arrays[TARGET][episode, step]
        at = prediction[torch.from_numpy(episode).to(device), torch.from_numpy(step).to(device)]  # (n, ...)
        target = torch.from_numpy(y).to(device)
        nll = model.losses(at, target)
        error = (at.argmax(-1) == target).float() if spec.target_kind == "classes" else nll
        here = weight[episode, step]
        found.append((first + episode, start + step, y, here, error.cpu().numpy(), nll.cpu().numpy()))
    return found
