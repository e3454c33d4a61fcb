"""One update of memory training: what it sees, its loss (eq. 5), and the optimiser step."""

import numpy as np
import torch

from stores.slab import Slab

from ..configs import TrainMemoryOptions
from ..models.memory import State, reset
from ..models.predictor import MemoryModel
from .targets import TARGET
from .windows import TargetTables, prediction_points


def rollout_loss(model: MemoryModel, tensors: dict[str, torch.Tensor], state: State) -> tuple[torch.Tensor, State]:
    """Eq. 5 over one rollout of every slot: mean -log q(y_k | m_t, x_k) over prediction points t and targets k in U_t.

    Returns the state after the rollout, detached: gradients flow through r steps and no further.
    """
    m, state = model.rollout(tensors, reset(state, tensors["fresh"]))  # (B, r, H)
    if "points" in tensors:
        m = m.gather(1, tensors["points"].unsqueeze(-1).expand(-1, -1, m.shape[-1])).unsqueeze(2)  # (B, P, 1, H)
    query = {name: tensors[f"query.{name}"] for name in model.query.names}
    each = model.losses(model.predict(m, query), tensors[TARGET])  # (B, P, K)
    weight = tensors["exists"].float()
    loss = (each * weight).sum() / weight.sum().clamp(min=1)
    return loss, tuple(part.detach() for part in state)


def optimiser_step(model: torch.nn.Module, optimiser: torch.optim.Optimizer, loss: torch.Tensor, clip: float) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimiser.step()


def next_batch(
    slab: Slab, tables: TargetTables, options: TrainMemoryOptions, seed: int, update: int
) -> dict[str, np.ndarray]:
    """Arrays of one update: the rollout, the prediction points in it (none: every step), their queries and targets."""
    batch = slab.window()
    batch["fresh"] = slab.fresh.copy()
    valid = slab.valid()
    if options.select == "current":
        batch |= {f"query.{name}": batch[name] for name in batch if name not in (TARGET, "fresh")}
        batch["exists"] = np.arange(options.rollout) < valid[:, None]
        return batch
    points = prediction_points(valid, options.rollout, options.predict_every, options.random_points, (seed, update))
    query, y, exists = tables.look_up(slab.offset[:, None] + points)
    batch |= {f"query.{name}": values for name, values in query.items()}
    batch |= {TARGET: y, "exists": exists, "points": points}
    return batch
