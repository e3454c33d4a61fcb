"""One update of memory training: what it sees, its loss (eq. 5), and the optimiser step."""

import numpy as np
import torch
from torch import Tensor, nn

from stores.slab import Slab

from ..compute.adam import Adam
from ..compute.world import ALONE, World
from ..memory.cells import State, reset
from ..options.memory_options import TrainMemoryOptions
from ..predictor.contexts import context_class
from ..predictor.points import prediction_points
from ..predictor.predictor import MemoryModel
from ..selection.candidates import TargetTables
from ..selection.gains import Gains
from ..selection.rules import rule_of
from ..streaming.rows import distinct
from ..streaming.targets import TARGET
from .stretches import Walked

WEIGHT = "weight"  # of a rollout's loss
NOW = "now"  # y of the rollout's own steps, on which a carried context encoder is trained


def rollout_loss(
    model: MemoryModel, tensors: dict[str, Tensor], state: State, world: World = ALONE, gains: Gains | None = None
) -> tuple[Tensor, State]:
    """Eq. 5 over one rollout of every slot: mean -log q(y_k | m_t, c_k) over prediction points t and targets k in U_t.

    The mean is over all processes' slots; what is returned is this one's part of it.
    Returns the state after the rollout, detached: gradients flow through r steps and no further. A carried context
    encoder has its state after the memory's. The running gain, if there is one, learns from the same predictions.
    """
    trained = ("exists", "valid") if model.context.trained_now else ("exists",)
    counts = world.begin_sum(torch.stack([tensors[name].sum() for name in trained]).float())
    state = reset(state, tensors["fresh"])
    parts = len(model.memory.initial(0))
    m, after = model.rollout(tensors, state[:parts])  # (B, r, H)
    extra = None
    if model.context.trained_now:
        c, carried = model.context.along(tensors, state[parts:])  # (B, r, C)
        after = (*after, *carried)
        # The encoder learns from the current step, the memory being fixed; the memory learns from the future below.
        extra = _mean(model.training_losses(m.detach(), c, tensors[NOW]), tensors["valid"], counts()[1])
    if "points" in tensors:
        m = m.gather(1, tensors["points"].unsqueeze(-1).expand(-1, -1, m.shape[-1])).unsqueeze(2)  # (B, P, 1, H)
    c = _contexts(model, tensors)
    losses = model.training_losses(m, c, tensors[TARGET])
    if gains is not None:
        gains.learn(model, m, c, tensors)
    if WEIGHT in tensors:
        losses = losses * tensors[WEIGHT].view(-1, *[1] * (losses.ndim - 1))
    loss = _mean(losses, tensors["exists"], counts()[0])
    return loss if extra is None else loss + extra, tuple(part.detach() for part in after)


def _contexts(model: MemoryModel, tensors: dict[str, Tensor]) -> Tensor:
    """c_k of the selected targets: (B, P, K, C)."""
    kept = {name.removeprefix("query."): values for name, values in tensors.items() if name.startswith("query.")}
    c: Tensor = model.context(kept)
    return c[tensors["which"]].view(*tensors["exists"].shape, -1) if "which" in tensors else c


def _mean(losses: Tensor, which: Tensor, count: Tensor) -> Tensor:
    return (losses * which).sum() / count.clamp(min=1)


def optimiser_step(
    model: nn.Module, optimiser: Adam, loss: Tensor, lr: float, clip: float, world: World = ALONE
) -> None:
    optimiser.lr = lr
    optimiser.zero_grad()
    loss.backward()
    world.sum_gradients(model.parameters())
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()


def next_batch(
    walked: Walked, slab: Slab, tables: TargetTables, options: TrainMemoryOptions, seed: int, update: int
) -> dict[str, np.ndarray]:
    """Arrays of one update: the rollout, the prediction points in it (none: every step), their queries and targets."""
    batch, valid = {**walked.arrays, "fresh": walked.fresh}, walked.valid
    if rule_of(options.select).choice is None:
        batch |= {f"query.{name}": batch[name] for name in batch if name not in (TARGET, "fresh")}
        batch["exists"] = np.arange(options.rollout) < valid[:, None]
        return batch
    if context_class(options.context).trained_now:
        batch |= {NOW: batch[TARGET], "valid": np.arange(options.rollout) < valid[:, None]}
    points = prediction_points(
        valid, options.rollout, options.predict_every, options.random_points, (seed, update), slab.own, slab.total
    )
    if options.at_targets:
        points = np.concatenate([points, tables.arrivals(walked.offset, valid)[:, None]], axis=1)
    query, y, exists = tables.look_up(walked.offset[:, None] + points)
    batch |= {f"query.{name}": values for name, values in query.items()}
    batch |= {TARGET: y, "exists": exists, "points": points}
    return batch


def once_each(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The different contexts of a batch, before they are encoded, and which one each target has."""
    windows = {name: values for name, values in batch.items() if name.startswith("query.")}
    different, which = distinct(windows, batch["exists"].ndim)
    return {**batch, **different, "which": which}
