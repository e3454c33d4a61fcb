"""The target steps that an episode can select, and what the predictor needs to know of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stores.layout import Field
from stores.slab import Read

from ..predictor.contexts import context_class
from ..streaming.reading import EpisodeReader
from ..streaming.rows import rows_at
from ..streaming.targets import TARGET, is_stored, target_field
from ..tasks.spec import TaskSpec
from .gumbel import BLOCK, SuffixTop

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Candidates:
    """The target steps that any suffix of an episode can select."""

    top: SuffixTop  # best: places in the arrays below
    steps: np.ndarray  # (M,) ascending
    query: dict[str, np.ndarray]  # (M, *row): as query_fields() says
    y: np.ndarray  # (M,)


def query_fields(spec: TaskSpec, context: str, window: int, context_size: int) -> tuple[Field, ...]:
    """What is kept per candidate, as its context has it: its query row, the window before it, or its c."""
    return context_class(context).kept(spec, window, context_size)


def gather_candidates(
    top: SuffixTop, spec: TaskSpec, gamma: float, context: str, window: int, block: int, length: int, read: Read
) -> Candidates:
    """Read the rows of the selected steps, a block of steps at a time, so that a long episode is never whole in RAM.

    Carried contexts are left out: only the model can compute them.
    """
    top, steps = compacted(top)
    query = context_class(context).rows(spec, window, steps, block, length, read)
    size = block if is_stored(spec, gamma) else BLOCK
    y = rows_at(TARGET, steps, size, length, EpisodeReader(spec, gamma, length, read, BLOCK))
    return Candidates(top, steps, query, y)


def compacted(top: SuffixTop) -> tuple[SuffixTop, np.ndarray]:
    """The same selection in terms of places among the steps that occur in it, and those steps (M,)."""
    steps = np.unique(top.best[top.best >= 0])
    return SuffixTop(top.changes, np.where(top.best >= 0, np.searchsorted(steps, top.best), -1)), steps


class TargetTables:
    """The candidates of all slots in padded arrays, so that one look-up serves the whole batch."""

    def __init__(self, slots: int, targets: int, spec: TaskSpec, query: tuple[Field, ...]) -> None:
        self._slots = np.arange(slots)
        self._changes = np.full((slots, 8), _NEVER)
        self._best = np.full((slots, 8, targets), -1)
        self._steps = np.full((slots, 8), -1)
        self._query = {f.name: np.zeros((slots, 8, *f.shape), f.numpy) for f in query}
        self._y = np.zeros((slots, 8), target_field(spec).numpy)

    def put(self, slot: int, found: Candidates) -> None:
        changes, rows = len(found.top.changes), len(found.y)
        self._changes = _widen(self._changes, changes, _NEVER)
        self._best = _widen(self._best, changes, -1)
        self._changes[slot], self._best[slot] = _NEVER, -1
        self._changes[slot, :changes], self._best[slot, :changes] = found.top.changes, found.top.best
        self._y = _widen(self._y, rows, 0)
        self._y[slot, :rows] = found.y
        self._steps = _widen(self._steps, rows, -1)
        self._steps[slot], self._steps[slot, :rows] = -1, found.steps
        for name, values in found.query.items():
            self._query[name] = _widen(self._query[name], rows, 0)
            self._query[name][slot, :rows] = values

    def look_up(self, t: np.ndarray) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Targets of prediction points t (B, P): query (B, P, K, *row), y (B, P, K), which of them exist."""
        if self._changes.shape[1] <= 256:
            first = (self._changes[:, None, :] >= t[:, :, None]).argmax(-1)  # (B, P)
        else:
            first = np.stack([np.searchsorted(row, ts) for row, ts in zip(self._changes, t, strict=True)])
        slots = self._slots[:, None]
        place = self._best[slots, first]  # (B, P, K)
        exists, place = place >= 0, np.maximum(place, 0)
        slots = slots[..., None]
        return {name: v[slots, place] for name, v in self._query.items()}, self._y[slots, place], exists

    def arrivals(self, start: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """The first candidate in each rollout (B,), counted from its start; its last step if there is none."""
        ahead = self._steps - start[:, None]
        first = np.where(ahead >= 0, ahead, _NEVER).min(1)
        return np.minimum(first, valid - 1)

    def state(self) -> dict[str, Tensor]:
        arrays = {"changes": self._changes, "best": self._best, "steps": self._steps, TARGET: self._y} | {
            f"query.{name}": values for name, values in self._query.items()
        }
        return {name: torch.from_numpy(values.copy()) for name, values in arrays.items()}

    @staticmethod
    def merged(states: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Of all processes' slots."""
        fill = {"changes": int(_NEVER), "best": -1, "steps": -1}
        return {name: interleaved([state[name] for state in states], fill.get(name, 0)) for name in states[0]}

    def load(self, tensors: dict[str, Tensor]) -> None:
        state = {name: values.cpu().numpy() for name, values in tensors.items()}
        self._changes, self._best, self._y = state["changes"], state["best"], state[TARGET]
        self._steps = state["steps"]
        self._query = {name: state[f"query.{name}"] for name in self._query}


def interleaved(parts: list[Tensor], fill: int = 0) -> Tensor:
    """Rows that processes had in turn, in one tensor again; narrower ones are filled up."""
    if len(parts) == 1:
        return parts[0]
    shape = [sum(len(p) for p in parts), max(p.shape[1] for p in parts), *parts[0].shape[2:]]
    whole = parts[0].new_full(shape, fill)
    for number, part in enumerate(parts):
        whole[number :: len(parts), : part.shape[1]] = part
    return whole


def _widen(values: np.ndarray, width: int, fill: int) -> np.ndarray:
    """Room for `width` columns, by doubling."""
    if values.shape[1] >= width:
        return values
    wider = np.full((len(values), max(width, 2 * values.shape[1]), *values.shape[2:]), fill, values.dtype)
    wider[:, : values.shape[1]] = values
    return wider


Gather = Callable[[SuffixTop, int, int, Read], Candidates]  # top, block, length, read
