"""How well the memory explains the steps that matter: y_k predicted from m_k and the query of step k."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from stores.layout import LENGTH, START
from stores.reader import Shard, Trajectories

from ..errors import BadInput
from ..models.contexts import SEEN, CarriedContext, TotalsContext, WindowContext
from ..models.predictor import MemoryModel
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .candidates import distinct, window_steps
from .targets import previous_actions, targets

SIDE_BY_SIDE = 64  # episodes: what a step of the memory costs hardly depends on how many there are
BLOCK_BYTES = 32 << 20  # of test steps held at a time
SWEEP = 512  # steps per call of the memory, at most ...
SWEEP_ROWS = 1 << 14  # ... and steps of all episodes side by side: what a network computes of one is far larger than it
CACHE_BYTES = 32 << 20  # of decoded chunks
RESAMPLES = 1000
FROM_THE_START = (CarriedContext, TotalsContext)  # contexts with a state


@dataclass(frozen=True)
class Predictions:
    """Predictions at evaluated steps, one entry each."""

    episode: np.ndarray
    step: np.ndarray
    y: np.ndarray
    error: np.ndarray  # squared error, or 1 if the class is right
    nll: np.ndarray
    spec: TaskSpec

    def metrics(self, which: np.ndarray | slice = slice(None)) -> dict[str, float]:
        """RMSE (numbers) or accuracy (classes), with the loss they were trained on; the share that is near enough."""
        error = self.error[which]
        if self.kind == "classes":
            return {"accuracy": float(error.mean()), "nll": float(self.nll[which].mean())}
        mse = float(error.mean())
        near = {} if self.spec.near is None else {"right": float((error < self.spec.near**2).mean())}
        return {"rmse": mse**0.5, "mse": mse, **near}

    @property
    def kind(self) -> str:
        return self.spec.target_kind

    @property
    def main(self) -> str:
        return "accuracy" if self.kind == "classes" else "rmse"

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """95% bootstrap interval of the main metric, resampling whole episodes."""
        rng = np.random.Generator(np.random.PCG64(seed))
        _, index = np.unique(self.episode, return_inverse=True)
        sums = np.bincount(index, self.error)
        counts = np.bincount(index)
        chosen = rng.integers(len(sums), size=(RESAMPLES, len(sums)))
        means = sums[chosen].sum(1) / counts[chosen].sum(1)
        low, high = np.quantile(means if self.kind == "classes" else np.sqrt(means), [0.025, 0.975])
        return float(low), float(high)

    def by_length(self, bins: int) -> list[dict[str, Any]]:
        """Metrics by dependency length, counted from the episode's start: `from` and `to` are both in the range."""
        edges = np.unique(np.quantile(self.step, np.linspace(0, 1, bins + 1)).astype(np.int64))
        if len(edges) == 1:
            edges = np.array([edges[0], edges[0]])
        rows = []
        for i, (low, high) in enumerate(itertools.pairwise(edges)):
            last = i == len(edges) - 2
            to = high if last else high - 1
            which = (self.step >= low) & (self.step <= to)
            if which.any():
                rows.append({"from": int(low), "to": int(to), "count": int(which.sum()), **self.metrics(which)})
        return rows

    def by_order(self) -> list[dict[str, Any]]:
        """Metrics of the first step that matters in each episode, of the second, and so on, if the task counts them."""
        if not self.spec.counted:
            return []
        order = np.lexsort((self.step, self.episode))
        _, first, counts = np.unique(self.episode[order], return_index=True, return_counts=True)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order)) - np.repeat(first, counts) + 1
        return [
            {self.spec.counted: n, "count": int((number == n).sum()), **self.metrics(number == n)}
            for n in range(1, int(number.max()) + 1)
        ]


def predict_split(
    model: MemoryModel, trajectories: Trajectories, spec: TaskSpec, gamma: float, episodes: int | None = None
) -> Predictions:
    """Sweep the memory over test episodes, many side by side, and predict at the steps that matter."""
    count = min(len(trajectories), episodes or len(trajectories))
    where = [
        (shard, row) for shard, group in trajectories.groups() for row in shard.rows(group)
    ][:count]  # fmt: skip
    where.sort(key=lambda item: int(item[1][LENGTH]))  # alike lengths together: less padding
    longest = int(where[-1][1][LENGTH])
    block, batch = block_size(trajectories, spec, longest)
    batch = min(count, batch)
    parts = []
    training = model.training
    model.eval()
    for first in range(0, count, batch):
        parts += _sweep(model, where[first : first + batch], first, spec, gamma, block)
    model.train(training)
    if not parts:
        raise BadInput(
            f"none of the {count} test episodes in {trajectories.folder} has a step that matters here; take more with "
            "--episodes or --evaluate-episodes, or collect more with --test-episodes"
        )
    episode, step, y, error, nll = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Predictions(episode, step, y, error, nll, spec)


def block_size(trajectories: Trajectories, spec: TaskSpec, longest: int) -> tuple[int, int]:
    """Steps to read at a time, and of how many episodes side by side: of many, if need be in shorter blocks."""
    row_bytes = sum(f.row_bytes for f in spec.fields) + 16
    block = min(longest, max(SWEEP, trajectories.shards[0].layout.chunk_steps))
    together = max(1, BLOCK_BYTES // (SIDE_BY_SIDE * row_bytes))
    block = min(block, max(SWEEP, together))
    return block, max(1, BLOCK_BYTES // (block * row_bytes))


def _sweep(
    model: MemoryModel, where: list[tuple[Shard, np.ndarray]], first: int, spec: TaskSpec, gamma: float, block: int
) -> list[tuple[np.ndarray, ...]]:
    read = Reader()
    ahead = spec.target_kind == "return" and gamma > 0  # only then y is more than what the step itself holds
    whole_targets = [episode_targets(read, shard, row, spec, gamma) for shard, row in where] if ahead else []
    found: list[tuple[np.ndarray, ...]] = []
    for piece in pieces(model, where, spec, block, read):
        episode, step = np.nonzero(piece.matters)
        if not len(episode):
            continue
        y = piece.target[episode, step]
        if ahead:
            y = np.array([whole_targets[e][piece.start + s] for e, s in zip(episode, step, strict=True)])
        with torch.no_grad():
            prediction = piece.predictions(model, episode, step)
            target = torch.from_numpy(y).to(prediction.device)
            nll = model.losses(prediction, target)
            error = (prediction.argmax(-1) == target).float() if spec.target_kind == "classes" else nll
        found.append((first + episode, piece.start + step, y, error.cpu().numpy(), nll.cpu().numpy()))
    return found


@dataclass(frozen=True)
class Piece:
    """The memory's states along a few steps of episodes side by side."""

    start: int  # step of the episodes
    matters: np.ndarray  # (B, n)
    target: np.ndarray  # (B, n): the stored field
    m: torch.Tensor  # (B, n, H)
    contexts: Callable[[np.ndarray, np.ndarray], torch.Tensor]  # c of (episode, step), steps counted from the start

    def predictions(self, model: MemoryModel, episode: np.ndarray, step: np.ndarray) -> torch.Tensor:
        """What the state at some steps says of these steps themselves."""
        at = torch.from_numpy(episode).to(self.m.device), torch.from_numpy(step).to(self.m.device)
        return model.predict(self.m[at], self.contexts(episode, step))


def pieces(
    model: MemoryModel, where: list[tuple[Shard, np.ndarray]], spec: TaskSpec, block: int, read: "Reader"
) -> Iterator[Piece]:
    """Walk the memory through whole episodes, with at most `block` steps of each in RAM."""
    device = next(model.parameters()).device
    lengths = np.array([int(row[LENGTH]) for _, row in where])
    state = model.memory.initial(len(where))
    carried = model.context.initial(len(where)) if isinstance(model.context, FROM_THE_START) else ()
    sweep = max(1, min(SWEEP, SWEEP_ROWS // len(where)))
    for start in range(0, int(lengths.max()), block):
        stop = min(start + block, int(lengths.max()))
        lead = min(start, model.context.window - 1) if isinstance(model.context, WindowContext) else 0
        arrays, matters = read_block(read, where, lengths, spec, start - lead, stop)
        for a in range(lead, stop - start + lead, sweep):
            b = min(a + sweep, stop - start + lead)
            names = {*spec.memory_input, *spec.query} if carried else spec.memory_input
            inputs = {n: torch.from_numpy(arrays[n][:, a:b]).to(device) for n in names}
            with torch.no_grad():
                m, state = model.rollout(inputs, state)
                if isinstance(model.context, FROM_THE_START):
                    c, carried = model.context(inputs, carried)
                    contexts = partial(_rows, c)
                else:
                    contexts = partial(_contexts, model, arrays, start - lead, a)
            yield Piece(start - lead + a, matters[:, a:b], arrays[spec.target][:, a:b], m, contexts)


def _rows(c: torch.Tensor, episode: np.ndarray, step: np.ndarray) -> torch.Tensor:
    return c[torch.from_numpy(episode).to(c.device), torch.from_numpy(step).to(c.device)]


def _contexts(
    model: MemoryModel, arrays: dict[str, np.ndarray], start: int, lead: int, episode: np.ndarray, step: np.ndarray
) -> torch.Tensor:
    """c of some steps (n,), counted from `lead` in arrays that begin at step `start` of the episodes."""
    place = lead + step
    device = next(model.parameters()).device
    context = model.context
    assert not isinstance(context, FROM_THE_START)
    if not isinstance(context, WindowContext):
        return context({n: torch.from_numpy(arrays[n][episode, place]).to(device) for n in context.query.names})
    wanted, seen = window_steps(start + place, context.window)
    rows = {n: arrays[n][episode[:, None], np.maximum(wanted - start, 0)] for n in context.query.names}
    windows, which = distinct({**rows, SEEN: seen}, 1)
    encoded: torch.Tensor = context({n: torch.from_numpy(values).to(device) for n, values in windows.items()})
    return encoded[torch.from_numpy(which).to(device)]


class Reader:
    """Steps of fields, with the last decoded chunks kept: short episodes that follow each other share one."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, str, int], np.ndarray] = {}
        self._bytes = 0

    def __call__(self, shard: Shard, name: str, start: int, stop: int) -> np.ndarray:
        size = shard.layout.chunk_steps
        index = start // size
        if stop > (index + 1) * size:
            return shard.read_steps(name, start, stop)
        key = (id(shard), name, index)
        if key not in self._chunks:
            if self._bytes > CACHE_BYTES:
                self._chunks.clear()
                self._bytes = 0
            self._chunks[key] = shard.read_steps(name, index * size, (index + 1) * size)
            self._bytes += self._chunks[key].nbytes
        return self._chunks[key][start - index * size : stop - index * size].copy()


def episode_targets(read: Reader, shard: Shard, row: np.ndarray, spec: TaskSpec, gamma: float) -> np.ndarray:
    start = int(row[START])
    return targets(spec, {spec.target: read(shard, spec.target, start, start + int(row[LENGTH]))}, gamma)


def read_block(
    read: Reader, where: list[tuple[Shard, np.ndarray]], lengths: np.ndarray, spec: TaskSpec, start: int, stop: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Steps [start, stop) of every episode, padded with zeros, and which of them matter."""
    arrays: dict[str, np.ndarray] = {}
    matters = np.zeros((len(where), stop - start), bool)
    for i, (shard, row) in enumerate(where):
        end = min(stop, int(lengths[i]))
        if end <= start:
            continue
        begin = int(row[START])
        episode = {f.name: read(shard, f.name, begin + start, begin + end) for f in spec.fields}
        matters[i, : end - start] = spec.evaluate(episode) if spec.evaluate else True
        if PREVIOUS_ACTION in spec.memory_input:
            before = read(shard, "action", begin + max(start - 1, 0), begin + end - 1)
            episode[PREVIOUS_ACTION] = previous_actions(spec, before, at_start=start == 0)
        for name, values in episode.items():
            if name not in arrays:
                arrays[name] = np.zeros((len(where), stop - start, *values.shape[1:]), values.dtype)
            arrays[name][i, : end - start] = values
    return arrays, matters


def summary(predictions: Predictions, bins: int) -> dict[str, Any]:
    return {
        **predictions.metrics(),
        "interval": list(predictions.interval()),
        "episodes": len(np.unique(predictions.episode)),
        "steps": len(predictions.step),
        "by_length": predictions.by_length(bins),
        "by_order": predictions.by_order(),
    }
