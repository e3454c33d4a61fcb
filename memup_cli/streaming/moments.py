"""Mean, spread and kurtosis of what the networks see, over the training episodes: read once per run, and kept."""

import contextlib
import math
from dataclasses import dataclass, field

import numpy as np

from stores.errors import StoreError
from stores.files import read_json, to_json, write_durably
from stores.layout import json_checksum
from stores.manifest import Manifest
from stores.reader import Trajectories

from ..records.opening import digests, split_of
from ..tasks.spec import TaskSpec
from .actions import stored_fields
from .blocks import blocks

NAME = "moments.json"

Moments = dict[str, dict[str, list[float]]]  # of each field: those of its numbers, classes or image channels


@dataclass
class Sums:
    """Of one field. Numbers are counted from an origin, so that a large mean hides no small spread."""

    classes: tuple[int, ...]  # of each number of a row; none: they are no class numbers
    image: bool
    count: int = 0
    origin: np.ndarray | None = None
    parts: list[tuple[np.ndarray, ...]] = field(default_factory=list)  # sums of values, squares, third, fourth powers

    def add(self, values: np.ndarray, begins: list[int]) -> None:
        """Steps (n, *row), of episodes that begin there."""
        if self.classes:
            columns = zip(values.reshape(len(values), -1).T, self.classes, strict=True)
            found = np.concatenate([np.bincount(column, minlength=n + 1)[:n] for column, n in columns])
            self.count += len(values)
            self.parts.append((found.astype(np.float64),) * 4)
            return
        rows = values.reshape(len(values), -1, values.shape[-1] if self.image else 1).astype(np.float64)
        rows = rows if self.image else rows.transpose(0, 2, 1)  # (n, pixels or 1, numbers)
        if self.origin is None:
            self.origin = rows[0, 0].copy()
        rows -= self.origin
        self.count += rows.shape[0] * rows.shape[1]
        squares = rows**2
        powers = rows, squares, squares * rows, squares**2
        self.parts += zip(*(np.add.reduceat(each.sum(1), begins) for each in powers), strict=True)

    def result(self) -> dict[str, list[float]]:
        """What the order of adding, and so the number of shards, does not change."""
        mean, square, third, fourth = (
            np.array([math.fsum(column) for column in zip(*each, strict=True)]) / self.count
            for each in zip(*self.parts, strict=True)
        )
        variance = np.maximum(square - mean**2, 0)
        central = fourth - 4 * mean * third + 6 * mean**2 * square - 3 * mean**4
        kurtosis = np.divide(central, variance**2, out=np.zeros_like(mean), where=variance > 1e-12 * square)
        origin = 0.0 if self.origin is None else self.origin
        return {"mean": (mean + origin).tolist(), "sd": np.sqrt(variance).tolist(), "kurtosis": kurtosis.tolist()}


_measured: dict[str, Moments] = {}  # by a plan, to be kept when the training begins


def moments_of(manifest: Manifest, spec: TaskSpec, keep: bool = False) -> Moments:
    """Those of a run's training episodes; found once, and with `keep` kept in the run until there are others."""
    path = manifest.run / NAME
    made_from = {"inputs": digests(manifest, "train"), "episodes": len(split_of(manifest, "train"))}
    made_from |= {"fields": _seen(spec)}
    with contextlib.suppress(StoreError):  # missing or damaged: found again
        kept = read_json(path)
        whole = kept.pop("checksum", None) == json_checksum(kept)
        if whole and kept.get("made_from") == made_from:
            found: Moments = kept["moments"]
            return found
    key = json_checksum(made_from)
    if key not in _measured:
        _measured[key] = measure(split_of(manifest, "train"), spec)
    kept = {"made_from": made_from, "moments": _measured[key]}
    if keep:
        write_durably(path, to_json({**kept, "checksum": json_checksum(kept)}))
    return _measured[key]


def _seen(spec: TaskSpec) -> list[str]:
    """Inputs of the memory, and what is known of a target."""
    return list(dict.fromkeys((*spec.memory_input, *spec.query)))


def measure(train: Trajectories, spec: TaskSpec) -> Moments:
    """Episode by episode: where they lie, and in which blocks they are read, changes nothing."""
    fields = {f.name: f for f in spec.fields}
    sums: dict[str, Sums] = {}
    names = tuple(_seen(spec))
    for name in names:
        source = spec.source(name)
        sums[name] = Sums(spec.counts(source), fields[source].is_image)
    for shard, group in train.groups():
        for steps in blocks(shard, group, stored_fields(spec, names), 1):
            rows = steps.inputs(spec, names)
            for name, values in rows.items():
                sums[name].add(values, [a for a, _ in steps.episodes()])
    return {name: each.result() for name, each in sums.items()}


def rarest(moments: Moments, spec: TaskSpec) -> float:
    """The largest kurtosis of any memory input: of noise it is 2 or 3, of what comes in one of n steps about n."""
    return max((max(moments[name]["kurtosis"], default=0.0) for name in spec.memory_input), default=0.0)
