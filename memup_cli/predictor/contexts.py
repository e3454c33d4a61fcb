"""Context encoders: what the predictor knows of the target step k itself, as features c_k.

point     the query fields of step k, nothing else
window    recurrent over the last W steps up to k, from an empty state
carried   recurrent over the episode from its start: for targets whose meaning no local window shows
totals    step k, and the sum of all query features up to it: how often each input came, with no recurrence to train
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from ..memory.cells import Shape, State
from ..memory.encoders import FieldEncoder, mlp
from ..memory.recurrent import RecurrentMemory
from ..tasks.spec import TaskSpec

Kind = Literal["point", "window", "carried", "totals"]
SEEN = "seen"  # how many steps of a window exist: fewer than W at an episode's start
TOTALS = "totals"  # of the query features up to a step
CLOCKS = 20  # the longest period is 2 ** 21


class PointContext(nn.Module):
    def __init__(self, spec: TaskSpec, units: bool = False) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query, units=units)
        self.size = self.query.size

    def forward(self, query: dict[str, Tensor]) -> Tensor:
        """Rows of the query fields (..., *row) -> (..., size)."""
        features: Tensor = self.query(query)
        return features


class WindowContext(nn.Module):
    def __init__(self, spec: TaskSpec, shape: Shape, window: int, units: bool = False) -> None:
        super().__init__()
        self.window = window
        self.query = FieldEncoder(spec, spec.query, units=units)
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
    def __init__(self, spec: TaskSpec, shape: Shape, horizon: int, units: bool = False) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query, units=units)
        self.encoder = RecurrentMemory(self.query.size, shape, horizon)
        self.size = shape.size

    def initial(self, batch: int) -> State:
        return self.encoder.initial(batch)

    def forward(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """Steps (B, r, *row) -> c along them (B, r, size), and the state after."""
        c, state = self.encoder(self.query(arrays), state)
        return c, state


class TotalsContext(nn.Module):
    """Each total is seen as the hands of clocks with periods 4, 8, 16, ..., so that none is too large to be told from
    the next one.

    Totals are exact whatever the weights are. All that there is to learn is what they mean, and every selected target
    teaches it; a carried encoder learns to count first, from the steps at hand.
    """

    periods: Tensor

    def __init__(self, spec: TaskSpec, size: int) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query)
        self.register_buffer("periods", 4.0 * 2.0 ** torch.arange(CLOCKS), persistent=False)
        self.encoder = nn.Sequential(mlp(self.query.size * (1 + 2 * CLOCKS), size, size, layers=1), nn.Tanh())
        self.size = size

    def initial(self, batch: int) -> State:
        return (self.periods.new_zeros(batch, self.query.size),)

    def forward(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """Steps (B, r, *row) -> c along them (B, r, size), and the totals after."""
        x = self.query(arrays)
        totals = state[0].unsqueeze(1) + x.cumsum(1)
        return self._encode(x, totals), (totals[:, -1],)

    def at(self, query: dict[str, Tensor]) -> Tensor:
        """Rows of the query fields (..., *row) with their totals (..., F) -> (..., size)."""
        return self._encode(self.query(query), query[TOTALS])

    def _encode(self, x: Tensor, totals: Tensor) -> Tensor:
        angle = (totals.unsqueeze(-1) / self.periods * (2 * math.pi)).flatten(-2)
        c: Tensor = self.encoder(torch.cat([x, angle.sin(), angle.cos()], -1))
        return c


Context = PointContext | WindowContext | CarriedContext | TotalsContext


def build_context(spec: TaskSpec, kind: Kind, shape: Shape, window: int, horizon: int, units: bool = False) -> Context:
    """units: numbers as how far they go. Totals are exact, so they are of the numbers as they are."""
    if kind == "totals":
        return TotalsContext(spec, shape.size)
    if kind == "window":
        return WindowContext(spec, shape, window, units)
    return CarriedContext(spec, shape, horizon, units) if kind == "carried" else PointContext(spec, units)
