"""A sample of steps, each with what came before it, in which rare inputs are as frequent as common ones.

A running max does not change when an input comes a second time. So of each episode only its different inputs are kept,
where they were first seen, and of too many the rarest: however long it is, it takes the room of a few rows.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from stores.layout import LENGTH, START, Field
from stores.reader import Shard, Trajectories

from .. import randomness
from ..streaming.actions import late_field, late_rows, stored_fields
from ..streaming.blocks import Steps, Targets, blocks
from ..streaming.rows import rows_at
from ..tasks.spec import TaskSpec
from .reservoir import (
    BUCKETS,
    MAX_BYTES,
    Growing,
    Reservoir,
    Sample,
    buckets,
    chances,
    float_scales,
    row_codes,
    small_fields,
    some_groups,
)

PAST_ROWS, LARGE_PAST_ROWS = 64, 16  # kept of an episode; of one with images, fewer
MAX_EPISODES = 10_000
LEAD = 1  # rows before a block: the action before its first step


@dataclass(frozen=True)
class Events:
    past: dict[str, np.ndarray]  # (E, S, *row): memory inputs of E episodes, in the order in which they came
    first: np.ndarray  # (E + 1,): the events of episode e are first[e] up to first[e + 1]
    seen: np.ndarray  # (n,): how many of its episode's past rows came up to and with each event
    steps: Reservoir  # (n, ...)
    kinds: np.ndarray  # (n,): which kind of input it has

    @property
    def episodes(self) -> int:
        return len(self.first) - 1

    @property
    def count(self) -> np.ndarray:
        """Events of each episode (E,)."""
        return np.diff(self.first)


def sample_events(trajectories: Trajectories, spec: TaskSpec, gamma: float, window: int, seed: int) -> Events:
    """Two passes: count how frequent each input is, then keep common ones rarely and rare ones always."""
    rng = randomness.stream(seed, randomness.EVENT_SAMPLE)
    fields = _past_fields(spec)
    query, inputs = small_fields(spec), small_fields(spec, spec.memory_input)
    alike = len(inputs) == len(spec.memory_input)  # large fields, such as images, are hardly ever equal
    most = PAST_ROWS if alike else LARGE_PAST_ROWS
    row_bytes = sum(f.row_bytes for f in fields)
    groups = some_groups(trajectories, rng, min(MAX_EPISODES, max(1, MAX_BYTES // (most * row_bytes))))
    needed = (*query, *stored_fields(spec, inputs))
    first_group = blocks(*groups[0], needed, LEAD)
    scales = float_scales({**steps.rows(query), **steps.inputs(spec, inputs)} for steps in first_group)
    counts, past_counts = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    for shard, group in groups:
        for steps in blocks(shard, group, needed, LEAD):
            counts += np.bincount(buckets(steps.rows(query), len(steps), scales), minlength=BUCKETS)
            rows = steps.inputs(spec, inputs)
            past_counts += np.bincount(buckets(rows, len(steps), scales), minlength=BUCKETS)
    keep = chances(counts, spec, window)
    pasts: list[dict[str, np.ndarray]] = []
    sample, kinds = Sample(spec), Growing()
    seen, events = [], []
    for shard, group in groups:
        targets, different, own = Targets(shard, group, spec, gamma), _Different(), Growing()
        for steps in blocks(shard, group, (*spec.query, *needed, spec.target), max(window - 1, LEAD)):
            kind = buckets(steps.rows(query), len(steps), scales)
            chosen = np.flatnonzero(rng.random(len(kind), dtype=np.float32) < keep[kind])
            sample.add(*steps.windows(chosen, window, spec.query), targets(steps)[chosen])
            kinds.add(kind[chosen])
            own.add(steps.first + chosen)
            rows = steps.inputs(spec, inputs)
            # Where inputs cannot be equal, each step counts as another one.
            codes = row_codes(rows) if alike else np.arange(steps.first, steps.first + len(steps))
            different.add(steps, codes, past_counts[buckets(rows, len(steps), scales)])
        table, found = shard.rows(group), own.rows
        kept = different.rarest(most, rng)
        pasts += _past_rows(shard, table, kept, spec)
        edges = np.searchsorted(found, [*table[:, START], table[-1, START] + table[-1, LENGTH]])
        for rows_kept, (begin, stop) in zip(kept, itertools.pairwise(edges), strict=True):
            seen.append(np.searchsorted(rows_kept, found[begin:stop], side="right"))
            events.append(stop - begin)
    first = np.concatenate([[0], np.cumsum(events)])
    return Events(_padded(pasts, fields), first, np.concatenate(seen), sample.reservoir(), kinds.rows)


class _Different:
    """The different inputs of each episode of a group, with the step at which each was first seen.

    It takes the room of those, and of a block: what an episode of many steps with few inputs takes does not depend on
    its length. If every step is another input, as images are, each takes 24 bytes here.
    """

    def __init__(self) -> None:
        self._parts: dict[int, list[tuple[np.ndarray, ...]]] = {}  # by the episode's start: code, step, rarity (n,)

    def add(self, steps: Steps, codes: np.ndarray, rarity: np.ndarray) -> None:
        """A block's steps, with the code of each one's input and how frequent that is (N,)."""
        for a, b in steps.episodes():
            parts = self._parts.setdefault(steps.first + int(steps.starts[a]), [])
            _, where = np.unique(codes[a:b], return_index=True)
            parts.append((codes[a:b][where], steps.first + a + where, rarity[a:b][where]))
            if sum(len(part[0]) for part in parts[1:]) > len(parts[0][0]):
                parts[:] = [_merged(parts)]

    def rarest(self, most: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Of each episode, the steps of its rarest inputs in ascending order."""
        found = []
        for parts in self._parts.values():
            _, steps, rarity = _merged(parts)
            found.append(np.sort(steps[np.lexsort((rng.random(len(steps)), rarity))[:most]]))
        return found


def _merged(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Each code once, with its first step, in the order of the codes."""
    if len(parts) == 1:
        return parts[0]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    _, where = np.unique(columns[0], return_index=True)
    return tuple(column[where] for column in columns)


def _past_rows(shard: Shard, table: np.ndarray, kept: list[np.ndarray], spec: TaskSpec) -> list[dict[str, np.ndarray]]:
    """The memory's inputs at the steps that are kept of each episode."""
    steps, counts = np.concatenate(kept), [len(part) for part in kept]
    starts, end = np.repeat(table[:, START], counts), int(table[-1, START] + table[-1, LENGTH])

    def read(name: str, wanted: np.ndarray) -> np.ndarray:
        return rows_at(name, wanted, shard.layout.chunk_steps, end, shard.read_steps)

    late = spec.late(spec.memory_input)
    found = {name: read(name, steps) for name in spec.memory_input if name not in late}
    for name in late:
        before = read(spec.source(name), np.maximum(steps - 1, starts))
        found[name] = late_rows(spec, name, before, steps == starts)
    split = {name: np.split(values, np.cumsum(counts)[:-1]) for name, values in found.items()}
    return [{name: values[i] for name, values in split.items()} for i in range(len(kept))]


def _past_fields(spec: TaskSpec) -> tuple[Field, ...]:
    late = (late_field(spec, name) for name in spec.late(spec.memory_input))
    return (*(f for f in spec.fields if f.name in spec.memory_input), *late)


def _padded(pasts: list[dict[str, np.ndarray]], fields: tuple[Field, ...]) -> dict[str, np.ndarray]:
    size = max(len(next(iter(rows.values()))) for rows in pasts)
    found = {f.name: np.zeros((len(pasts), size, *f.shape), f.numpy) for f in fields}
    for number, rows in enumerate(pasts):
        for name, values in rows.items():
            found[name][number, : len(values)] = values
    return found
