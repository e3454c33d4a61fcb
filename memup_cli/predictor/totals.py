"""The context of how much of each input came: step k, and the sum of all query features up to it."""

import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stores.layout import Field

from ..memory.cells import Shape, State
from ..memory.encoders import FieldEncoder, mlp
from ..streaming.reading import ReadEpisode
from ..streaming.rows import rows_at
from ..tasks.spec import TaskSpec
from .contexts import Rows

TOTALS = "totals"  # of the query features up to a step
CLOCKS = 20  # the longest period is 2 ** 21


class TotalsContext(nn.Module):
    """Each total is seen as the hands of clocks with periods 4, 8, 16, ..., so that none is too large to be told from
    the next one.

    Totals are exact whatever the weights are. All that there is to learn is what they mean, and every selected target
    teaches it; a carried encoder learns to count first, from the steps at hand.
    """

    takes: ClassVar[tuple[str, ...]] = ("context_hidden",)
    because, before = "goes back to the start", 0
    alone, from_start, trained_now, once, images = False, True, False, True, False
    periods: Tensor

    def __init__(self, spec: TaskSpec, shape: Shape, window: int, horizon: int, units: bool) -> None:
        """Totals are exact, so they are of the numbers as they are, whatever their units."""
        super().__init__()
        size = shape.size
        self.query = FieldEncoder(spec, spec.query)
        self.register_buffer("periods", 4.0 * 2.0 ** torch.arange(CLOCKS), persistent=False)
        self.encoder = nn.Sequential(mlp(self.query.size * (1 + 2 * CLOCKS), size, size, layers=1), nn.Tanh())
        self.size = size

    @staticmethod
    def kept(spec: TaskSpec, window: int, size: int) -> tuple[Field, ...]:
        rows = (f for f in spec.fields if f.name in spec.query)
        return (*rows, Field(TOTALS, "float32", (FieldEncoder(spec, spec.query).size,)))

    @staticmethod
    def rows(spec: TaskSpec, window: int, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> Rows:
        rows = {name: rows_at(name, steps, block, length, read) for name in spec.query}
        return {**rows, TOTALS: totals_at(FieldEncoder(spec, spec.query), steps, block, length, read)}

    @staticmethod
    def own(kept: dict[str, Tensor]) -> dict[str, Tensor]:
        return kept

    def of_episode(self, arrays: Rows, c: Tensor, steps: np.ndarray) -> Rows:
        rows = {name: arrays[name][steps] for name in self.query.names}
        return {**rows, TOTALS: totals_at(self.query, steps, len(c), len(c), lambda n, a, b: arrays[n][a:b])}

    def forward(self, kept: dict[str, Tensor]) -> Tensor:
        return self._encode(self.query(kept), kept[TOTALS])

    def initial(self, batch: int) -> State:
        return (self.periods.new_zeros(batch, self.query.size),)

    def along(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        x = self.query(arrays)
        totals = state[0].unsqueeze(1) + x.cumsum(1)
        return self._encode(x, totals), (totals[:, -1],)

    def _encode(self, x: Tensor, totals: Tensor) -> Tensor:
        angle = (totals.unsqueeze(-1) / self.periods * (2 * math.pi)).flatten(-2)
        c: Tensor = self.encoder(torch.cat([x, angle.sin(), angle.cos()], -1))
        return c


def totals_at(encoder: FieldEncoder, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> np.ndarray:
    """Sums of an episode's features up to and with each of steps (M,), a block of steps at a time."""
    device = next(encoder.buffers(), torch.empty(0)).device
    found = np.zeros((len(steps), encoder.size), np.float32)
    total = torch.zeros(encoder.size, device=device)
    for first in range(0, int(steps.max(initial=-1)) + 1, block):
        stop = min(first + block, length)
        rows = {name: torch.from_numpy(read(name, first, stop)).to(device) for name in encoder.names}
        totals = total + encoder(rows).cumsum(0)
        here = (steps >= first) & (steps < stop)
        found[here] = totals.cpu().numpy()[steps[here] - first]
        total = totals[-1]
    return found
