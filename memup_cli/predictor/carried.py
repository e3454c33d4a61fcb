"""The context of everything up to k: recurrent over the episode from its start, for what no local window shows."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stores.layout import Field

from ..memory.cells import Shape, State
from ..memory.encoders import FieldEncoder
from ..memory.recurrent import RecurrentMemory
from ..streaming.reading import ReadEpisode
from ..tasks.spec import TaskSpec
from .contexts import Rows

CONTEXT = "context"  # computed beforehand: the encoder's state at the step


class CarriedContext(nn.Module):
    takes: ClassVar[tuple[str, ...]] = ("context_hidden",)
    because, before = "goes back to the start", 0
    alone, from_start, trained_now, once, images = False, True, True, False, True

    def __init__(self, spec: TaskSpec, shape: Shape, window: int, horizon: int, units: bool) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query, units=units)
        self.encoder = RecurrentMemory(self.query.size, shape, horizon)
        self.size = shape.size

    @staticmethod
    def kept(spec: TaskSpec, window: int, size: int) -> tuple[Field, ...]:
        return (Field(CONTEXT, "float32", (size,)),)

    @staticmethod
    def rows(spec: TaskSpec, window: int, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> Rows:
        return {}  # only the model can compute what is kept

    def of_episode(self, arrays: Rows, c: Tensor, steps: np.ndarray) -> Rows:
        return {CONTEXT: c[torch.from_numpy(steps).to(c.device)].cpu().numpy()}

    def forward(self, kept: dict[str, Tensor]) -> Tensor:
        return kept[CONTEXT]

    def initial(self, batch: int) -> State:
        return self.encoder.initial(batch)

    def along(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        c, state = self.encoder(self.query(arrays), state)
        return c, state
