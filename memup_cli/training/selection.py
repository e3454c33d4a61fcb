"""Exact selection of target steps U_t: K steps of [t, T), without replacement, p(k) ~ exp(s_k / temperature).

Gumbel top-K (Kool et al. 2019): add Gumbel noise to s_k / temperature once per visit of an episode; the K largest of a
suffix [t, T) are then such a sample, for every t. The K largest of all suffixes are found in one backward sweep when
the episode enters the slab, O(K T) for T / rollout rollouts; after that a rollout costs a look-up, whatever T is.

Where targets far ahead cannot be known yet, because what they depend on is still to come, a reach makes near ones more
likely: p(k) ~ exp(s_k / temperature - (k - t) / reach). As t is the same for all k of a suffix, it drops out: that is
the same draw with -k / reach added to each, so it costs nothing and one sweep still serves every t.
"""

from dataclasses import dataclass

import numpy as np

BLOCK = 1 << 16  # steps looked at together


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
    """The k largest values of every suffix, by k running maxima from the end: what one displaces feeds the next."""
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


def select(
    scores: np.ndarray, k: int, temperature: float, rng: np.random.Generator, reach: float | None = None
) -> SuffixTop:
    """From the end, a block at a time: only what is among the k best so far is kept, so RAM hardly grows with T."""
    steps, values = np.empty(0, np.int64), np.empty(0, np.float32)  # ascending steps; the only ones that can be chosen
    least = -np.inf  # the k-th best value of what follows
    for stop in range(len(scores), 0, -BLOCK):
        start = max(0, stop - BLOCK)
        found = perturb(scores[start:stop], temperature, rng)
        if reach is not None:  # in float64: the distances of a long episode would swallow the noise
            found = found - np.arange(start, stop) / reach
        near = np.flatnonzero(found > least)
        best = suffix_top(found[near], k).best if len(near) else near
        near = near[np.unique(best[best >= 0])]  # the others are not even among the best of their own block
        steps, values = np.concatenate([start + near, steps]), np.concatenate([found[near], values])
        if len(values) >= k:
            least = np.partition(values, -k)[-k]
    top = suffix_top(values, k)
    return SuffixTop(steps[top.changes], np.where(top.best >= 0, steps[top.best], -1))
