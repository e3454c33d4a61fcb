"""A linear recurrence as a memory cell: minGRU."""

from typing import cast

import torch
from torch import Tensor, nn

from .cells import Shape, State, Step, horizon_bias
from .scan import WALK, LinearRecurrence, scan_
from .standard import Standard

PIECE = 1 << 18  # numbers that are computed at a time without gradients: what stays in a CPU's cache


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
