"""Memory cells g_theta: m_t = g(x_t, m_{t-1}).

A cell is a module with `size` (of m_t), `initial(batch)` -> state and `forward(x, state)` -> (m, state), where x is
(B, r, F), m is (B, r, size), and a state is a tuple of tensors with leading dimension B. Add one to CELLS to plug it
in. If it has prepared(), agents act with that: a faster single step.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], tuple[Tensor, State]]  # x (N, F), state -> m (N, size), state


class Cell(Protocol):
    size: int

    def initial(self, batch: int) -> State: ...

    def __call__(self, x: Tensor, state: State) -> tuple[Tensor, State]: ...


def horizon_bias(size: int, horizon: int) -> Tensor:
    """Gate biases log U(1, horizon): units that keep their contents for one step up to the whole episode.

    Only the forget side: a negative input-gate bias, as in the full chrono initialisation, made T-Maze harder.
    """
    return torch.log(1 + torch.rand(size) * (max(horizon, 2) - 1))


def _remember(cell: nn.RNNBase, size: int, horizon: int) -> None:
    """Bias the second gate of a torch cell (an LSTM's forget gate, a GRU's update gate: 1 keeps) to the horizon."""
    biases = dict(cell.named_parameters())
    with torch.no_grad():
        biases["bias_hh_l0"].zero_()
        biases["bias_ih_l0"][size : 2 * size] = horizon_bias(size, horizon)


def _weights(cell: nn.RNNBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return cell.weight_ih_l0, cell.weight_hh_l0, cell.bias_ih_l0, cell.bias_hh_l0  # type: ignore[return-value]


class LSTMMemory(nn.Module):
    def __init__(self, inputs: int, size: int, horizon: int) -> None:
        super().__init__()
        self.size = size
        self.lstm = nn.LSTM(inputs, size, batch_first=True)
        _remember(self.lstm, size, horizon)

    def initial(self, batch: int) -> State:
        zeros = next(self.parameters()).new_zeros(batch, self.size)
        return zeros, zeros.clone()

    def prepared(self) -> Step:
        """A single step, for many calls with the same weights."""
        weights = _weights(self.lstm)

        def call(x: Tensor, state: State) -> tuple[Tensor, State]:
            state = torch.lstm_cell(x, state, *weights)
            return state[0], state

        return call

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[1] == 1 and not torch.is_grad_enabled():  # acting: a third of the time of a sequence of one
            m, state = self.prepared()(x.squeeze(1), state)
            return m.unsqueeze(1), state
        h, c = state
        m, (h, c) = self.lstm(x, (h.unsqueeze(0), c.unsqueeze(0)))
        return m, (h.squeeze(0), c.squeeze(0))


class GRUMemory(nn.Module):
    def __init__(self, inputs: int, size: int, horizon: int) -> None:
        super().__init__()
        self.size = size
        self.gru = nn.GRU(inputs, size, batch_first=True)
        _remember(self.gru, size, horizon)

    def initial(self, batch: int) -> State:
        return (next(self.parameters()).new_zeros(batch, self.size),)

    def prepared(self) -> Step:
        """A single step, for many calls with the same weights."""
        weights = _weights(self.gru)

        def call(x: Tensor, state: State) -> tuple[Tensor, State]:
            h = torch.gru_cell(x, state[0], *weights)
            return h, (h,)

        return call

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        if x.shape[1] == 1 and not torch.is_grad_enabled():
            m, state = self.prepared()(x.squeeze(1), state)
            return m.unsqueeze(1), state
        m, h = self.gru(x, state[0].unsqueeze(0))
        return m, (h.squeeze(0),)


CELLS: dict[str, type[LSTMMemory] | type[GRUMemory]] = {"lstm": LSTMMemory, "gru": GRUMemory}


def reset(state: State, fresh: Tensor) -> State:
    """Zero the state of slots (B,) that begin an episode."""
    keep = (~fresh).unsqueeze(-1)
    return tuple(part * keep for part in state)
