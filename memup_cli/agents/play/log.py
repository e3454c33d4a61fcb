"""What a player writes down while it plays; it grows by a step at a time, and recording() lays it out."""

import numpy as np
import torch

from ...memory.cells import State
from .recording import Recording, to_device
from .thinning import FEWEST_BLOCKS, Block, Onward, Thinning

CHUNK = 64  # steps recorded in one piece: small ones in between would keep the heap from shrinking


class Tally:
    """How many steps were played, and how the finished episodes went."""

    def __init__(self) -> None:
        self._episodes: list[np.ndarray] = []
        self.taken = self.finished = 0

    def finish(self, ended: np.ndarray, *values: np.ndarray) -> None:
        self._episodes.append(np.stack([column[ended] for column in values], 1))
        self.finished += int(ended.sum())

    def episodes(self) -> np.ndarray:
        """(E, 3): return, length, success."""
        return np.concatenate(self._episodes)


class Log:
    """Steps in blocks, and the core's state where segments of `rollout` steps begin.

    Segments begin at every `rollout`-th step of an episode. With a limit they may have to begin with the blocks, which
    are `rollout` steps then, too: both are noted until the first block is dropped.
    """

    def __init__(
        self, count: int, rollout: int, device: torch.device, budget: int, limit: int | None, rng: np.random.Generator
    ) -> None:
        """budget: bytes of memory states to keep; limit: steps of all environments to keep, about."""
        self._count, self._rollout, self._device, self._limited = count, rollout, device, limit is not None
        self._time, self._left = 0, budget // 2  # laying them out takes as much again
        self._width = CHUNK if limit is None else rollout
        most = None if limit is None else max(FEWEST_BLOCKS, limit // (rollout * count))
        self._thinning = Thinning(most, rng)
        self._block = Block(0, {})
        self._m: list[torch.Tensor] | None = []  # (CHUNK, N, H)

    def begin(self, active: np.ndarray, age: np.ndarray, seen: dict[str, np.ndarray], state: State) -> int:
        """Begin the blocks and segments that are due, with what is seen next; returns the steps until others are."""
        place, phase, self._seen = self._time % self._width, age % self._rollout, tuple(seen)
        if place == 0 and self._time:
            if self._limited:
                which = np.flatnonzero(active & (age > 0))
                self._block.onward = Onward(which, {n: v[which] for n, v in seen.items()}, state)
            self._next_block()
        by_age = active & (phase == 0)
        by_block = active & ((age == 0) | (place == 0)) if self._limited else by_age
        which = np.flatnonzero(by_block if self._thinning.dropped else by_age | by_block)
        if len(which):
            self._block.starts.append(np.stack([np.full(len(which), place), which, by_age[which], by_block[which]], 1))
            self._block.states.append(state if len(which) == self._count else self._some(state, which))
        return min(self._rollout - int(phase.max()), self._width - place)

    def _next_block(self) -> None:
        self._thinning.add(self._block)
        self._block = Block(self._time // self._width, {})
        if self._thinning.dropped:
            self._m = None

    def _some(self, state: State, which: np.ndarray) -> State:
        rows = to_device(which, self._device)
        return tuple(part[rows] for part in state)

    def remember(self, m: torch.Tensor) -> None:
        """Keep memory states (N, H) as long as all of them fit the budget."""
        if self._m is None:
            return
        if self._time % CHUNK == 0:
            self._m.append(m.new_empty(CHUNK, *m.shape))
            self._left -= self._m[-1].nbytes
            if self._left < 0:
                self._m = None
                return
        self._m[-1][self._time % CHUNK] = m

    def step(self, values: dict[str, np.ndarray]) -> None:
        block = self._block
        if not block.used:
            block.columns = {name: np.empty((self._width, *v.shape), v.dtype) for name, v in values.items()}
        for name, value in values.items():
            block.columns[name][block.used] = value
        block.used += 1
        self._time += 1

    def cut(self, cut: np.ndarray, seen: dict[str, np.ndarray], state: State) -> None:
        which = np.flatnonzero(cut)
        row = (self._block.used - 1) * self._count + which
        self._block.cuts.append({**{n: v[which] for n, v in seen.items()}, "row": row})
        self._block.cut_states.append(self._some(state, which))

    def recording(self, tally: Tally) -> Recording:
        thinning = self._thinning
        thinning.add(self._block)
        thinning.settle()
        blocks, thinned = thinning.kept, thinning.dropped
        first = np.cumsum([0] + [block.used for block in blocks])
        columns = {n: np.concatenate([b.columns.pop(n)[: b.used] for b in blocks]) for n in list(blocks[0].columns)}
        active = columns["active"]
        ended = columns["over"] & active
        if thinned:
            self._close_gaps(blocks, first, ended)
        starts = np.concatenate(
            [s + np.array([t, 0, 0, 0]) for b, t in zip(blocks, first, strict=False) for s in b.starts]
        )
        order = np.lexsort((starts[:, 0], starts[:, 1]))  # by environment, then time
        order = order[starts[order, 3 if thinned else 2] > 0]
        starts = starts[order]
        taken = active.sum(0)  # the steps of an environment come first, then it waits
        following = np.append(starts[1:, 0], 0)
        last = np.append(starts[1:, 1] != starts[:-1, 1], True)
        stop = np.where(last, taken[starts[:, 1]], following)
        segments = np.stack([starts[:, 0] * self._count + starts[:, 1], starts[:, 1], stop - starts[:, 0]], 1)
        states = [s for b in blocks for s in b.states]
        cuts = [c | {"row": c["row"] + t * self._count} for b, t in zip(blocks, first, strict=False) for c in b.cuts]
        final = {name: np.concatenate([c[name] for c in cuts]) for name in (*self._seen, "row")} if cuts else {}
        permuted = torch.from_numpy(order)
        episodes = tally.episodes()
        return Recording(
            {name: columns[name] for name in (*self._seen, "action")},
            columns["reward"],
            columns["terminated"] & active,
            ended,
            segments,
            tuple(torch.cat(parts)[permuted.to(parts[0].device)] for parts in zip(*states, strict=True)),
            torch.cat(self._m)[: self._time].flatten(0, 1) if self._m is not None and not thinned else None,
            final,
            tuple(torch.cat(p) for p in zip(*(s for b in blocks for s in b.cut_states), strict=True)),
            episodes[:, 0],
            episodes[:, 1],
            episodes[:, 2],
            tally.taken,
            np.repeat([float(thinning.weight(b)) for b in blocks], np.diff(first)) if thinned else None,
        )

    def _close_gaps(self, blocks: list[Block], first: np.ndarray, ended: np.ndarray) -> None:
        """Where the next block was dropped, episodes that go on end as if a time limit had cut them."""
        numbers = [block.number for block in blocks] + [-1]
        for block, after, stop in zip(blocks, numbers[1:], first[1:], strict=True):
            onward = block.onward
            if onward is None or after == block.number + 1 or not len(onward.which):
                continue
            block.cuts.append({**onward.seen, "row": (block.used - 1) * self._count + onward.which})
            block.cut_states.append(self._some(onward.state, onward.which))
            ended[stop - 1, onward.which] = True
