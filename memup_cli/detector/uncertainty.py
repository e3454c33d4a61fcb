"""One uncertainty score per step: computed and written in blocks of steps, and what the scores of a run look like."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from stores.layout import LENGTH, START
from stores.manifest import Manifest
from stores.reader import Shard
from stores.scores import ScoreReader, ScoreWriter, score_path

from .. import console
from ..errors import BadInput
from ..interrupts import StopFlag
from ..records.opening import split_of, stored_of
from ..records.runs import STORED
from ..selection.importance import Scale
from ..streaming.blocks import Steps, Targets, block_steps, blocks
from ..tasks.spec import TaskSpec
from .detection import ScoreConfig
from .network import Detector
from .reservoir import row_codes

BATCH_STEPS, SCORED_BYTES = 1 << 16, 64 << 20  # scored at a time, at most
PUBLISH_EVERY = 2.0  # seconds
SAMPLED = 200_000  # scores that say what is usual, about
HISTOGRAM_EDGES = np.array([0, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1, 3, 10, np.inf])  # of scores that go up to ...
ORDINARY = 0.1, 100.0  # ... one of these, and of others as many powers of ten further on


def write_scores(
    manifest: Manifest,
    spec: TaskSpec,
    config: ScoreConfig,
    detector: Detector,
    source: dict[str, Any],
    stop: StopFlag,
    still_ours: Callable[[], None],
    quiet: bool,
) -> int:
    """Score every group of every split that is not scored yet; returns the episodes scored in all."""
    shards = [shard for split in STORED for shard in stored_of(manifest, split).shards]
    total, done = sum(s.identity.episodes for s in shards), 0
    with console.Progress("score", "episode", total, quiet=quiet) as bar:
        for shard in shards:
            writer = ScoreWriter(score_path(manifest.run, config.detector, shard), shard, source, still_ours)
            missing = writer.missing_groups()
            already = shard.identity.episodes - sum(len(shard.rows(g)) for g in missing)
            done += already
            bar.advance(already)
            published = time.monotonic()
            try:
                for group in missing:
                    if stop:
                        break
                    writer.add(group, group_scores(detector, shard, group, spec, config.discount))
                    done += len(shard.rows(group))
                    bar.advance(len(shard.rows(group)))
                    if time.monotonic() - published >= PUBLISH_EVERY:
                        writer.publish()
                        published = time.monotonic()
                writer.publish()
            except BaseException:
                writer.discard()
                raise
    return done


def batch_steps(spec: TaskSpec, detector: Detector) -> int:
    row_bytes = sum(f.row_bytes for f in spec.fields if f.name in spec.query) * detector.window
    return min(BATCH_STEPS, max(1, SCORED_BYTES // row_bytes))


def group_scores(detector: Detector, shard: Shard, group: int, spec: TaskSpec, gamma: float) -> Iterator[np.ndarray]:
    """Scores of all steps of a group, a block of them at a time.

    Blocks end where batches do. So what is in a batch, and the last bit of each score, does not depend on them.
    """
    batch = batch_steps(spec, detector)
    targets = Targets(shard, group, spec, gamma)
    for steps in blocks(shard, group, (*spec.query, spec.target), detector.window - 1, batch):
        found = score_steps(detector, steps, targets(steps), spec.query, batch)
        if not np.isfinite(found).all():
            raise BadInput(
                f"a score of commit group {group} of {shard.path} is not finite: the data hold extreme "
                "values. Collect others."
            )
        yield found


def score_steps(
    detector: Detector, steps: Steps, y: np.ndarray, names: tuple[str, ...], batch: int, deviations: bool = False
) -> np.ndarray:
    """Scores of all steps of a block (N,), or how far y is from the best guess.

    Each different local window is computed once, unless it is an image.
    """
    measure, looks_at_y = (detector.deviation, True) if deviations else (detector.score, detector.looks_at_y)
    device = next(detector.parameters()).device
    scores = np.empty(len(steps), np.float32)
    for first in range(0, len(scores), batch):
        these = np.arange(first, min(first + batch, len(scores)))
        windows, real = steps.windows(these, detector.window, names)
        wanted = y[these]
        which = back = np.arange(len(these))
        if not detector.query.images:
            different = {**windows, "real": real, **({"y": wanted} if looks_at_y else {})}
            _, which, back = np.unique(row_codes(different), return_index=True, return_inverse=True)
        with torch.no_grad():
            tensors = {name: torch.from_numpy(values[which]).to(device) for name, values in windows.items()}
            output = detector(tensors, torch.from_numpy(real[which]).to(device))
            found = measure(output, torch.from_numpy(wanted[which]).to(device))
        scores[these] = found.cpu().numpy()[back]
    return scores


def summary(manifest: Manifest, detector: str, episodes: int = 1000) -> dict[str, Any]:
    """Histogram of the training scores, and where each episode's highest score lies, counted from its end."""
    counts = np.zeros(len(HISTOGRAM_EDGES) - 1, np.int64)
    from_end: list[int] = []
    top: list[float] = []
    usual: list[np.ndarray] = []
    readers: dict[int, ScoreReader] = {}
    train = split_of(manifest, "train")
    every = max(1, int(train.lengths.sum()) // SAMPLED)
    edges = HISTOGRAM_EDGES
    for shard, group in train.groups():
        if id(shard) not in readers:
            readers[id(shard)] = ScoreReader(score_path(manifest.run, detector, shard), shard)
        if not top:
            first = _highest(readers[id(shard)], shard, group, counts.copy(), [], every, edges)
            edges = _edges(float(np.mean([score for score, _ in first])))
        found = _highest(readers[id(shard)], shard, group, counts, usual, every, edges)
        top += [score for score, _ in found]
        from_end += [steps for _, steps in found]
        if len(from_end) >= episodes:
            break
    ends = np.array(from_end)
    scale = Scale.of(float(np.median(np.concatenate(usual))), float(np.mean(top)))
    return {
        "usual_score": scale.usual,
        "spread": scale.spread,
        "histogram": {"edges": edges[:-1].tolist(), "counts": counts.tolist()},
        "summarised": {"episodes": len(ends), "of": len(train)},
        "top_score_mean": float(np.mean(top)),
        "top_steps_from_end": {
            "median": float(np.median(ends)),
            "p10": float(np.quantile(ends, 0.1)),
            "p90": float(np.quantile(ends, 0.9)),
            "at_end_share": float((ends == 0).mean()),
        },
    }


def _edges(top: float) -> np.ndarray:
    """Of a histogram that shows scores up to about this, in whatever unit they are."""
    ordinary = ORDINARY[0] <= top < ORDINARY[1] or top <= 0
    found: np.ndarray = HISTOGRAM_EDGES * (1.0 if ordinary else 10.0 ** np.floor(np.log10(top)))
    return found


def _highest(
    scores: ScoreReader,
    shard: Shard,
    group: int,
    counts: np.ndarray,
    usual: list[np.ndarray],
    every: int,
    edges: np.ndarray,
) -> list[tuple[float, int]]:
    """The highest score of each episode of a group and how far from the end it first lies.

    Adds to the histogram, and to what is usual the scores of every so many steps.
    """
    table = shard.rows(group)
    starts, ends = table[:, START].tolist(), (table[:, START] + table[:, LENGTH]).tolist()
    found = [(-np.inf, 0)] * len(table)
    for first in range(starts[0], ends[-1], size := block_steps(shard)):
        stop = min(first + size, ends[-1])
        values = scores.read(first, stop)
        counts += np.histogram(values, edges)[0]
        usual.append(values[-first % every :: every].copy())
        for i in range(np.searchsorted(ends, first, "right"), np.searchsorted(starts, stop)):
            part = values[max(starts[i] - first, 0) : ends[i] - first]
            at = int(part.argmax())
            if part[at] > found[i][0]:
                found[i] = float(part[at]), ends[i] - 1 - max(starts[i], first) - at
    return found
