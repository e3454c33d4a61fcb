"""Exact selection of target steps U_t: K steps of [t, T), without replacement, p(k) ~ exp(s_k / temperature).

Gumbel top-K (Kool et al. 2019): add Gumbel noise to s_k / temperature once per visit of an episode; the K largest of a
suffix [t, T) are then such a sample, for every t. The K largest of all suffixes are found in one backward sweep when
the episode enters the slab, O(K T) for T / rollout rollouts; after that a rollout costs a look-up, whatever T is.

Where targets far ahead cannot be known yet, because what they depend on is still to come, a reach makes near ones more
likely: p(k) ~ exp(s_k / temperature - (k - t) / reach). As t is the same for all k of a suffix, it drops out: that is
the same draw with -k / reach added to each, so it costs nothing and one sweep still serves every t.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

BLOCK = 1 << 16  # steps perturbed together
PIECE, GROWTH = 64, 8  # looked at together: a few at a block's end, then more and more
FEW = 16  # values per target up to which all suffixes are looked at side by side: fewer calls, for short episodes


@dataclass(frozen=True)
class SuffixTop:
    """The K best steps of every suffix, kept only where they change."""

    changes: np.ndarray  # (R,) ascending: the best of [t, T) are those at the first change at or after t
    best: np.ndarray  # (R, K) steps, best first; -1 where the suffix has fewer than K

    def at(self, t: np.ndarray) -> np.ndarray:
        """Target steps for prediction points t (...): (..., K)."""
        return self.best[np.searchsorted(self.changes, t)]


def perturb(scores: np.ndarray, temperature: float, rng: np.random.Generator) -> np.ndarray:
    """Scores / temperature plus Gumbel noise: -log of a standard exponential."""
    noise = rng.standard_exponential(len(scores), np.float32)
    np.log(np.maximum(noise, np.finfo(np.float32).tiny, out=noise), out=noise)
    return scores.astype(np.float32, copy=False) / np.float32(temperature) - noise


def suffix_top(values: np.ndarray, k: int) -> SuffixTop:
    """The k largest values of every suffix; of equal ones the later comes first."""
    return _side_by_side(values, k) if len(values) <= FEW * k else _in_one_sweep(values, k)


def _side_by_side(values: np.ndarray, k: int) -> SuffixTop:
    """All suffixes at once: in each, the first k of what lies in it, best first."""
    steps = np.arange(len(values))
    order = steps[::-1][np.argsort(-values[::-1], kind="stable")]  # (T,) best first
    order = order[values[order] > -np.inf]
    rank = np.cumsum(inside := order >= steps[:, None], axis=1)  # (T, T)
    suffix, column = np.nonzero(inside & (rank <= k))
    best = np.full((len(values), k), -1)
    best[suffix, rank[suffix, column] - 1] = order[column]
    changes = np.flatnonzero((best == steps[:, None]).any(1))
    return SuffixTop(changes, best[changes])


def _in_one_sweep(values: np.ndarray, k: int) -> SuffixTop:
    """k running maxima from the end: what one displaces feeds the next."""
    length = len(values)
    current = values[::-1]  # (T,) candidates for this rank, from the end
    step = np.arange(length - 1, -1, -1)  # (T,) which step each candidate is
    place = np.arange(length)
    ranks, changed = [], np.zeros(length, bool)
    for _ in range(k):
        running = np.maximum.accumulate(current)
        new = np.empty(length, bool)  # the candidate takes this rank
        new[0] = current[0] > -np.inf
        new[1:] = running[1:] > running[:-1]
        holder = np.maximum.accumulate(np.where(new, place, -1))
        rank = np.where(holder >= 0, step[holder], -1)
        ranks.append(rank)
        changed |= new
        before = np.concatenate([[-np.inf], running[:-1]]).astype(values.dtype)
        current = np.where(new, before, current)
        step = np.where(new, np.concatenate([[-1], rank[:-1]]), step)
    where = np.flatnonzero(changed)[::-1]  # ascending steps: the sweep ran from the end
    best = np.stack([rank[where] for rank in ranks], axis=1)
    return SuffixTop(length - 1 - where, best)


class Sliced(Protocol):
    """An array, or something that is read a slice at a time."""

    def __len__(self) -> int: ...

    def __getitem__(self, which: slice, /) -> np.ndarray: ...


def select(
    scores: Sliced, k: int, temperature: float, rng: np.random.Generator, reach: float | None = None
) -> SuffixTop:
    """From the end, a piece at a time: what cannot be among the k best any more is left out, in RAM and in time."""
    steps, values = np.empty(0, np.int64), np.empty(0, np.float32)  # ascending steps; the only ones that can be chosen
    least = -np.inf  # the k-th best value of what follows
    for stop in range(len(scores), 0, -BLOCK):
        start = max(0, stop - BLOCK)
        found = perturb(scores[start:stop], temperature, rng)
        if reach is not None:  # in float64: the distances of a long episode would swallow the noise
            found = found - np.arange(start, stop) / reach
        last, size = len(found), PIECE
        while last > 0:
            first = max(0, last - size)
            near = first + np.flatnonzero(found[first:last] > least)
            last, size = first, size * GROWTH
            if not len(near):
                continue
            best = suffix_top(found[near], k).best
            near = near[np.unique(best[best >= 0])]  # the others are not even among the best of their own piece
            steps, values = np.concatenate([start + near, steps]), np.concatenate([found[near], values])
            if len(values) >= k:
                least = np.partition(values, -k)[-k]
    top = suffix_top(values, k)
    return SuffixTop(steps[top.changes], np.where(top.best >= 0, steps[top.best], -1))
