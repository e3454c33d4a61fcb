"""Memory cells g_theta: m_t = g(x_t, m_{t-1}).

A cell is a module with `size` (of m_t), `initial(batch)` -> state and `forward(x, state)` -> (m, state), where x is
(B, r, F), m is (B, r, size), and a state is a tuple of tensors (B, n), zeros at an episode's start. Add one to CELLS
to plug it in. If it has prepared(), agents act with that: a faster single step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], tuple[Tensor, State]]  # x (N, F), state -> m (N, size), state


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


def horizon_bias(size: int, horizon: int) -> Tensor:
    """Gate biases log U(1, horizon): units that keep their contents for one step up to the whole episode.

    Only the forget side: a negative input-gate bias, as in the full chrono initialisation, made T-Maze harder.
    """
    return torch.log(1 + torch.rand(size) * (max(horizon, 2) - 1))


class _Recurrent(nn.Module):
    """A torch recurrence behind the Cell protocol: an optional ReLU layer, then one or more recurrent layers.

    A state has the parts of torch's (an LSTM's h and c), each (B, layers * size).
    """

    kind: type[nn.LSTM] | type[nn.GRU]
    parts: int

    def __init__(self, inputs: int, shape: Shape, horizon: int) -> None:
        super().__init__()
        self.size, self.layers = shape.size, shape.layers
        self.embedding = nn.Sequential(nn.Linear(inputs, shape.embedding), nn.ReLU()) if shape.embedding else None
        dropout = shape.dropout if shape.layers > 1 else 0.0
        features = shape.embedding or inputs
        self.cell = self.kind(features, shape.size, shape.layers, batch_first=True, dropout=dropout)
        biases = dict(self.cell.named_parameters())
        with torch.no_grad():
            for layer in range(shape.layers):  # the second gate: an LSTM's forget gate, a GRU's update gate (1 keeps)
                biases[f"bias_hh_l{layer}"].zero_()
                biases[f"bias_ih_l{layer}"][shape.size : 2 * shape.size] = horizon_bias(shape.size, horizon)
            if shape.input_scale is not None:
                biases["weight_ih_l0"].normal_(0, shape.input_scale)

    def initial(self, batch: int) -> State:
        zeros = next(self.parameters()).new_zeros
        return tuple(zeros(batch, self.layers * self.size) for _ in range(self.parts))

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[1] == 1 and self.layers == 1 and not torch.is_grad_enabled():
            m, state = self.prepared()(x.squeeze(1), state)  # acting: a third of the time of a sequence of one
            return m.unsqueeze(1), state
        if self.embedding is not None:
            x = self.embedding(x)
        m, after = self.cell(x, self._stacked(state))
        after = after if isinstance(after, tuple) else (after,)
        return m, tuple(part.transpose(0, 1).flatten(1) for part in after)

    def _stacked(self, state: State) -> State | Tensor:
        """As torch wants it: (layers, B, size)."""
        parts = tuple(p.unflatten(1, (self.layers, self.size)).transpose(0, 1).contiguous() for p in state)
        return parts if self.parts > 1 else parts[0]

    def prepared(self) -> Step:
        """A single step, for many calls with the same weights."""
        if self.layers > 1:

            def steps(x: Tensor, state: State) -> tuple[Tensor, State]:
                m, state = self(x.unsqueeze(1), state)
                return m.squeeze(1), state

            return steps
        single, embedding = self._single_step(), self.embedding
        if embedding is None:
            return single
        return lambda x, state: single(embedding(x), state)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        cell = self.cell
        return cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0  # type: ignore[return-value]

    def _single_step(self) -> Step:
        raise NotImplementedError


class LSTMMemory(_Recurrent):
    kind, parts = nn.LSTM, 2

    def _single_step(self) -> Step:
        weights = self._weights()

        def call(x: Tensor, state: State) -> tuple[Tensor, State]:
            state = torch.lstm_cell(x, state, *weights)
            return state[0], state

        return call


class GRUMemory(_Recurrent):
    kind, parts = nn.GRU, 1

    def _single_step(self) -> Step:
        weights = self._weights()

        def call(x: Tensor, state: State) -> tuple[Tensor, State]:
            h = torch.gru_cell(x, state[0], *weights)
            return h, (h,)

        return call


CELLS: dict[str, type[LSTMMemory] | type[GRUMemory]] = {"lstm": LSTMMemory, "gru": GRUMemory}


def reset(state: State, fresh: Tensor) -> State:
    """Zero the state of slots (B,) that begin an episode."""
    keep = (~fresh).unsqueeze(-1)
    return tuple(part * keep for part in state)
