"""Which rollouts are trained: all that a walker passes, or of each stretch one, chosen by a priority.

On its way through a stretch of many rollouts a walker only carries its state on, without gradients. Then one rollout of
the stretch is drawn, with a chance q by how rare its inputs are or by how much the state changed in it, and its loss is
weighted by 1 / (S q), S being the number of rollouts in a stretch. So the expected gradient is that of training on all
rollouts (divided by S), at the cost of one: where nothing happens, hardly anything is spent.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stores.slab import Slab

from .. import randomness
from ..memory.cells import State, boundaries, reset
from ..options.memory_options import TrainMemoryOptions
from ..predictor.predictor import MemoryModel
from .rarity import LEAST, Rarity


@dataclass(frozen=True)
class Walked:
    """The rollout of every slot that is trained."""

    arrays: dict[str, np.ndarray]  # (B, r, *row)
    offset: np.ndarray  # (B,) step of the episode at which it begins
    valid: np.ndarray  # (B,) how many of its steps exist
    fresh: np.ndarray  # (B,) begins at the start of an episode
    weight: np.ndarray | None = None  # (B,) of its loss; None: all the same


def every_rollout(slab: Slab) -> Walked:
    return Walked(slab.window(), slab.offset.copy(), slab.valid(), slab.fresh.copy())


def one_of_a_stretch(
    slab: Slab,
    model: MemoryModel,
    state: State,
    options: TrainMemoryOptions,
    rarity: Rarity | None,
    names: tuple[str, ...],
    key: tuple[int, int],
) -> tuple[Walked, State, State]:
    """The drawn rollouts, the states in which they begin, and those behind the stretches.

    Slots that only read starts of episodes have the first rollout. What is drawn is a pure function of key, (seed,
    update), of which slot it is, and of what the walker saw.
    """
    r, size = options.rollout, options.stretch
    window, valid = slab.window(), slab.valid()
    walkers = int(slab.walks.sum())
    with torch.no_grad():
        device = state[0].device
        state = reset(state, torch.from_numpy(slab.fresh).to(device))
        inputs = {name: torch.from_numpy(window[name][:walkers]).to(device) for name in model.inputs.names}
        begins, after = boundaries(model.memory, model.inputs(inputs), tuple(p[:walkers] for p in state), r)
    exists = np.arange(size) * r < valid[:walkers, None]  # (W, S)
    if rarity is not None:
        rollouts = {n: window[n][:walkers].reshape(walkers * size, r, *window[n].shape[2:]) for n in names}
        priority = rarity.chance(rollouts).reshape(walkers, size)
    else:
        priority = _changes(begins, after)
    chosen = np.zeros(len(valid), np.int64)
    weight = np.ones(len(valid), np.float32)
    chosen[:walkers], weight[:walkers] = draw(priority * exists, key, slab.own[:walkers], slab.total)
    steps = np.minimum(chosen[:, None] * r + np.arange(r), valid[:, None] - 1)  # past its end: its last step
    rows = np.arange(len(valid))[:, None]
    walked = Walked(
        {name: values[rows, steps] for name, values in window.items()},
        slab.offset + chosen * r,
        np.minimum(valid - chosen * r, r),
        slab.fresh & (chosen == 0),
        weight,
    )
    which = torch.from_numpy(chosen[:walkers]).to(device)
    places = torch.arange(walkers, device=device)
    begin = tuple(
        torch.cat([parts[places, which], whole[walkers:]]) for parts, whole in zip(begins, state, strict=True)
    )
    end = tuple(torch.cat([part, whole[walkers:]]) for part, whole in zip(after, state, strict=True))
    return walked, begin, end


def draw(priority: np.ndarray, key: tuple[int, int], own: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each row of priorities (W, S) one place, drawn in proportion to it, and 1 / (S q) for it: (W,), (W,)."""
    share = priority.cumsum(1)
    rng = randomness.stream(key[0], randomness.STRETCH, key[1])
    wanted = rng.random(total)[own] * share[:, -1]
    chosen = np.minimum((share <= wanted[:, None]).sum(1), priority.shape[1] - 1)
    q = priority[np.arange(len(chosen)), chosen] / share[:, -1]
    return chosen, (1 / (priority.shape[1] * q)).astype(np.float32)


def _changes(begins: tuple[Tensor, ...], after: State) -> np.ndarray:
    """How far the state moved in each rollout, against the largest move of any: (W, S), at least LEAST."""
    moved = torch.zeros(begins[0].shape[:2], device=begins[0].device)
    for parts, end in zip(begins, after, strict=True):
        moved += (torch.cat([parts[:, 1:], end.unsqueeze(1)], 1) - parts).square().sum(-1)
    distance = moved.sqrt()
    return (distance / distance.max().clamp(min=1e-12)).clamp(min=LEAST).cpu().numpy().astype(np.float64)
