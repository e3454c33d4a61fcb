"""Memory cells g_theta: m_t = g(x_t, m_{t-1}).

A cell is a module with `size` (of m_t), `initial(batch)` -> state and `forward(x, state)` -> (m, state), where x is
(B, r, F), m is (B, r, size), and a state is a tuple of tensors (B, n), zeros at an episode's start. Add one to CELLS
to plug it in. If it has prepared(), agents act with that: a faster single step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn

from .scan import WALK, LinearRecurrence, scan_
from .standard import Standard

PIECE = 1 << 18  # numbers that a linear memory computes at a time without gradients: what stays in a CPU's cache

DEAF = 0.03  # how much a forget gate hears of the inputs at first: the door opens, the room is not emptied

USUAL = 0.35  # what usual inputs, which are about 1 each, add up to before a gate

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], tuple[Tensor, State]]  # x (N, F), state -> m (N, size), state


def prepared(cell: Any) -> Step:
    """A single step of any cell, for many calls with the same weights: its own one, if it has one."""
    step: Step = cell.prepared() if hasattr(cell, "prepared") else _short_walk(cell)
    return step


def _short_walk(cell: Any) -> Step:
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


class RecurrentMemory(nn.Module):
    """A torch LSTM or GRU behind the Cell protocol: an optional ReLU layer, then one or more recurrent layers.

    A state has the parts of torch's (an LSTM's h and c), each (B, layers * size).
    """

    def __init__(self, inputs: int, shape: Shape, horizon: int, kind: type[nn.LSTM] | type[nn.GRU] = nn.LSTM) -> None:
        super().__init__()
        self.size, self.layers = shape.size, shape.layers
        self.standard = Standard(inputs) if shape.standard else None
        self.embedding = nn.Sequential(nn.Linear(inputs, shape.embedding), nn.ReLU()) if shape.embedding else None
        dropout = shape.dropout if shape.layers > 1 else 0.0
        features = shape.embedding or inputs
        self.cell = kind(features, shape.size, shape.layers, batch_first=True, dropout=dropout)
        weights = dict(self.cell.named_parameters())
        with torch.no_grad():
            for layer in range(shape.layers):  # the second gate: an LSTM's forget gate, a GRU's update gate (1 keeps)
                weights[f"bias_hh_l{layer}"].zero_()
                bias, keep = weights[f"bias_ih_l{layer}"], horizon_bias(shape.size, horizon)
                bias[shape.size : 2 * shape.size] = keep
                if shape.chrono:
                    bias[: shape.size] = -keep
            if shape.input_scale is not None or shape.standard:
                usual = USUAL if shape.closed else 1.0
                weights["weight_ih_l0"].normal_(0, shape.input_scale or usual * features**-0.5)
            if shape.closed and kind is nn.LSTM:
                gates = shape.size, 2 * shape.size
                weights["bias_ih_l0"][: gates[0]] = -weights["bias_ih_l0"][gates[0] : gates[1]]
                weights["weight_ih_l0"][gates[0] : gates[1]] *= DEAF

    def initial(self, batch: int) -> State:
        zeros = next(self.parameters()).new_zeros
        return tuple(zeros(batch, self.layers * self.size) for _ in range(2 if isinstance(self.cell, nn.LSTM) else 1))

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[1] == 1 and self.layers == 1 and not torch.is_grad_enabled():
            m, state = self.prepared()(x.squeeze(1), state)  # acting: a third of the time of a sequence of one
            return m.unsqueeze(1), state
        x = self._heard(x)
        # torch wants (layers, B, size)
        parts = tuple(p.unflatten(1, (self.layers, self.size)).transpose(0, 1).contiguous() for p in state)
        m, after = self.cell(x, parts if isinstance(self.cell, nn.LSTM) else parts[0])
        after = after if isinstance(after, tuple) else (after,)
        return m, tuple(part.transpose(0, 1).flatten(1) for part in after)

    def _heard(self, x: Tensor) -> Tensor:
        x = x if self.standard is None else self.standard(x)
        return x if self.embedding is None else self.embedding(x)

    def prepared(self) -> Step:
        """A single step, for many calls with the same weights."""
        if self.layers > 1:
            return _short_walk(self)
        cell = self.cell
        weights: Any = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0
        is_lstm = isinstance(cell, nn.LSTM)

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            x = self._heard(x)
            state = torch.lstm_cell(x, state, *weights) if is_lstm else (torch.gru_cell(x, state[0], *weights),)
            return state[0], state

        return step


class LinearLayer(nn.Module):
    """One layer. Its gates begin as sigmoid(b (w x - 1)): b is the log of a horizon drawn per unit, w is random.

    So most inputs leave a unit alone for about its horizon, and some units open for a few of them only. A sum of noise
    over thousands of steps would drown what is to be kept, and without recurrent weights nothing else can hold it: with
    torch's initial weights T-Maze-1000 was not solved in 7,500 updates, with these in 1,750 (one seed each).
    """

    def __init__(self, inputs: int, size: int, horizon: int, scale: float) -> None:
        super().__init__()
        self.gate, self.candidate = nn.Linear(inputs, size), nn.Linear(inputs, size)
        with torch.no_grad():
            steepness = horizon_bias(size, horizon)
            self.gate.bias.copy_(-steepness)
            self.gate.weight.normal_(0, scale).mul_(steepness.unsqueeze(-1))

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        """x (B, T, F), h_0 (B, H) -> h (B, T, H)."""
        if torch.is_grad_enabled():
            logits = self.gate(x)
            h: Tensor = LinearRecurrence.apply(
                torch.sigmoid(-logits), torch.sigmoid(logits) * self.candidate(x), before
            )
            return h
        found = x.new_empty(*x.shape[:2], before.shape[-1])
        steps = max(WALK, PIECE // max(1, before.numel()))
        for part, out in zip(x.split(steps, 1), found.split(steps, 1), strict=True):
            z = torch.sigmoid_(self.gate(part))
            out.copy_(scan_(1 - z, self.candidate(part).mul_(z), before))
            before = out[:, -1]
        return found

    def step(self, x: Tensor, before: Tensor) -> Tensor:
        return torch.lerp(before, self.candidate(x), torch.sigmoid(self.gate(x)))


class LinearMemory(nn.Module):
    """A memory without recurrent weights (minGRU; Feng et al. 2024, "Were RNNs all we needed?").

    h_t = (1 - z_t) h_{t-1} + z_t c_t per unit, gates z and candidates c from x_t alone, so that thousands of steps are
    computed at once. What makes it quick is what it gives up: a gate cannot see the state, so nothing within a layer
    can count or take turns; a second layer, whose gates see the first one's states, can. An LRU was left aside: its
    decays do not depend on the input, so that noise is written as readily as a hint.

    An optional ReLU layer comes first. The state is that of all layers side by side, (B, layers * size). input_scale is
    that of the first layer's gates: 1 if it is not given, which suits few inputs that are not zero at a time.
    """

    def __init__(self, inputs: int, shape: Shape, horizon: int) -> None:
        super().__init__()
        self.size = shape.size
        self.standard = Standard(inputs) if shape.standard else None
        self.embedding = nn.Sequential(nn.Linear(inputs, shape.embedding), nn.ReLU()) if shape.embedding else None
        self.dropout = nn.Dropout(shape.dropout)
        first = shape.embedding**-0.5 if shape.embedding else (0.15 * inputs**-0.5 if shape.standard else 1.0)
        layers = [LinearLayer(shape.embedding or inputs, shape.size, horizon, shape.input_scale or first)]
        layers += [LinearLayer(shape.size, shape.size, horizon, shape.size**-0.5) for _ in range(shape.layers - 1)]
        self.layers = nn.ModuleList(layers)

    def initial(self, batch: int) -> State:
        return (next(self.parameters()).new_zeros(batch, len(self.layers) * self.size),)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h = self._heard(x)
        ends = []
        for number, (layer, before) in enumerate(zip(self.layers, state[0].split(self.size, 1), strict=True)):
            h = layer(self.dropout(h) if number else h, before)
            ends.append(h[:, -1])
        return h, (torch.cat(ends, 1),)

    def _heard(self, x: Tensor) -> Tensor:
        x = x if self.standard is None else self.standard(x)
        return x if self.embedding is None else self.embedding(x)

    def prepared(self) -> Step:
        """A single step, for many calls with the same weights."""
        layers = [cast(LinearLayer, layer).step for layer in self.layers]

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            h = self._heard(x)
            after = []
            for layer, before in zip(layers, state[0].split(self.size, 1), strict=True):
                h = layer(h, before)
                after.append(h)
            return h, (torch.cat(after, 1),)

        return step


class NoMemory(nn.Module):
    """m_t = 0: what a predictor can do without any memory, to compare with."""

    nothing: Tensor

    def __init__(self, inputs: int, shape: Shape, horizon: int) -> None:
        super().__init__()
        self.size = shape.size
        self.register_buffer("nothing", torch.zeros(1, 1), persistent=False)

    def initial(self, batch: int) -> State:
        return (self.nothing.expand(batch, 1),)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return x.new_zeros(*x.shape[:2], self.size), state


CELLS: dict[str, Callable[[int, Shape, int], Any]] = {
    "lstm": partial(RecurrentMemory, kind=nn.LSTM),
    "gru": partial(RecurrentMemory, kind=nn.GRU),
    "mingru": LinearMemory,
    "none": NoMemory,
}


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
