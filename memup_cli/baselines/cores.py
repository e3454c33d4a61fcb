"""Recurrent cores of the reinforcement-learning baselines, behind the Cell protocol of memory.py.

Each embeds x_t with one fully connected ReLU layer and then remembers. Every part of a state is (B, n) and float, and
all zeros is the start of an episode, so `memory.reset` works on all of them. A block of r steps in one call gives the
same outputs as r calls of one step.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.cells import State
from ..memory.encoders import mlp

Aggregate = Literal["max", "sum", "avg"]


def _embedding(inputs: int, size: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, size), nn.ReLU())


class LSTMCore(nn.Module):
    """The plain recurrent policy. State: h, c."""

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.embedding = _embedding(inputs, size)
        self.lstm = nn.LSTM(size, size, batch_first=True)

    def initial(self, batch: int) -> State:
        zeros = next(self.parameters()).new_zeros(batch, self.size)
        return zeros, zeros.clone()

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        m, (h, c) = self.lstm(self.embedding(x), (h.unsqueeze(0), c.unsqueeze(0)))
        return m, (h.squeeze(0), c.squeeze(0))


def aggregate_over_time(a: Tensor, past: Tensor, count: Tensor, aggregate: Aggregate) -> Tensor:
    """M_1..M_r (B, r, n) of a (B, r, n), continuing from M_0 = past (B, n), the aggregate of count (B, 1) steps.

    Whatever the aggregate, the gradient is that of SUM: each M_t passes its own, unweighted, to past and a_1..a_t.
    """
    past, count = past.unsqueeze(1), count.unsqueeze(1)  # (B, 1, n), (B, 1, 1)
    total = past + a.cumsum(1)
    with torch.no_grad():
        if aggregate == "max":
            value = a.cummax(1).values.maximum(past.masked_fill(count == 0, -torch.inf))
        elif aggregate == "avg":
            steps = torch.arange(1, a.shape[1] + 1, dtype=count.dtype, device=a.device).unsqueeze(-1)  # (r, 1)
            value = (past * count + a.cumsum(1)) / (count + steps)
        else:
            value = total.detach()
    return value + (total - total.detach())


class AMRLCore(nn.Module):
    """AMRL (Beck et al. 2020): half of the LSTM's output is aggregated over the episode, the other half skips.

    The aggregate does not depend on the order of steps, and its straight-through gradient does not decay with time.
    State: the LSTM's h and c, the aggregate M, and how many steps it has seen (a maximum over none is not zero).
    """

    def __init__(self, inputs: int, size: int, aggregate: Aggregate) -> None:
        super().__init__()
        self.size = size
        self.aggregate = aggregate
        self.aggregated = size // 2
        self.lstm = LSTMCore(inputs, size)

    def initial(self, batch: int) -> State:
        h, c = self.lstm.initial(batch)
        return h, c, h.new_zeros(batch, self.aggregated), h.new_zeros(batch, 1)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c, past, count = state
        out, (h, c) = self.lstm(x, (h, c))
        a, skip = out.split([self.aggregated, self.size - self.aggregated], -1)
        m = aggregate_over_time(a, past, count, self.aggregate)  # (B, r, size // 2)
        return torch.cat([m, skip], -1), (h, c, m[:, -1], count + x.shape[1])


class Gate(nn.Module):
    """GRU-type gate in place of a residual sum; its bias starts it near g(x, y) = x, so the core starts Markovian."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.from_y = nn.Linear(size, 3 * size, bias=False)  # W_r, W_z, W_g
        self.from_x = nn.Linear(size, 2 * size, bias=False)  # U_r, U_z
        self.from_reset = nn.Linear(size, size, bias=False)  # U_g
        self.bias = nn.Parameter(torch.full((size,), -2.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        r_y, z_y, h_y = self.from_y(y).chunk(3, -1)
        r_x, z_x = self.from_x(x).chunk(2, -1)
        z = torch.sigmoid(z_y + z_x + self.bias)
        h = torch.tanh(h_y + self.from_reset(torch.sigmoid(r_y + r_x) * x))
        return (1 - z) * x + z * h


class GTrXLLayer(nn.Module):
    """Norm, attention, gate; norm, feed-forward, gate. ReLU before each gate, as in Parisotto et al. (2020)."""

    def __init__(self, size: int, heads: int, span: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(size)
        self.query = nn.Linear(size, size, bias=False)
        self.key_value = nn.Linear(size, 2 * size, bias=False)
        self.distance_bias = nn.Parameter(torch.zeros(heads, span))
        self.attention_out = nn.Linear(size, size)
        self.attention_gate = Gate(size)
        self.forward_norm = nn.LayerNorm(size)
        self.feed_forward = mlp(size, 4 * size, size, layers=1)
        self.forward_gate = Gate(size)

    def forward(self, x: Tensor, seen: Tensor, distance: Tensor, visible: Tensor) -> Tensor:
        """x (B, r, size) is the end of seen (B, k, size); distance (r, k) of key from query; visible (B, 1, r, k)."""
        seen = self.attention_norm(seen)
        parts = self.query(seen[:, -x.shape[1] :]), *self.key_value(seen).chunk(2, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, heads, r or k, d)
        bias = torch.where(visible, self.distance_bias[:, distance], -torch.inf)  # (B, heads, r, k)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(-2)
        y = self.attention_gate(x, F.relu(self.attention_out(attended)))
        return self.forward_gate(y, F.relu(self.feed_forward(self.forward_norm(y))))


class GTrXLCore(nn.Module):
    """Stabilised transformer: in each layer a step attends to exactly the last `span` steps, itself included.

    State: per layer its last span - 1 inputs (flattened, no gradient), and how many steps the episode has had.
    """

    def __init__(self, inputs: int, size: int, layers: int = 2, heads: int = 2, span: int = 64) -> None:
        super().__init__()
        if size % heads:
            raise ValueError(f"size {size} does not divide into {heads} heads")
        self.size = size
        self.span = span
        self.embedding = _embedding(inputs, size)
        self.layers = nn.ModuleList(GTrXLLayer(size, heads, span) for _ in range(layers))

    def initial(self, batch: int) -> State:
        new_zeros = next(self.parameters()).new_zeros
        kept = self.span - 1
        return *(new_zeros(batch, kept * self.size) for _ in self.layers), new_zeros(batch, 1)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        *memories, count = state
        steps, kept = x.shape[1], self.span - 1
        keys = torch.arange(-kept, steps, device=x.device)  # (k,): 0 is the first step of this block
        distance = keys[kept:].unsqueeze(-1) - keys  # (r, k)
        in_span = (distance >= 0) & (distance <= kept)
        in_episode = keys >= -count  # (B, k)
        visible = (in_span & in_episode.unsqueeze(1)).unsqueeze(1)  # (B, 1, r, k)
        distance = distance.clamp(0, kept)

        m = self.embedding(x)
        after = []
        for layer, memory in zip(self.layers, memories, strict=True):
            seen = torch.cat([memory.unflatten(-1, (kept, self.size)), m], 1)
            after.append(seen[:, steps:].detach().flatten(1))
            m = layer(m, seen, distance, visible)
        return m, (*after, count + steps)
