"""Memory cells g_theta: m_t = g(x_t, m_{t-1}).

A cell is a module with `size` (of m_t), `initial(batch)` -> state and `forward(x, state)` -> (m, state), where x is
(B, r, F), m is (B, r, size), and a state is a tuple of tensors (B, n), zeros at an episode's start. A line in
registries.py plugs it in. If it has prepared(), agents act with that: a faster single step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ..registries import CELLS

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], tuple[Tensor, State]]  # x (N, F), state -> m (N, size), state


def prepared(cell: Any) -> Step:
    """A single step of any cell, for many calls with the same weights: its own one, if it has one."""
    step: Step = cell.prepared() if hasattr(cell, "prepared") else short_walk(cell)
    return step


def short_walk(cell: Any) -> Step:
    """A sequence of one step."""

    def step(x: Tensor, state: State) -> tuple[Tensor, State]:
        m, state = cell(x.unsqueeze(1), state)
        return m.squeeze(1), state

    return step


class Cell(Protocol):
    size: int

    def initial(self, batch: int) -> State: ...

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]: ...


@dataclass(frozen=True)
class Shape:
    """What a recurrent encoder is made of."""

    size: int
    layers: int = 1
    embedding: int = 0  # units of a ReLU layer before the recurrent ones; 0: none
    dropout: float = 0.0
    input_scale: float | None = None  # standard deviation of the input weights; None: torch's, about 1 / sqrt(size)
    chrono: bool = False  # an LSTM's input gates open as seldom as its forget gates close
    standard: bool = False  # inputs in units of how much they vary
    closed: bool = False  # gates begin closed to all but loud inputs


def horizon_bias(size: int, horizon: int) -> Tensor:
    """Gate biases log U(1, horizon): units that keep their contents for one step up to the whole episode.

    Only the forget side: a negative input-gate bias, as in the full chrono initialisation (Tallec and Ollivier 2018),
    made T-Maze harder with gradients through a few steps. Through whole sequences it helps: what comes in at every step
    would otherwise pile up in the units that keep it.
    """
    return torch.log(1 + torch.rand(size) * (max(horizon, 2) - 1))


def build_cell(name: str, inputs: int, shape: Shape, horizon: int) -> Any:
    """A Cell that is a torch module. horizon: how many steps an untrained one may keep something for."""
    return CELLS.load(name)(inputs, shape, horizon)


def boundaries(cell: Cell, x: Tensor, state: State, every: int) -> tuple[State, State]:
    """Walk through x (B, n * every, F): the states before each `every` steps, parts (B, n, ...), and the last one."""
    before = []
    for start in range(0, x.shape[1], every):
        before.append(state)
        _, state = cell(x[:, start : start + every], state)
    return tuple(torch.stack(parts, 1) for parts in zip(*before, strict=True)), state


def reset(state: State, fresh: Tensor) -> State:
    """Zero the state of slots (B,) that begin an episode."""
    keep = (~fresh).unsqueeze(-1)
    return tuple(part * keep for part in state)
