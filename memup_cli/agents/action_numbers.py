"""Actions of several class numbers: a head for each number, or every combination of them by a number of its own."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

IMPOSSIBLE = -1e9  # the score of a class that there is not


class Heads(nn.Module):
    """Scores of the classes of several numbers, one after the other (..., sum of counts), number by number."""

    places: Tensor | None

    def __init__(self, counts: tuple[int, ...]) -> None:
        super().__init__()
        self.count, self.most = len(counts), max(counts)
        ends = torch.tensor(counts).cumsum(0)
        ahead = torch.arange(self.most)
        places = torch.stack(
            [torch.where(ahead < n, end - n + ahead, ends[-1]) for n, end in zip(counts, ends, strict=True)]
        )
        self.register_buffer("places", None if len(set(counts)) == 1 else places, persistent=False)

    def forward(self, out: Tensor) -> Tensor:
        """(..., count, most); where a number has fewer classes, the others are as good as impossible."""
        if self.places is None:
            return out.unflatten(-1, (self.count, self.most))
        return F.pad(out, (0, 1), value=IMPOSSIBLE)[..., self.places]


class Combinations(nn.Module):
    """All actions there are, numbered."""

    rows: Tensor  # (A, *shape)
    strides: Tensor

    def __init__(self, counts: tuple[int, ...], shape: tuple[int, ...]) -> None:
        super().__init__()
        rows = torch.cartesian_prod(*(torch.arange(count) for count in counts))
        self.register_buffer("rows", rows.view(-1, *shape), persistent=False)
        strides = [math.prod(counts[i + 1 :]) for i in range(len(counts))]
        self.register_buffer("strides", torch.tensor(strides), persistent=False)

    def forward(self, action: Tensor) -> Tensor:
        """Actions (B, *shape) -> their numbers (B,)."""
        return (action.long().view(len(action), -1) * self.strides).sum(-1)
