"""The context of the step alone: the query fields of step k."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stores.layout import Field

from ..memory.cells import Shape
from ..memory.encoders import FieldEncoder
from ..streaming.reading import ReadEpisode
from ..streaming.rows import rows_at
from ..tasks.spec import TaskSpec
from .contexts import Rows


class PointContext(nn.Module):
    takes: ClassVar[tuple[str, ...]] = ()
    because, before = "is the step alone", 0
    alone, from_start, trained_now, once, images = True, False, False, False, True

    def __init__(self, spec: TaskSpec, shape: Shape, window: int, horizon: int, units: bool) -> None:
        super().__init__()
        self.query = FieldEncoder(spec, spec.query, units=units)
        self.size = self.query.size

    @staticmethod
    def kept(spec: TaskSpec, window: int, size: int) -> tuple[Field, ...]:
        return tuple(f for f in spec.fields if f.name in spec.query)

    @staticmethod
    def rows(spec: TaskSpec, window: int, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> Rows:
        return {name: rows_at(name, steps, block, length, read) for name in spec.query}

    @staticmethod
    def own(kept: dict[str, Tensor]) -> dict[str, Tensor]:
        return kept

    def of_episode(self, arrays: Rows, c: Tensor, steps: np.ndarray) -> Rows:
        return {name: arrays[name][steps] for name in self.query.names}

    def forward(self, kept: dict[str, Tensor]) -> Tensor:
        c: Tensor = self.query(kept)
        return c

    def at(self, arrays: Rows, episode: np.ndarray, place: np.ndarray, start: int, device: torch.device) -> Tensor:
        return self({name: torch.from_numpy(arrays[name][episode, place]).to(device) for name in self.query.names})
