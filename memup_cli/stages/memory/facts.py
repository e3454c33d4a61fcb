"""What the scored episodes of a run look like, as far as a plan goes by it; looked at on validation episodes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stores.layout import LENGTH, START
from stores.manifest import Manifest
from stores.reader import Shard
from stores.scores import ScoreReader, score_path

from ...learning.rarity import Rarity
from ...memory.encoders import FieldEncoder
from ...records.opening import split_of
from ...selection.importance import recorded_scale, separates
from ...selection.utility import probe_tells
from ...streaming.moments import moments_of, rarest
from ...streaming.reading import ChunkReader
from ...streaming.targets import TARGET
from ...tasks.spec import TaskSpec

EPISODES, STEPS = 100, 2_000_000  # looked at, at most; one episode at least
RARE = 10.0  # kurtosis: about that of what comes in one of as many steps
FIRST, OFTEN = 20, 0.3  # steps that an episode begins with, and how rare they are on average, if that counts
MANY = 64  # surprising steps of an episode that are compared with each other


@dataclass(frozen=True)
class Facts:
    episodes: int  # to train on
    usual_length: int
    longest: int
    scored: bool  # there are stored scores to go by
    separates: bool  # by them, some steps are more uncertain than others
    useful: bool  # a probe found which of those the past explains
    events: float  # steps of an episode that stand out
    alike: float  # share of them that look like another one of their episode, which came out otherwise
    rare: bool  # some inputs are far from the usual ones
    begins: bool  # many of them at the start of an episode
    numbers: bool  # are predicted, not classes
    returns: bool  # of rewards: an agent may act on what is predicted
    images: bool  # are what the memory reads


def facts_of(manifest: Manifest, spec: TaskSpec, detector: str, gamma: float) -> Facts:
    """detector: whose scores; empty if none are used."""
    train = split_of(manifest, "train")
    told = bool(detector) and separates(manifest)
    found = [_alike(*each, spec, gamma) for each in _events(manifest, spec, detector)] if told else []
    alike = [share for count, share in found if count]
    return Facts(
        episodes=len(train),
        usual_length=int(np.median(train.lengths)),
        longest=int(train.lengths.max()),
        scored=bool(detector),
        separates=told,
        useful=told and probe_tells(manifest),
        events=float(np.mean([count for count, _ in found])) if found else 0.0,
        alike=float(np.mean(alike)) if alike else 0.0,
        rare=(rare := rarest(moments_of(manifest, spec), spec) >= RARE),
        begins=rare and _begins(manifest, spec),
        numbers=spec.target_kind != "classes",
        returns=spec.target_kind == "return",
        images=bool(FieldEncoder(spec, spec.memory_input).images),
    )


def _begins(manifest: Manifest, spec: TaskSpec) -> bool:
    """Whether the first steps of validation episodes are much rarer than those in the middle."""
    rarity = Rarity(split_of(manifest, "train"), spec, FIRST)
    names = [field.name for field in spec.fields if field.name in spec.memory_input]
    chances: list[list[float]] = []  # of each episode: of its first steps, and of some in the middle

    def chance(shard: Shard, start: int) -> float:
        return float(rarity.chance({n: shard.read_steps(n, start, start + FIRST)[None] for n in names})[0])

    for shard, group in split_of(manifest, "validation").groups():
        for row in shard.rows(group)[: EPISODES - len(chances)]:
            if row[LENGTH] >= 3 * FIRST:
                start = int(row[START])
                chances.append([chance(shard, start), chance(shard, start + int(row[LENGTH]) // 2)])
    first, middle = np.mean(chances, axis=0) if chances else (0.0, 0.0)
    return bool(rarity.tells and first >= OFTEN and first >= 2 * middle)


def target_moments(manifest: Manifest, spec: TaskSpec, detector: str, gamma: float) -> tuple[float, float]:
    """Mean and spread of the numbers that are to be predicted; of what does not vary, a spread of 1."""
    if spec.target_kind == "classes":
        return 0.0, 1.0
    read = ChunkReader()
    found = [
        read.episode(shard, row, spec, gamma)(TARGET, 0, int(row[LENGTH]))[steps].astype(np.float64)
        for shard, row, steps in _events(manifest, spec, detector)
    ]
    y = np.concatenate(found)
    if not len(y):
        return 0.0, 1.0
    spread = float(y.std())
    return float(y.mean()), spread if spread > 1e-6 * float(np.abs(y).max()) else 1.0


def _events(manifest: Manifest, spec: TaskSpec, detector: str) -> Iterator[tuple[Shard, np.ndarray, np.ndarray]]:
    """Validation episodes and their steps that stand out; without scores that tell, all steps."""
    told = bool(detector) and separates(manifest)
    standing_out = recorded_scale(manifest, detector).standing_out
    seen = steps = 0
    for shard, group in split_of(manifest, "validation").groups():
        scores = ScoreReader(score_path(manifest.run, detector, shard), shard) if told else None
        for row in shard.rows(group):
            length = int(row[LENGTH])
            yield shard, row, np.flatnonzero(scores.episode(row) >= standing_out) if scores else np.arange(length)
            seen, steps = seen + 1, steps + length
            if seen >= EPISODES or steps >= STEPS:
                return


def _alike(shard: Shard, episode: np.ndarray, steps: np.ndarray, spec: TaskSpec, gamma: float) -> tuple[int, float]:
    """How many steps of an episode stand out, and the share of them whose query another has that came out otherwise."""
    if not len(steps):
        return 0, 0.0
    read, start, some = ChunkReader(), int(episode[START]), steps[:MANY]
    y = read.episode(shard, episode, spec, gamma)(TARGET, 0, int(episode[LENGTH]))[some]

    def query(k: int) -> np.ndarray:
        parts = [read(shard, name, start + k, start + k + 1).ravel() for name in spec.query]
        return np.concatenate([part.astype(np.float32) for part in parts])

    queries = np.stack([query(int(k)) for k in some])
    same = (queries[:, None] == queries[None]).all(-1)
    differ = ~np.isclose(y[:, None], y[None], rtol=1e-3, atol=1e-6)
    return len(steps), float((same & differ).any(1).mean())
