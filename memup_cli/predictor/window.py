"""The context of the last steps: recurrent over the last W steps up to k, from an empty state."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from stores.layout import Field

from ..memory.cells import Shape
from ..memory.encoders import FieldEncoder
from ..memory.recurrent import RecurrentMemory
from ..streaming.reading import ReadEpisode
from ..streaming.rows import distinct, rows_at
from ..tasks.spec import TaskSpec
from .contexts import Rows

SEEN = "seen"  # how many steps of a window exist: fewer than W at an episode's start


class WindowContext(nn.Module):
    takes: ClassVar[tuple[str, ...]] = ("window", "context_hidden")
    because = ""
    alone, from_start, trained_now, once, images = False, False, False, True, True

    def __init__(self, spec: TaskSpec, shape: Shape, window: int, horizon: int, units: bool) -> None:
        super().__init__()
        self.window, self.before = window, window - 1
        self.query = FieldEncoder(spec, spec.query, units=units)
        self.encoder = RecurrentMemory(self.query.size + 1, shape, window)  # one more tells steps from padding
        self.size = shape.size

    @staticmethod
    def kept(spec: TaskSpec, window: int, size: int) -> tuple[Field, ...]:
        rows = (Field(f.name, f.dtype, (window, *f.shape)) for f in spec.fields if f.name in spec.query)
        return (*rows, Field(SEEN, "int32"))

    @staticmethod
    def rows(spec: TaskSpec, window: int, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> Rows:
        wanted, seen = window_steps(steps, window)
        needed, places = np.unique(wanted, return_inverse=True)
        places = places.reshape(wanted.shape)
        return {**{name: rows_at(name, needed, block, length, read)[places] for name in spec.query}, SEEN: seen}

    @staticmethod
    def own(kept: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: values[:, -1] for name, values in kept.items()}

    def of_episode(self, arrays: Rows, c: Tensor, steps: np.ndarray) -> Rows:
        wanted, seen = window_steps(steps, self.window)
        return {**{name: arrays[name][wanted] for name in self.query.names}, SEEN: seen}

    def forward(self, kept: dict[str, Tensor]) -> Tensor:
        """Windows (N, W, *row), of which the last `seen` (N,) steps exist -> (N, size)."""
        back = torch.arange(self.window, 0, -1, device=kept[SEEN].device)
        exists = (back <= kept[SEEN].unsqueeze(-1)).unsqueeze(-1).float()  # (N, W, 1)
        x = torch.cat([self.query(kept) * exists, exists], -1)
        encoded, _ = self.encoder(x, self.encoder.initial(len(x)))
        c: Tensor = encoded[:, -1]
        return c

    def at(self, arrays: Rows, episode: np.ndarray, place: np.ndarray, start: int, device: torch.device) -> Tensor:
        """Windows before the same kind of event are often equal: each different one is encoded once."""
        wanted, seen = window_steps(start + place, self.window)
        rows = {name: arrays[name][episode[:, None], np.maximum(wanted - start, 0)] for name in self.query.names}
        windows, which = distinct({**rows, SEEN: seen}, 1)
        encoded = self({name: torch.from_numpy(values).to(device) for name, values in windows.items()})
        c: Tensor = encoded[torch.from_numpy(which).to(device)]
        return c


def window_steps(steps: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The last `window` steps up to each of (M,): (M, W), the first step repeated before it; how many exist (M,)."""
    wanted = steps[:, None] + np.arange(1 - window, 1)
    return np.maximum(wanted, 0), np.minimum(steps + 1, window).astype(np.int32)
