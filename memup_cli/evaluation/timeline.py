"""Episodes to look at: what the detector and the memory make of every step of a few test episodes, for the report.

Everything is reduced to the smallest and largest value of at most BUCKETS ranges of steps while it streams, so that an
episode of a million steps takes no more room than one of a thousand.
"""

from typing import Any

import numpy as np
import torch

from stores.errors import StoreError
from stores.layout import LENGTH
from stores.manifest import Manifest
from stores.reader import Shard
from stores.scores import ScoreReader, score_path

from .. import randomness
from ..predictor.predictor import MemoryModel
from ..records.opening import split_of
from ..selection.gumbel import select
from ..selection.importance import Matters, recorded_scale
from ..selection.rules import rule_of
from ..streaming.reading import ChunkReader
from ..streaming.targets import TARGET
from ..tasks.spec import TaskSpec
from .predictions import Piece, block_size, pieces

BUCKETS = 800
POINTS = 160  # prediction points t whose targets are kept, about
SHOWN = 16  # of the targets of a point, the best first
MARKS = 400  # steps that matter, at most


class Track:
    """Smallest and largest value in each bucket of an episode's steps."""

    def __init__(self, length: int) -> None:
        self.bucket = -(-length // BUCKETS)
        count = -(-length // self.bucket)
        self.low, self.high = np.full(count, np.inf), np.full(count, -np.inf)

    def add(self, start: int, values: np.ndarray) -> None:
        place = np.arange(start, start + len(values)) // self.bucket
        np.minimum.at(self.low, place, values)
        np.maximum.at(self.high, place, values)

    def to_json(self) -> dict[str, list[float | None]]:
        low = rounded(self.low)
        return {"low": low} if self.bucket == 1 else {"low": low, "high": rounded(self.high)}


def rounded(values: np.ndarray) -> list[float | None]:
    """Four digits are more than a picture shows; what is not finite has no place in one."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]


def prediction_points(length: int) -> np.ndarray:
    """Every step of a short episode; of a long one some evenly, and more of them at its start and end."""
    if length <= 2 * POINTS:
        return np.arange(length)
    powers = 2 ** np.arange(int(np.log2(length)))
    evenly = np.linspace(0, length - 1, POINTS).astype(np.int64)
    return np.unique(np.concatenate([[0], powers, length - powers, evenly]))


class Sketch:
    """One episode's timeline in the making."""

    def __init__(self, number: int, y: np.ndarray, scores: np.ndarray | None, classes: bool) -> None:
        self.number, self.length, self.y, self.classes = number, len(y), y, classes
        names = ("y", "prediction", "memory", *(("right",) if classes else ()))
        self.tracks = {name: Track(self.length) for name in names}
        self.tracks["y"].add(0, y)
        if scores is not None:
            self.tracks["score"] = Track(self.length)
            self.tracks["score"].add(0, scores)
        self.points = prediction_points(self.length)  # (G,)
        self.chosen: np.ndarray | None = None  # (G, K) steps; -1 where there are fewer
        self.wanted = np.zeros(0, np.int64)  # (M,) steps among them
        self._before: torch.Tensor | None = None
        self._states: list[torch.Tensor] = []
        self._contexts: list[torch.Tensor] = []
        self._matters: list[np.ndarray] = []  # (n, 3) each: step, y, prediction

    def choose(self, chosen: np.ndarray) -> None:
        self.chosen, self.wanted = chosen, np.unique(chosen[chosen >= 0])

    def see(self, model: MemoryModel, piece: Piece, place: int) -> None:
        """Take in the next steps of the episode, which is the one at `place` of those side by side."""
        count = min(piece.m.shape[1], self.length - piece.start)
        if count <= 0:
            return
        steps, here = np.arange(count), np.full(count, place)
        m, y = piece.m[place, :count], self.y[piece.start : piece.start + count]
        before = torch.zeros_like(m[:1]) if self._before is None else self._before
        change = (m - torch.cat([before, m[:-1]])).norm(dim=-1)
        self._before = m[-1:]
        self.tracks["memory"].add(piece.start, change.cpu().numpy())
        output = piece.predictions(model, here, steps)
        prediction = self._value(output)
        self.tracks["prediction"].add(piece.start, prediction)
        if self.classes:
            self.tracks["right"].add(piece.start, _probability(output, y))
        matters = np.flatnonzero(piece.weight[place, :count])
        self._matters.append(np.stack([piece.start + matters, y[matters], prediction[matters]], 1).astype(np.float64))
        self._states.append(m[self._inside(self.points, piece.start, count)])
        local = self._inside(self.wanted, piece.start, count)
        if len(local):
            self._contexts.append(piece.contexts(here[local], local))

    @staticmethod
    def _inside(steps: np.ndarray, start: int, count: int) -> np.ndarray:
        inside: np.ndarray = steps[(steps >= start) & (steps < start + count)] - start
        return inside

    def _value(self, output: torch.Tensor) -> np.ndarray:
        value: np.ndarray = (output.argmax(-1) if self.classes else output).cpu().numpy()
        return value

    def to_json(self, model: MemoryModel) -> dict[str, Any]:
        matters = np.concatenate(self._matters)
        shown = matters[np.unique(np.linspace(0, len(matters) - 1, MARKS).astype(int))] if len(matters) else matters
        steps, y, prediction = shown.T
        return {
            "episode": self.number,
            "length": self.length,
            "bucket": self.tracks["y"].bucket,
            "tracks": {name: track.to_json() for name, track in self.tracks.items()},
            "matters": {
                "count": len(matters),
                "step": steps.astype(int).tolist(),
                "y": rounded(y),
                "prediction": rounded(prediction),
            },
            "points": self._choices(model),
        }

    def _choices(self, model: MemoryModel) -> dict[str, Any] | None:
        """The targets of every prediction point, and what the memory's state there says of them: q(y_k | m_t, c_k)."""
        if self.chosen is None or not self._contexts:
            return None
        states, contexts = torch.cat(self._states), torch.cat(self._contexts)  # (G, H), (M, C)
        found: dict[str, Any] = {"t": self.points.tolist(), "targets": [], "y": [], "prediction": []}
        if self.classes:
            found["right"] = []
        for state, row in zip(states, self.chosen, strict=True):
            targets = row[row >= 0]
            c = contexts[torch.from_numpy(np.searchsorted(self.wanted, targets)).to(contexts.device)]
            output = model.predict(state.expand(len(targets), -1), c)
            found["targets"].append(targets.tolist())
            found["y"].append(rounded(self.y[targets]))
            found["prediction"].append(rounded(self._value(output)))
            if self.classes:
                found["right"].append(rounded(_probability(output, self.y[targets])))
        return found


def _probability(logits: torch.Tensor, y: np.ndarray) -> np.ndarray:
    """Of the right class."""
    classes = torch.from_numpy(y.astype(np.int64)).to(logits.device)
    found: np.ndarray = logits.softmax(-1).gather(-1, classes[:, None])[:, 0].cpu().numpy()
    return found


def timelines(
    model: MemoryModel, manifest: Manifest, spec: TaskSpec, config: dict[str, Any], count: int
) -> dict[str, Any]:
    """The first `count` test episodes; config is that of train-memory, which says how targets are chosen."""
    test, matters = split_of(manifest, "test"), Matters(manifest, spec, config)
    where = [(shard, row) for shard, group in test.groups() for row in shard.rows(group)][:count]
    block, _ = block_size(test, spec, max(int(row[LENGTH]) for _, row in where))
    read, classes = ChunkReader(), spec.target_kind == "classes"
    gamma = config["gamma"]
    online = config.get("scores") == "online" and rule_of(config["select"]).online
    spread = 1.0 if online else recorded_scale(manifest, _detector(manifest, config)).spread
    with torch.no_grad():
        ys = [read.episode(shard, row, spec, gamma)(TARGET, 0, int(row[LENGTH])) for shard, row in where]
        if online:
            scores: list[np.ndarray | None] = [*_errors(model, where, ys, spec, gamma, matters, block, read)]
        else:
            scores = [_stored(manifest, config, shard, row) for shard, row in where]
        sketches = [Sketch(i, y, s, classes) for i, (y, s) in enumerate(zip(ys, scores, strict=True))]
        for sketch, values in zip(sketches, scores, strict=True):
            _choose(sketch, values, config, spread)
        for piece in pieces(model, where, spec, gamma, matters, block, read):
            for place, sketch in enumerate(sketches):
                sketch.see(model, piece, place)
        episodes = [sketch.to_json(model) for sketch in sketches]
    return {
        "target": spec.target,
        "kind": spec.target_kind,
        "select": config["select"],
        "scores": "online" if online else "stored",
        "targets": config["targets"],
        "shown": min(config["targets"], SHOWN),
        "temperature": config["temperature"],
        "episodes": episodes,
    }


def _choose(sketch: Sketch, scores: np.ndarray | None, config: dict[str, Any], spread: float) -> None:
    """One draw of the targets of every point, as in training."""
    rule = rule_of(config["select"])
    if rule.choice is None:
        sketch.choose(sketch.points[:, None])
        return
    if (scores := rule.shown(scores, sketch.length)) is not None:
        rng = randomness.stream(config["seed"], randomness.SHOWN_TARGETS, sketch.number)
        temperature = config["temperature"] * spread
        top = select(scores, min(config["targets"], SHOWN), temperature, rng, config.get("reach"))
        sketch.choose(top.at(sketch.points))


def _detector(manifest: Manifest, config: dict[str, Any]) -> str:
    found: str = config.get("detector") or manifest.stages.get("score", {}).get("config", {}).get("detector", "")
    return found


def _stored(manifest: Manifest, config: dict[str, Any], shard: Shard, row: np.ndarray) -> np.ndarray | None:
    """Scores of an episode, if there are any that belong to it; the memory can be trained without."""
    entry = manifest.stages.get("score", {})
    if entry.get("status") != "complete" or manifest.stale("score"):
        return None
    try:
        return ScoreReader(score_path(manifest.run, _detector(manifest, config), shard), shard).episode(row)
    except StoreError:
        return None  # `memup verify` tells; an evaluation of the memory does not need them


def _errors(
    model: MemoryModel, where: list[tuple[Shard, np.ndarray]], ys: list[np.ndarray], spec: TaskSpec,
    gamma: float, matters: Matters, block: int, read: ChunkReader,
) -> list[np.ndarray]:  # fmt: skip
    """Online scores: here the trained model's own error at every step."""
    found = [np.zeros(len(y), np.float32) for y in ys]
    for piece in pieces(model, where, spec, gamma, matters, block, read):
        for place, (errors, y) in enumerate(zip(found, ys, strict=True)):
            count = min(piece.m.shape[1], len(y) - piece.start)
            if count > 0:
                output = piece.predictions(model, np.full(count, place), np.arange(count))
                target = torch.from_numpy(y[piece.start : piece.start + count]).to(output.device)
                errors[piece.start : piece.start + count] = model.losses(output, target).cpu().numpy()
    return found
