"""The networks that predict y_k from a memory state and a context: three layers on [m, c]."""

from collections.abc import Callable
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..memory.encoders import mlp


def _first_layer(memory: int, context: int, hidden: int) -> tuple[nn.Linear, nn.Linear]:
    """One linear layer on [m, c], in two parts; torch's initial weights of the whole."""
    whole = nn.Linear(memory + context, hidden)
    parts = nn.Linear(memory, hidden), nn.Linear(context, hidden, bias=False)
    with torch.no_grad():
        parts[0].bias.copy_(whole.bias)
        for part, weights in zip(parts, whole.weight.split([memory, context], 1), strict=True):
            part.weight.copy_(weights)
    return parts


Promise = Callable[[Tensor, Tensor], Tensor]  # m (N, H), the beginnings of contexts (N, C - D) -> (N, A)


def _for_choices(layer: nn.Linear, choices: Tensor, memory: nn.Linear | None = None) -> Callable[[Tensor], Tensor]:
    """A linear layer on contexts that end with each of some choices (A, D): (N, C - D) -> (N, A, hidden).

    What the choices give is computed once for all calls. With a layer on memory states, its sum with that one: on
    (N, H + C - D), states before contexts.
    """
    begin, end = layer.weight.detach().split([layer.in_features - choices.shape[1], choices.shape[1]], 1)
    fixed = choices @ end.t()
    if layer.bias is not None:
        fixed = fixed + layer.bias.detach()
    if memory is not None:
        begin, fixed = torch.cat([memory.weight.detach(), begin], 1), fixed + memory.bias.detach()
    begin = begin.t().contiguous()
    return lambda asked: (asked @ begin).unsqueeze(1) + fixed


def _first_output(rest: nn.Sequential) -> Callable[[Tensor], Tensor]:
    """The last layers on what comes before their first ReLU, (N, A, hidden) -> (N, A): only the first output."""
    hidden, last = cast(nn.Linear, rest[0]), cast(nn.Linear, rest[-1])
    weight, bias = hidden.weight.detach().t().contiguous(), hidden.bias.detach()
    out, offset = last.weight.detach()[0], last.bias.detach()[0]

    def call(before: Tensor) -> Tensor:
        x = torch.addmm(bias, before.relu_().flatten(0, 1), weight).relu_()
        return (x @ out).add_(offset).view(before.shape[:2])

    return call


class PlainMLP(nn.Module):
    """Three layers on [m, c]; the first in two parts: what a state gives is computed once for all its targets."""

    def __init__(self, memory: int, context: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.memory, self.context = _first_layer(memory, context, hidden)
        self.rest = mlp(hidden, hidden, outputs, layers=1)

    def forward(self, m: Tensor, c: Tensor) -> Tensor:
        out: Tensor = self.rest(F.relu(self.memory(m) + self.context(c)))
        return out

    def prepared(self, choices: Tensor) -> Promise:
        """The first output for contexts that end with each of the choices (A, D); for many calls."""
        first, last = _for_choices(self.context, choices, self.memory), _first_output(self.rest)
        return lambda m, asked: last(first(torch.cat([m, asked], 1)))


class GatedMLP(nn.Module):
    """The three layers of the plain predictor, the first one multiplied by a linear function of the context.

    The context says which part of the memory is asked for; a product picks it out where a sum must learn to.
    """

    def __init__(self, memory: int, context: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.memory, self.context = _first_layer(memory, context, hidden)
        self.gate = nn.Linear(context, hidden)
        self.rest = mlp(hidden, hidden, outputs, layers=1)

    def forward(self, m: Tensor, c: Tensor) -> Tensor:
        out: Tensor = self.rest(F.relu((self.memory(m) + self.context(c)) * self.gate(c)))
        return out

    def prepared(self, choices: Tensor) -> Promise:
        """As PlainMLP.prepared()."""
        first, last = _for_choices(self.context, choices, self.memory), _first_output(self.rest)
        gate = _for_choices(self.gate, choices)
        return lambda m, asked: last(first(torch.cat([m, asked], 1)).mul_(gate(asked)))
