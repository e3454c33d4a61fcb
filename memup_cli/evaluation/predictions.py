"""How well the memory explains the steps that matter: y_k predicted from m_k and the query of step k."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from stores.layout import LENGTH
from stores.reader import Shard, Trajectories

from ..errors import BadInput
from ..predictor.contexts import Context
from ..predictor.predictor import MemoryModel
from ..selection.importance import EpisodeMatters, Matters
from ..streaming.reading import ChunkReader, EpisodeReader
from ..streaming.targets import TARGET
from ..tasks.spec import TaskSpec

SIDE_BY_SIDE = 64  # episodes: what a step of the memory costs hardly depends on how many there are
BLOCK_BYTES = 32 << 20  # of test steps held at a time
SWEEP = 512  # steps per call of the memory, at most ...
SWEEP_ROWS = 1 << 14  # ... and steps of all episodes side by side: what a network computes of one is far larger than it
RESAMPLES = 1000


@dataclass(frozen=True)
class Predictions:
    """Predictions at evaluated steps, one entry each."""

    episode: np.ndarray
    step: np.ndarray
    y: np.ndarray
    weight: np.ndarray  # how much each step matters
    error: np.ndarray  # squared error, or 1 if the class is right
    nll: np.ndarray  # squared error, or that of the class
    spec: TaskSpec

    def metrics(self, which: np.ndarray | slice = slice(None)) -> dict[str, float]:
        """RMSE (numbers) or accuracy (classes), with the loss they were trained on; the share that is near enough."""
        weight = self.weight[which]

        def mean(values: np.ndarray) -> float:
            return float(np.average(values[which], weights=weight))

        if self.kind == "classes":
            return {"accuracy": mean(self.error), "nll": mean(self.nll)}
        mse = mean(self.error)
        near = {} if self.spec.near is None else {"right": mean(self.error < self.spec.near**2)}
        return {"rmse": mse**0.5, "mse": mse, **near}

    @property
    def loss(self) -> float:
        """What `explained` compares: MSE, or the NLL of classes."""
        return float(np.average(self.nll, weights=self.weight))

    def constant(self) -> "Predictions":
        """The best constant: the mean of these targets, or how frequent each class is among them."""
        if self.kind == "classes":
            share = self._shares()
            error, nll = self.y == share.argmax(), -np.log(share[self.y.astype(np.int64)])
        else:
            error = nll = (self.y - np.average(self.y, weights=self.weight)) ** 2
        return replace(self, error=error.astype(np.float64), nll=nll.astype(np.float64))

    def best_constant(self) -> torch.Tensor:
        """As predict_always() takes it."""
        if self.kind == "classes":
            return torch.log(torch.from_numpy(self._shares()).float().clamp(min=1e-6))
        return torch.tensor(np.average(self.y, weights=self.weight)).float()

    def _shares(self) -> np.ndarray:
        share = np.bincount(self.y.astype(np.int64), self.weight, self.spec.classes[self.spec.target])
        return share / share.sum()

    def explained(self, without: "Predictions", seed: int = 0) -> tuple[float, tuple[float, float]]:
        """1 - the loss / that of predictions without a memory; with a 95% bootstrap interval over episodes.

        Where no memory is needed nothing is explained, however small the errors are. The best constant needs no memory
        either: it is what counts where `without` is worse on these episodes, or else chance would look like a memory.
        """
        rival = self.rival(without)
        if rival.is_perfect:
            return 0.0, (0.0, 0.0)
        own, other = (self._by_episode(each.nll) for each in (self, rival))
        chosen = self._resampled(len(own), seed)
        ratios = own[chosen].sum(1) / np.maximum(other[chosen].sum(1), 1e-12)
        low, high = np.quantile(1 - ratios, [0.025, 0.975])
        return float(1 - own.sum() / other.sum()), (float(low), float(high))

    def rival(self, without: "Predictions") -> "Predictions":
        """The best that needs no memory on these episodes."""
        return min(without, self.constant(), key=lambda each: each.loss)

    @property
    def is_perfect(self) -> bool:
        """Whether what is left is no more than a trace: of numbers next to their size, of classes next to a nat."""
        size = 1.0 if self.kind == "classes" else float(np.average(self.y**2, weights=self.weight))
        return self.loss <= 1e-6 * size

    def events(self) -> float:
        """How many steps of an episode matter: of equal weights their number, of unequal ones fewer."""
        weights, squares = (self._by_episode(values) for values in (np.ones(len(self.weight)), self.weight))
        return float((weights**2 / squares).mean())

    def _by_episode(self, values: np.ndarray) -> np.ndarray:
        """Weighted sums (episodes,)."""
        return np.bincount(np.unique(self.episode, return_inverse=True)[1], self.weight * values)

    @staticmethod
    def _resampled(episodes: int, seed: int) -> np.ndarray:
        rng = np.random.Generator(np.random.PCG64(seed))
        return rng.integers(episodes, size=(RESAMPLES, episodes))

    @property
    def kind(self) -> str:
        return self.spec.target_kind

    @property
    def main(self) -> str:
        return "accuracy" if self.kind == "classes" else "rmse"

    @property
    def objective(self) -> float:
        """What is to be small: the RMSE, or the share of wrong classes below zero."""
        found = self.metrics()
        return -found["accuracy"] if self.kind == "classes" else found["rmse"]

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """95% bootstrap interval of the main metric, resampling whole episodes."""
        sums, weights = self._by_episode(self.error), self._by_episode(np.ones(len(self.error)))
        chosen = self._resampled(len(sums), seed)
        means = sums[chosen].sum(1) / weights[chosen].sum(1)
        low, high = np.quantile(means if self.kind == "classes" else np.sqrt(means), [0.025, 0.975])
        return float(low), float(high)

    def by_length(self, bins: int) -> list[dict[str, Any]]:
        """Metrics by the step of the episode: `from` and `to` are both in the range.

        That is the dependency length where the cue is at the episode's start.
        """
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
    model: MemoryModel,
    trajectories: Trajectories,
    spec: TaskSpec,
    gamma: float,
    matters: Matters,
    episodes: int | None = None,
) -> Predictions:
    """Sweep the memory over episodes, many side by side, and predict at the steps that matter."""
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
        parts += _sweep(model, where[first : first + batch], first, spec, gamma, matters, block)
    model.train(training)
    return joined_predictions(parts, count, trajectories, spec)


def joined_predictions(
    parts: list[tuple[np.ndarray, ...]], count: int, trajectories: Trajectories, spec: TaskSpec
) -> Predictions:
    if not parts:
        raise BadInput(
            f"none of the {count} episodes in {trajectories.folder} that are evaluated has a step that matters; take "
            "more with --episodes or --evaluate-episodes, or collect more"
        )
    episode, step, y, weight, error, nll = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Predictions(episode, step, y, weight, error, nll, spec)


def block_size(trajectories: Trajectories, spec: TaskSpec, longest: int) -> tuple[int, int]:
    """Steps to read at a time, and of how many episodes side by side: of many, if need be in shorter blocks."""
    row_bytes = sum(f.row_bytes for f in spec.fields) + 16
    block = min(longest, max(SWEEP, trajectories.shards[0].layout.chunk_steps))
    together = max(1, BLOCK_BYTES // (SIDE_BY_SIDE * row_bytes))
    block = min(block, max(SWEEP, together))
    return block, max(1, BLOCK_BYTES // (block * row_bytes))


def _sweep(
    model: MemoryModel,
    where: list[tuple[Shard, np.ndarray]],
    first: int,
    spec: TaskSpec,
    gamma: float,
    matters: Matters,
    block: int,
) -> list[tuple[np.ndarray, ...]]:
    read = ChunkReader()
    found: list[tuple[np.ndarray, ...]] = []
    for piece in pieces(model, where, spec, gamma, matters, block, read):
        episode, step = np.nonzero(piece.weight)
        if not len(episode):
            continue
        y = piece.y[episode, step]
        with torch.no_grad():
            prediction = piece.predictions(model, episode, step)
            target = torch.from_numpy(y).to(prediction.device)
            nll = model.losses(prediction, target)
            error = (prediction.argmax(-1) == target).float() if spec.target_kind == "classes" else nll
        weight = piece.weight[episode, step]
        found.append((first + episode, piece.start + step, y, weight, error.cpu().numpy(), nll.cpu().numpy()))
    return found


@dataclass(frozen=True)
class Piece:
    """The memory's states along a few steps of episodes side by side."""

    start: int  # step of the episodes
    weight: np.ndarray  # (B, n): how much each step matters
    y: np.ndarray  # (B, n)
    m: torch.Tensor  # (B, n, H)
    contexts: Callable[[np.ndarray, np.ndarray], torch.Tensor]  # c of (episode, step), steps counted from the start

    def predictions(self, model: MemoryModel, episode: np.ndarray, step: np.ndarray) -> torch.Tensor:
        """What the state at some steps says of these steps themselves."""
        at = torch.from_numpy(episode).to(self.m.device), torch.from_numpy(step).to(self.m.device)
        return model.predict(self.m[at], self.contexts(episode, step))


def pieces(
    model: MemoryModel,
    where: list[tuple[Shard, np.ndarray]],
    spec: TaskSpec,
    gamma: float,
    matters: Matters,
    block: int,
    read: ChunkReader,
) -> Iterator[Piece]:
    """Walk the memory through whole episodes, with at most `block` steps of each in RAM."""
    device = next(model.parameters()).device
    lengths = np.array([int(row[LENGTH]) for _, row in where])
    weigh = [matters.episode(shard, row) for shard, row in where]
    episodes = [read.episode(shard, row, spec, gamma) for shard, row in where]
    state = model.memory.initial(len(where))
    context = model.context
    carried = context.initial(len(where)) if context.from_start else ()
    sweep = max(1, min(SWEEP, SWEEP_ROWS // len(where)))
    for start in range(0, int(lengths.max()), block):
        stop = min(start + block, int(lengths.max()))
        lead = min(start, context.before)
        arrays, weight = read_block(episodes, spec, weigh, start - lead, stop)
        for a in range(lead, stop - start + lead, sweep):
            b = min(a + sweep, stop - start + lead)
            names = {*spec.memory_input, *spec.query} if carried else spec.memory_input
            inputs = {n: torch.from_numpy(arrays[n][:, a:b]).to(device) for n in names}
            with torch.no_grad():
                m, state = model.rollout(inputs, state)
                if context.from_start:
                    c, carried = context.along(inputs, carried)
                    contexts = partial(_rows, c)
                else:
                    contexts = partial(_near, context, arrays, start - lead, a, device)
            yield Piece(start - lead + a, weight[:, a:b], arrays[TARGET][:, a:b], m, contexts)


def _rows(c: torch.Tensor, episode: np.ndarray, step: np.ndarray) -> torch.Tensor:
    return c[torch.from_numpy(episode).to(c.device), torch.from_numpy(step).to(c.device)]


def _near(
    context: Context, arrays: dict[str, np.ndarray], start: int, lead: int, device: torch.device,
    episode: np.ndarray, step: np.ndarray,
) -> torch.Tensor:  # fmt: skip
    """c of some steps (n,), counted from `lead` in arrays that begin at step `start` of the episodes."""
    return context.at(arrays, episode, lead + step, start, device)


def read_block(
    episodes: list[EpisodeReader],
    spec: TaskSpec,
    weigh: list[EpisodeMatters],
    start: int,
    stop: int,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Steps [start, stop) of every episode, with y, padded with zeros; and how much each of them matters."""
    arrays: dict[str, np.ndarray] = {}
    weight = np.zeros((len(episodes), stop - start))
    names = [f.name for f in spec.fields] + [*spec.late(spec.memory_input)] + [TARGET]
    for i, read in enumerate(episodes):
        end = min(stop, read.length)
        if end <= start:
            continue
        episode = {name: read(name, start, end) for name in names}
        weight[i, : end - start] = weigh[i](episode, start, end)
        for name, values in episode.items():
            if name not in arrays:
                arrays[name] = np.zeros((len(episodes), stop - start, *values.shape[1:]), values.dtype)
            arrays[name][i, : end - start] = values
    return arrays, weight


def summary(predictions: Predictions, without: Predictions, bins: int) -> dict[str, Any]:
    """What is measured of a memory, beside the best constant and a predictor without a memory."""
    explained, interval = predictions.explained(without)
    return {
        **predictions.metrics(),
        "interval": list(predictions.interval()),
        "explained": explained,
        "explained_interval": list(interval),
        "nothing_to_explain": predictions.rival(without).is_perfect,
        "constant": predictions.constant().metrics(),
        "memoryless": without.metrics(),
        "episodes": len(np.unique(predictions.episode)),
        "steps": len(predictions.step),
        "by_length": predictions.by_length(bins),
        "by_order": predictions.by_order(),
    }
