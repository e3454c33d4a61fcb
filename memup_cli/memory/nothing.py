"""No memory, behind the same protocol."""

import torch
from torch import Tensor, nn

from .cells import Shape, State


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
