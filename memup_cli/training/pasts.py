"""A sample of steps, each with what came before it, in which rare inputs are as frequent as common ones.

A running max does not change when an input comes a second time. So of each episode only its different inputs are kept,
where they were first seen, and of too many the rarest: however long it is, it takes the room of a few rows.
"""

import itertools
from dataclasses import dataclass

import numpy as np

from stores.layout import Field
from stores.reader import Trajectories

from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .reservoir import (
    BUCKETS,
    MAX_BYTES,
    Reservoir,
    Steps,
    buckets,
    chances,
    float_scales,
    group_steps,
    read_groups,
    row_codes,
    small_fields,
    some_groups,
)
from .targets import previous_action_field, previous_actions

PAST_ROWS, LARGE_PAST_ROWS = 64, 16  # kept of an episode; of one with images, fewer
MAX_EPISODES = 10_000


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
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 17))))
    fields = _past_fields(spec)
    query, inputs = small_fields(spec), small_fields(spec, spec.memory_input)
    most = PAST_ROWS if len(inputs) == len(spec.memory_input) else LARGE_PAST_ROWS
    row_bytes = sum(f.row_bytes for f in fields)
    groups = some_groups(trajectories, rng, min(MAX_EPISODES, max(1, MAX_BYTES // (most * row_bytes))))
    needed = tuple({*query, *_stored(inputs)})
    example = group_steps(*groups[0], spec, gamma, needed)
    scales = float_scales({**example.arrays, **memory_inputs(example, spec, inputs)})
    counts, past_counts = np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS, np.int64)
    for steps in read_groups(groups, spec, gamma, needed):
        counts += np.bincount(buckets(steps.arrays, query, scales), minlength=BUCKETS)
        if inputs:
            rows = memory_inputs(steps, spec, inputs)
            past_counts += np.bincount(buckets(rows, inputs, scales), minlength=BUCKETS)
    keep = chances(counts, spec, window)
    pasts: list[dict[str, np.ndarray]] = []
    parts: list[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]] = []
    seen, kinds, events = [], [], []
    for steps in read_groups(groups, spec, gamma, tuple({*spec.query, *_stored(spec.memory_input)})):
        kind = buckets(steps.arrays, query, scales)
        chosen = np.flatnonzero(rng.random(len(kind), dtype=np.float32) < keep[kind])
        local = Steps({name: steps.arrays[name] for name in spec.query}, steps.y, steps.starts)
        parts.append((*local.windows(chosen, window), steps.y[chosen]))
        kinds.append(kind[chosen])
        rows = memory_inputs(steps, spec, spec.memory_input)
        rarity = past_counts[buckets(rows, inputs, scales)] if inputs else np.zeros(len(kind))
        # Large fields, such as images, are hardly ever equal: each of their steps counts as another input.
        codes = row_codes(rows) if len(inputs) == len(spec.memory_input) else np.arange(len(kind))
        edges = np.append(np.unique(steps.starts), len(kind))
        for begin, stop in itertools.pairwise(edges):
            first_seen = begin + np.unique(codes[begin:stop], return_index=True)[1]
            rarest = np.lexsort((rng.random(len(first_seen)), rarity[first_seen]))[:most]
            kept = np.sort(first_seen[rarest])
            pasts.append({name: values[kept] for name, values in rows.items()})
            own = chosen[np.searchsorted(chosen, begin) : np.searchsorted(chosen, stop)]
            seen.append(np.searchsorted(kept, own, side="right"))
            events.append(len(own))
    windows = {name: np.concatenate([part[0][name] for part in parts]) for name in spec.query}
    found = Reservoir(windows, np.concatenate([p[1] for p in parts]), np.concatenate([p[2] for p in parts]))
    first = np.concatenate([[0], np.cumsum(events)])
    return Events(_padded(pasts, fields), first, np.concatenate(seen), found, np.concatenate(kinds))


def memory_inputs(steps: Steps, spec: TaskSpec, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Some of the memory's inputs at every step."""
    found = {name: steps.arrays[name] for name in names if name != PREVIOUS_ACTION}
    if PREVIOUS_ACTION in names:
        edges = np.append(np.unique(steps.starts), len(steps.y))
        action = steps.arrays["action"]
        late = [previous_actions(spec, action[a : b - 1], at_start=True) for a, b in itertools.pairwise(edges)]
        found[PREVIOUS_ACTION] = np.concatenate(late)
    return found


def _stored(names: tuple[str, ...]) -> tuple[str, ...]:
    """Fields that memory inputs come from."""
    return tuple("action" if name == PREVIOUS_ACTION else name for name in names)


def _past_fields(spec: TaskSpec) -> tuple[Field, ...]:
    late = (previous_action_field(spec),) if PREVIOUS_ACTION in spec.memory_input else ()
    return (*(f for f in spec.fields if f.name in spec.memory_input), *late)


def _padded(pasts: list[dict[str, np.ndarray]], fields: tuple[Field, ...]) -> dict[str, np.ndarray]:
    size = max(len(next(iter(rows.values()))) for rows in pasts)
    found = {f.name: np.zeros((len(pasts), size, *f.shape), f.numpy) for f in fields}
    for number, rows in enumerate(pasts):
        for name, values in rows.items():
            found[name][number, : len(values)] = values
    return found
