"""Torch's LSTM and GRU as memory cells."""

from typing import Any

import torch
from torch import Tensor, nn

from .cells import Shape, State, Step, horizon_bias, short_walk
from .standard import Standard

DEAF = 0.03  # how much a forget gate hears of the inputs at first: the door opens, the room is not emptied

USUAL = 0.35  # what usual inputs, which are about 1 each, add up to before a gate


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
            return short_walk(self)
        cell = self.cell
        weights: Any = cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0
        is_lstm = isinstance(cell, nn.LSTM)

        def step(x: Tensor, state: State) -> tuple[Tensor, State]:
            x = self._heard(x)
            state = torch.lstm_cell(x, state, *weights) if is_lstm else (torch.gru_cell(x, state[0], *weights),)
            return state[0], state

        return step


def lstm(inputs: int, shape: Shape, horizon: int) -> RecurrentMemory:
    return RecurrentMemory(inputs, shape, horizon, nn.LSTM)


def gru(inputs: int, shape: Shape, horizon: int) -> RecurrentMemory:
    return RecurrentMemory(inputs, shape, horizon, nn.GRU)
