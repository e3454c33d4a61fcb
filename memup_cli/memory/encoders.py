"""Stored arrays -> float features: class numbers become one-hot rows, images features, all else (scaled) floats."""

import itertools
import math

import numpy as np
import torch
from torch import Tensor, nn

from ..streaming.moments import Moments
from ..tasks.spec import TaskSpec, is_seen
from .images import SIZE, ImageEncoder
from .standard import Standard, Units

AS_IT_IS = {"mean": [0.0], "sd": [1.0], "kurtosis": [1.0]}


class FieldEncoder(nn.Module):
    """Concatenates some fields of a step, in the order given. A class number out of range gives a row of zeros.

    Images go through convolutions, which are trained with whatever is on top; with `flat` they stay numbers. With
    `standard` their channels are in units of how much these vary; see standard.py. With `units` numbers of an
    extraordinary size are in units of how far they go, so that it does not matter in what they were measured.
    """

    def __init__(
        self, spec: TaskSpec, names: tuple[str, ...], flat: bool = False, standard: bool = False, units: bool = False
    ) -> None:
        super().__init__()
        fields = {f.name: f for f in spec.fields}
        self.names = names
        self.classes: dict[str, int] = {}
        self.ranks: dict[str, int] = {}
        self.scales: dict[str, float] = {}
        self.counts: dict[str, int] = {}  # numbers of a row
        self.images = nn.ModuleDict()
        self.size = 0
        for name in names:
            source = spec.source(name)
            self.ranks[name] = len(fields[source].shape)
            if counts := spec.counts(source):
                self.classes[name] = sum(counts)
                self.size += sum(counts)
                numbers = torch.cat([torch.arange(count) for count in counts])
                self.register_buffer(f"numbers_{name}", numbers, persistent=False)
                if self.ranks[name]:  # which number of a row each class is of
                    whose = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
                    self.register_buffer(f"whose_{name}", whose, persistent=False)
            elif is_seen(fields[source]) and not flat:
                self.images[name] = ImageEncoder(fields[source].shape, standard)
                self.size += SIZE
            else:
                self.scales[name] = spec.scale.get(source, 1.0)
                self.counts[name] = math.prod(fields[source].shape)
                self.size += self.counts[name]
        self.units = Units(self.size) if units and self.scales else None

    def tell_units(self, found: Moments) -> None:
        """How far the numbers of each field go."""
        if self.units is not None:
            self.units.tell(*self.moments({**found, **dict.fromkeys((*self.classes, *self.images), AS_IT_IS)}))

    def tell_units_of(self, rows: dict[str, np.ndarray]) -> None:
        """The same, by a sample of rows (N, *row) of each field."""
        if self.units is not None:
            self.tell_units({name: row_moments(rows[name]) for name in self.scales})

    def moments(self, found: Moments) -> tuple[Tensor, ...]:
        """Mean, spread and kurtosis of each feature (size,), of what was found of each field.

        What comes from images stays as it is; their channels are told theirs.
        """
        moments = []
        for name in self.names:
            own = [torch.tensor(found[name][which], dtype=torch.float64) for which in ("mean", "sd", "kurtosis")]
            if name in self.images:
                standard = self.images[name].standard
                if isinstance(standard, Standard):
                    standard.tell(*own)
                own = [torch.zeros(SIZE), torch.ones(SIZE), torch.ones(SIZE)]
            elif name in self.scales:
                rows = self.counts[name] // len(own[0])  # of a small image, each pixel has its channels
                mean, sd, kurtosis = (each.repeat(rows) for each in own)
                own = [self.scales[name] * mean, self.scales[name] * sd, kurtosis]
            elif found[name] is AS_IT_IS:
                own = [each.repeat(self.classes[name]) for each in own]
            moments.append(own)
        return tuple(torch.cat(each) for each in zip(*moments, strict=True))

    def forward(self, arrays: dict[str, Tensor]) -> Tensor:
        parts = []
        for name in self.names:
            values = arrays[name]
            if name in self.classes:
                numbers, rank = getattr(self, f"numbers_{name}"), self.ranks[name]
                values = values.flatten(-rank)[..., getattr(self, f"whose_{name}")] if rank else values.unsqueeze(-1)
                parts.append((values.long() == numbers).float())  # (..., classes)
            elif name in self.images:
                parts.append(self.images[name](values))  # (..., SIZE)
            else:
                values = values.float()
                if self.scales[name] != 1:
                    values = values * self.scales[name]
                rank = self.ranks[name]
                parts.append(values.flatten(-rank) if rank else values.unsqueeze(-1))
        x = torch.cat(parts, -1)  # (..., size)
        return x if self.units is None else self.units(x)


def mlp(inputs: int, hidden: int, outputs: int, layers: int = 2) -> nn.Sequential:
    """`layers` hidden ReLU layers and a linear one."""
    sizes = [inputs] + [hidden] * layers
    parts: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(hidden, outputs))


def row_moments(rows: np.ndarray) -> dict[str, list[float]]:
    """Of each number of some rows (N, *row)."""
    x = rows.reshape(len(rows), -1).astype(np.float64)
    mean, sd = x.mean(0), x.std(0)
    varies = sd > 1e-6 * np.abs(mean)
    z = (x - mean) / np.where(varies, sd, 1)
    kurtosis = np.where(varies, (z**4).mean(0), 1)
    return {"mean": mean.tolist(), "sd": np.where(varies, sd, 0).tolist(), "kurtosis": kurtosis.tolist()}
