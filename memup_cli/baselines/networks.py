"""Supervised baselines: each predicts y_t at every step t from all it has seen up to and including step t.

A core has `initial(batch)` -> state and `forward(x, state)` -> (features (B, r, H), state), like a memory cell. The
state carries over to the next window of a truncated walk; that of the transformer is empty, so it attends only within
its window, where gtrxl also sees what its memory has of the steps before.
"""

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.cells import Shape, State
from ..memory.encoders import FieldEncoder, mlp
from ..memory.linear import LinearMemory
from ..memory.recurrent import RecurrentMemory
from ..predictor.predictor import prediction_losses
from ..registries import BASELINES
from ..tasks.spec import TaskSpec
from .cores import GTrXLCore

SPAN = 64  # steps that each layer of gtrxl attends to, itself included; no gradient flows to those before its window


def lstm_baseline(inputs: int, hidden: int, layers: int, heads: int, horizon: int) -> RecurrentMemory:
    """One fully connected ReLU layer, then LSTM layers, begun with gates for sequences of this length."""
    return RecurrentMemory(inputs, Shape(hidden, layers, embedding=hidden, chrono=True), horizon)


def mingru_baseline(inputs: int, hidden: int, layers: int, heads: int, horizon: int) -> LinearMemory:
    """The same with linear recurrences: what they make of whole sequences is computed for all steps at once."""
    return LinearMemory(inputs, Shape(hidden, layers, embedding=hidden), horizon)


def gtrxl_baseline(inputs: int, hidden: int, layers: int, heads: int, horizon: int) -> GTrXLCore:
    """The agents' gated transformer with a memory of the last steps of each layer."""
    return GTrXLCore(inputs, hidden, layers, heads, SPAN)


class ShiftedSum(torch.autograd.Function):
    """h_t = ReLU(roll(h_{t-1}, 1) + u_t) for all t; it keeps only h for the backward pass.

    A step g -> max(0, g + u), and any number of them in a row, is g -> max(A, g + S) in coordinates that turn along.
    So the time axis can be cut into blocks: A and S are made for all blocks side by side, step by step, then the state
    is handed from block to block, then max(A, g + S) gives every h. On a GPU about sqrt(T) blocks save the launches of
    T small kernels; on a CPU one block is fastest, because a step's data stay in its cache. Sums stay within a block:
    unlike the closed form S_t - min S_j over the whole sequence, this keeps its precision in float32, however long.
    The backward pass is a_t = (dL/dh_t + roll(a_{t+1}, -1)) where h_t > 0, else 0: the same, with products of masks.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, before: Tensor, size: int) -> Tensor:
        """u (B, T, H), before (B, H), steps per block -> h (B, T, H)."""
        h = _blocks(u, size).clone()  # (B, n, s, H)
        h[:, 0, 0] += before.roll(1, -1)
        total = h.clone() if h.shape[1] > 1 else None
        h[:, :, 0].relu_()
        for a, b in itertools.pairwise(range(h.shape[2])):
            h[:, :, b].add_(h[:, :, a].roll(1, -1)).relu_()
            if total is not None:
                total[:, :, b].add_(total[:, :, a].roll(1, -1))
        if total is not None:
            enters = torch.empty_like(h[:, 1:, 0])  # (B, n - 1, H): the state that enters each later block
            last = h[:, 0, -1]
            for n in range(1, h.shape[1]):
                enters[:, n - 1] = last
                last = torch.maximum(h[:, n, -1], last.roll(size, -1) + total[:, n, -1])
            for s in range(size):
                h[:, 1:, s] = torch.maximum(h[:, 1:, s], enters.roll(s + 1, -1).add_(total[:, 1:, s]))
        h = h.flatten(1, 2)[:, : u.shape[1]]
        ctx.save_for_backward(h)
        ctx.size = size
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (h,), size = ctx.saved_tensors, ctx.size
        alive = _blocks((h > 0).to(grad.dtype), size)  # (B, n, s, H); behind the end nothing is
        a = _blocks(grad, size) * alive  # dL/du from what follows within the block
        through = alive.clone() if a.shape[1] > 1 else None  # 1 while no unit on the way to the block's end was cut off
        for s in range(a.shape[2] - 2, -1, -1):
            a[:, :, s].addcmul_(a[:, :, s + 1].roll(-1, -1), alive[:, :, s])
            if through is not None:
                through[:, :, s].mul_(through[:, :, s + 1].roll(-1, -1))
        if through is not None:
            leaves = torch.empty_like(a[:, :-1, 0])  # (B, n - 1, H): what comes back from the block behind
            first = a[:, -1, 0]
            for n in range(a.shape[1] - 2, -1, -1):
                leaves[:, n] = first
                first = a[:, n, 0] + through[:, n, 0] * first.roll(-size, -1)
            for s in range(size):
                a[:, :-1, s].addcmul_(leaves.roll(s - size, -1), through[:, :-1, s])
        a = a.flatten(1, 2)[:, : grad.shape[1]]
        return a, a[:, 0].roll(-1, -1), None


def _blocks(u: Tensor, size: int) -> Tensor:
    """(B, T, H) -> (B, n, size, H), with zeros behind the end."""
    missing = -u.shape[1] % size
    return (F.pad(u, (0, 0, 0, missing)) if missing else u).unflatten(1, (-1, size))


def shifted_sum(u: Tensor, before: Tensor) -> Tensor:
    size = u.shape[1] if u.device.type == "cpu" else max(1, math.isqrt(u.shape[1]))
    return ShiftedSum.apply(u, before, size)


class SRNNBaseline(nn.Module):
    """SRNN (Rotman and Wolf 2021): h_t = ReLU(roll(h_{t-1}, 1) + f(x_t) * sigmoid(W x_t)); no recurrent weights."""

    def __init__(self, inputs: int, hidden: int, layers: int, heads: int, horizon: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.f = mlp(inputs, hidden, hidden, layers=1)
        self.gate = nn.Linear(inputs, hidden)

    def initial(self, batch: int) -> State:
        return (next(self.parameters()).new_zeros(batch, self.hidden),)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h = shifted_sum(self.f(x) * torch.sigmoid(self.gate(x)), state[0])
        return h, (h[:, -1],)


class AttentionLayer(nn.Module):
    """Pre-norm: norm, causal self-attention, sum; norm, feed-forward, sum."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.query_key_value = nn.Linear(hidden, 3 * hidden)
        self.attention_out = nn.Linear(hidden, hidden)
        self.forward_norm = nn.LayerNorm(hidden)
        self.feed_forward = mlp(hidden, 4 * hidden, hidden, layers=1)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.query_key_value(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)  # (B, heads, T, d)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + self.attention_out(attended)
        return x + self.feed_forward(self.forward_norm(x))


class TransformerBaseline(nn.Module):
    """One fully connected layer plus sinusoidal positions, counted from the window's start; attention layers."""

    def __init__(self, inputs: int, hidden: int, layers: int, heads: int, horizon: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.embedding = nn.Linear(inputs, hidden)
        self.layers = nn.ModuleList(AttentionLayer(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def initial(self, batch: int) -> State:
        return ()

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        m = self.embedding(x) + _positions(x.shape[1], self.hidden, x.device)
        for layer in self.layers:
            m = layer(m)
        return self.norm(m), state


def _positions(length: int, size: int, device: torch.device) -> Tensor:
    """sin and cos of t / 10000^(2i / size), as in Vaswani et al. (2017): (T, size)."""
    rates = torch.exp(torch.arange(0, size, 2, device=device) * (-math.log(10_000) / size))
    angles = torch.arange(length, device=device).unsqueeze(-1) * rates
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)[:, :size]


class Baseline(nn.Module):
    """A core over the memory's inputs and the rest of the query (in RL the action), a 3-layer MLP on top.

    horizon: how many steps an untrained recurrent core may keep something for.
    """

    def __init__(self, spec: TaskSpec, model: str, hidden: int, layers: int, heads: int, horizon: int) -> None:
        super().__init__()
        self.kind = spec.target_kind
        self.inputs = FieldEncoder(spec, tuple(dict.fromkeys([*spec.memory_input, *spec.query])))
        self.core = BASELINES.load(model)(self.inputs.size, hidden, layers, heads, horizon)
        self.head = mlp(hidden, hidden, spec.classes[spec.target] if self.kind == "classes" else 1)

    def initial(self, batch: int) -> State:
        state: State = self.core.initial(batch)
        return state

    def forward(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """Logits (B, r, classes) or values (B, r) for every step of a window, and the state behind it."""
        m, state = self.core(self.inputs(arrays), state)
        out = self.head(m)
        return (out if self.kind == "classes" else out.squeeze(-1)), state

    def losses(self, prediction: Tensor, y: Tensor) -> Tensor:
        return prediction_losses(self.kind, prediction, y)
