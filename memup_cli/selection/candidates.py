"""The target steps that an episode can select, and what the predictor needs to know of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from stores.layout import Field
from stores.slab import Read

from ..memory.encoders import FieldEncoder
from ..predictor.contexts import SEEN, TOTALS, Kind
from ..streaming.reading import EpisodeReader
from ..streaming.targets import TARGET, is_stored, target_field
from ..tasks.spec import TaskSpec
from .gumbel import BLOCK, SuffixTop

CONTEXT = "context"  # a context computed beforehand: the carried encoder's state at the step
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Candidates:
    """The target steps that any suffix of an episode can select."""

    top: SuffixTop  # best: places in the arrays below
    steps: np.ndarray  # (M,) ascending
    query: dict[str, np.ndarray]  # (M, *row): as query_fields() says
    y: np.ndarray  # (M,)


def query_fields(spec: TaskSpec, context: Kind, window: int, context_size: int) -> tuple[Field, ...]:
    """What is kept per candidate: its query row, the window before it, or its context."""
    if context == "carried":
        return (Field(CONTEXT, "float32", (context_size,)),)
    rows = tuple(f for f in spec.fields if f.name in spec.query)
    if context == "point":
        return rows
    if context == "totals":
        return (*rows, Field(TOTALS, "float32", (FieldEncoder(spec, spec.query).size,)))
    return (*(Field(f.name, f.dtype, (window, *f.shape)) for f in rows), Field(SEEN, "int32"))


def gather_candidates(
    top: SuffixTop, spec: TaskSpec, gamma: float, context: Kind, window: int, block: int, length: int, read: Read
) -> Candidates:
    """Read the rows of the selected steps, a block of steps at a time, so that a long episode is never whole in RAM.

    Carried contexts are left out: only the model can compute them.
    """
    top, steps = compacted(top)
    query: dict[str, np.ndarray] = {}
    if context in ("point", "totals"):
        query = {name: rows_at(name, steps, block, length, read) for name in spec.query}
    if context == "totals":
        query[TOTALS] = totals_at(FieldEncoder(spec, spec.query), steps, block, length, read)
    if context == "window":
        wanted, seen = window_steps(steps, window)
        needed, places = np.unique(wanted, return_inverse=True)
        places = places.reshape(wanted.shape)
        query = {name: rows_at(name, needed, block, length, read)[places] for name in spec.query}
        query[SEEN] = seen
    size = block if is_stored(spec, gamma) else BLOCK
    y = rows_at(TARGET, steps, size, length, EpisodeReader(spec, gamma, length, read, BLOCK))
    return Candidates(top, steps, query, y)


def compacted(top: SuffixTop) -> tuple[SuffixTop, np.ndarray]:
    """The same selection in terms of places among the steps that occur in it, and those steps (M,)."""
    steps = np.unique(top.best[top.best >= 0])
    return SuffixTop(top.changes, np.where(top.best >= 0, np.searchsorted(steps, top.best), -1)), steps


def window_steps(steps: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The last `window` steps up to each of (M,): (M, W), the first step repeated before it; how many exist (M,)."""
    wanted = steps[:, None] + np.arange(1 - window, 1)
    return np.maximum(wanted, 0), np.minimum(steps + 1, window).astype(np.int32)


def totals_at(encoder: FieldEncoder, steps: np.ndarray, block: int, length: int, read: Read) -> np.ndarray:
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


def rows_at(name: str, steps: np.ndarray, block: int, length: int, read: Read) -> np.ndarray:
    """Rows of some steps (M,) in ascending order, a block of steps at a time."""
    parts = []
    for b in np.unique(steps // block) if len(steps) else [0]:
        first = int(b) * block
        parts.append(read(name, first, min(first + block, length))[steps[steps // block == b] - first])
    return np.concatenate(parts)


def distinct(query: dict[str, np.ndarray], leading: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The different rows among query arrays with `leading` common dimensions, and which one each place has (flat).

    Windows before the same kind of event are often equal; an encoder has to see each only once.
    """
    flat = {name: values.reshape(-1, *values.shape[leading:]) for name, values in query.items()}
    count = len(next(iter(flat.values())))
    parts = [np.ascontiguousarray(v).reshape(count, -1).view(np.uint8).reshape(count, -1) for v in flat.values()]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
    _, first, which = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return {name: values[first] for name, values in flat.items()}, which.ravel()


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
