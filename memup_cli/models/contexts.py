"""Context encoders: what the predictor knows of the target step k itself, as features c_k.

point     the query fields of step k, nothing else
window    recurrent over the last W steps up to k, from an empty state
carried   recurrent over the episode from its start: for targets whose meaning no local window shows
"""

from typing import Literal

import torch
from torch import Tensor, nn

from ..tasks.spec import TaskSpec
from .encoders import FieldEncoder
from .memory import RecurrentMemory, Shape, State

Kind = Literal["point", "window", "carried"]
SEEN = "seen"  # how many steps of a window exist: fewer than W at an episode's start


class PointContext(nn.Module):
    def __init__(self, spec: TaskSpec) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query)
        self.size = self.query.size

    def forward(self, query: dict[str, Tensor]) -> Tensor:
        """Rows of the query fields (..., *row) -> (..., size)."""
        features: Tensor = self.query(query)
        return features


class WindowContext(nn.Module):
    def __init__(self, spec: TaskSpec, shape: Shape, window: int) -> None:
        super().__init__()
        self.window = window
        self.query = FieldEncoder(spec, spec.query)
        self.encoder = RecurrentMemory(self.query.size + 1, shape, window)  # one more tells steps from padding
        self.size = shape.size

    def forward(self, windows: dict[str, Tensor]) -> Tensor:
        """Windows (N, W, *row), of which the last `seen` (N,) steps exist -> (N, size)."""
        back = torch.arange(self.window, 0, -1, device=windows[SEEN].device)
        exists = (back <= windows[SEEN].unsqueeze(-1)).unsqueeze(-1).float()  # (N, W, 1)
        x = torch.cat([self.query(windows) * exists, exists], -1)
        encoded, _ = self.encoder(x, self.encoder.initial(len(x)))
        return encoded[:, -1]


class CarriedContext(nn.Module):
    def __init__(self, spec: TaskSpec, shape: Shape, horizon: int) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query)
        self.encoder = RecurrentMemory(self.query.size, shape, horizon)
        self.size = shape.size

    def initial(self, batch: int) -> State:
        return self.encoder.initial(batch)

    def forward(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """Steps (B, r, *row) -> c along them (B, r, size), and the state after."""
        c, state = self.encoder(self.query(arrays), state)
        return c, state


Context = PointContext | WindowContext | CarriedContext


def build_context(spec: TaskSpec, kind: Kind, shape: Shape, window: int, horizon: int) -> Context:
    if kind == "window":
        return WindowContext(spec, shape, window)
    return CarriedContext(spec, shape, horizon) if kind == "carried" else PointContext(spec)
