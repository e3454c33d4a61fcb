"""Playing complete episodes with a policy, and what is recorded of them.

Memory states are kept only if they fit a budget: at 64 x 20,000 steps they are far larger than everything else. The
core's state is kept where segments of `rollout` steps begin, so that all others can be computed again.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from ..models.memory import State, reset
from ..tasks.spec import PREVIOUS_ACTION
from .environments import Arena
from .policies import Policy
from .senses import OBSERVATION

SEEN = (OBSERVATION, PREVIOUS_ACTION)
CHUNK = 64  # steps recorded in one piece: small ones in between would keep the heap from shrinking
SWEEP_BYTES = 64 << 20  # of features computed at a time


@dataclass
class Recording:
    """Complete episodes of N environments, time first. Row t * N + i is step t of environment i."""

    arrays: dict[str, np.ndarray]  # (T, N, ...): observation, previous_action, action
    reward: np.ndarray  # (T, N)
    terminated: np.ndarray  # (T, N)
    ended: np.ndarray  # (T, N): terminated or truncated
    segments: np.ndarray  # (S, 3): first row, environment, steps; by environment, then time
    states: State  # of the core at the start of each segment, parts (S, n)
    m: torch.Tensor | None  # (T * N, H) memory states, if they fitted the budget
    final: dict[str, np.ndarray]  # (F, ...): what truncated episodes saw last, and the row before it
    cut_states: State  # of the core at that row
    returns: np.ndarray  # (E,) of the finished episodes, and below their lengths and successes (nan: unknown)
    lengths: np.ndarray
    successes: np.ndarray
    begins: np.ndarray = field(init=False)  # (S,) bool: segments that begin an episode

    def __post_init__(self) -> None:
        rows = self.segments[:, 0]
        before = rows - self.envs
        ended = self.ended.reshape(-1)
        self.begins = (before < 0) | ended[np.maximum(before, 0)]

    @property
    def envs(self) -> int:
        return self.reward.shape[1]

    @property
    def steps(self) -> int:
        return int(self.segments[:, 2].sum())

    def rows(self, segments: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of some segments (S, width), and which of them exist; others repeat the last one."""
        ahead = np.arange(width)
        first, length = self.segments[segments, 0, None], self.segments[segments, 2, None]
        return first + np.minimum(ahead, length - 1) * self.envs, ahead < length

    def take(self, rows: np.ndarray, names: tuple[str, ...], device: torch.device) -> dict[str, torch.Tensor]:
        flat = {name: self.arrays[name].reshape(-1, *self.arrays[name].shape[2:]) for name in names}
        return {name: to_device(values[rows], device) for name, values in flat.items()}


def to_device(values: np.ndarray, device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=True)


class Player:
    """Plays a policy in an arena. What it does is a pure function of the weights and the seeds."""

    def __init__(
        self, arena: Arena, policy: Policy, device: torch.device, rollout: int, budget: int = 0, raw: bool = False
    ) -> None:
        self.arena, self.policy, self.device, self.rollout = arena, policy, device, rollout
        self._budget = budget  # bytes of memory states to keep
        self._raw = raw  # record the observations themselves, to be stored; learners want what the policy sees

    def play(
        self,
        seed: int,
        *,
        seeds: list[int] | None = None,
        steps: int = 0,
        episodes: int = 0,
        greedy: bool = False,
        epsilon: float = 0.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Recording | None:
        """Complete episodes: at least one per environment, then until there are so many steps or episodes.

        seeds: of the environments, if they are not to be drawn from `seed`. epsilon: how many actions are random.
        None if stopped() became true; nothing is kept of unfinished episodes then.
        """
        arena, policy, count = self.arena, self.policy, self.arena.count
        step, decide = policy.prepared(), policy.decider()
        drawn = np.random.SeedSequence((seed, 17)).generate_state(count + 2)
        generator = torch.Generator(self.device).manual_seed(int(drawn[-1]))
        explorer = np.random.Generator(np.random.PCG64(int(drawn[-2])))
        observation, previous = arena.reset(seeds or drawn[:-2].tolist()), arena.no_action()
        sight = policy.see(observation)
        state = policy.core.initial(count)
        active, age = np.ones(count, bool), np.zeros(count, np.int64)
        log = _Log(count, self._budget)
        playing, wait = count, 0  # active environments; steps in which no segment begins
        while playing:
            if stopped():
                return None
            if not wait:
                log.start_segments(active & (age % self.rollout == 0), state, self.device)
                wait = self.rollout - int((age % self.rollout).max())
            with torch.inference_mode():
                seen = {OBSERVATION: sight, PREVIOUS_ACTION: previous}
                features, m, state = step({name: to_device(seen[name], self.device) for name in seen}, state)
                action = policy.choose(decide(features), generator, greedy).cpu().numpy()
            log.remember(m)
            if epsilon:
                arena.explore(action, epsilon, explorer)
            chosen = arena.playable(action)
            outcome = arena.step(chosen)
            over = outcome.ended  # also in environments that only wait for the others
            kept = observation if self._raw else sight
            log.step(playing, kept, previous, action, outcome.reward, outcome.terminated, over, active)
            age += 1
            wait -= 1
            observation, previous = outcome.observation, chosen.astype(previous.dtype)
            sight = policy.see(observation)
            if outcome.success is None:
                continue
            ended = over & active
            cut = ended & ~outcome.terminated
            if cut.any():
                log.cut(cut, sight, previous, state, self.device)
            log.finish(ended, arena.returns, age, outcome.success)
            if log.taken >= steps and log.finished >= episodes:
                active = active & ~ended
                playing = int(active.sum())
            age[over] = wait = 0
            observation, state = arena.restart(over), reset(state, to_device(over, self.device))
            sight = policy.see(observation)
            previous[over] = arena.no_action()[over]
        return log.recording()


class _Log:
    """Grows by a step at a time; recording() lays it out."""

    def __init__(self, count: int, budget: int) -> None:
        self._count, self._time, self._left = count, 0, budget // 2  # laying them out takes as much again
        self._m: list[torch.Tensor] | None = []  # (CHUNK, N, H)
        self._steps: list[list[np.ndarray]] = []  # columns of (CHUNK, N, ...)
        self._starts: list[np.ndarray] = []  # (k, 2): time, environment
        self._states: list[State] = []
        self._cuts: list[tuple[np.ndarray, ...]] = []
        self._cut_states: list[State] = []
        self._episodes: list[np.ndarray] = []  # (k, 3): return, length, success
        self.taken = self.finished = 0

    def start_segments(self, due: np.ndarray, state: State, device: torch.device) -> None:
        which = np.flatnonzero(due)
        if not len(which):
            return
        self._starts.append(np.stack([np.full(len(which), self._time), which], 1))
        rows = to_device(which, device)
        self._states.append(state if len(which) == self._count else tuple(part[rows] for part in state))

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

    def step(self, playing: int, *values: np.ndarray) -> None:
        place = self._time % CHUNK
        if place == 0:
            self._steps.append([np.empty((CHUNK, *v.shape), v.dtype) for v in values])
        for column, value in zip(self._steps[-1], values, strict=True):
            column[place] = value
        self.taken += playing
        self._time += 1

    def cut(
        self, cut: np.ndarray, observation: np.ndarray, previous: np.ndarray, state: State, device: torch.device
    ) -> None:
        which = np.flatnonzero(cut)
        rows = to_device(which, device)
        self._cuts.append((observation[which], previous[which], (self._time - 1) * self._count + which))
        self._cut_states.append(tuple(part[rows] for part in state))

    def finish(self, ended: np.ndarray, *values: np.ndarray) -> None:
        self._episodes.append(np.stack([column[ended] for column in values], 1))
        self.finished += int(ended.sum())

    def recording(self) -> Recording:
        columns = [np.concatenate(c)[: self._time] for c in zip(*self._steps, strict=True)]
        self._steps.clear()
        observation, previous, action, reward, terminated, over, active = columns
        starts = np.concatenate(self._starts)
        order = np.lexsort((starts[:, 0], starts[:, 1]))  # by environment, then time
        starts = starts[order]
        taken = active.sum(0)  # the steps of an environment come first, then it waits
        following = np.append(starts[1:, 0], 0)
        last = np.append(starts[1:, 1] != starts[:-1, 1], True)
        stop = np.where(last, taken[starts[:, 1]], following)
        segments = np.stack([starts[:, 0] * self._count + starts[:, 1], starts[:, 1], stop - starts[:, 0]], 1)
        episodes = np.concatenate(self._episodes)
        final = {}
        if self._cuts:
            names = (OBSERVATION, PREVIOUS_ACTION, "row")
            final = {name: np.concatenate(c) for name, c in zip(names, zip(*self._cuts, strict=True), strict=True)}
        permuted = torch.from_numpy(order)
        return Recording(
            {OBSERVATION: observation, PREVIOUS_ACTION: previous, "action": action},
            reward,
            terminated & active,
            over & active,
            segments,
            tuple(torch.cat(parts)[permuted.to(parts[0].device)] for parts in zip(*self._states, strict=True)),
            torch.cat(self._m)[: self._time].flatten(0, 1) if self._m is not None else None,
            final,
            tuple(torch.cat(parts) for parts in zip(*self._cut_states, strict=True)),
            episodes[:, 0],
            episodes[:, 1],
            episodes[:, 2],
        )


@dataclass(frozen=True)
class Swept:
    """Some segments of a recording, side by side."""

    rows: np.ndarray  # (S, r)
    exists: np.ndarray  # (S, r): a short segment repeats its last row
    arrays: dict[str, torch.Tensor]  # (S, r, ...)
    m: torch.Tensor  # (S, r, H)


def sweep(
    recording: Recording, policy: Policy, rollout: int, device: torch.device, only: np.ndarray | None = None
) -> Iterator[Swept]:
    """Memory states of a bounded number of segments at a time, kept or computed again; `only` some of them (S,)."""
    size = max(1, SWEEP_BYTES // (rollout * max(8 * policy.features, policy.sight.row_bytes)))
    wanted = np.arange(len(recording.segments)) if only is None else np.flatnonzero(only)
    for first in range(0, len(wanted), size):
        segments = wanted[first : first + size]
        rows, exists = recording.rows(segments, rollout)
        arrays = recording.take(rows, (*SEEN, "action"), device)
        with torch.inference_mode():
            if recording.m is not None:
                m = recording.m[to_device(rows, device)]
            else:
                which = to_device(segments, device)
                m, _ = policy.remember(arrays, tuple(part[which] for part in recording.states))
        yield Swept(rows, exists, arrays, m)


def final_states(recording: Recording, policy: Policy, device: torch.device) -> torch.Tensor:
    """Memory states (F, H) at what cut episodes saw last."""
    arrays = {name: to_device(recording.final[name], device).unsqueeze(1) for name in SEEN}
    with torch.inference_mode():
        m, _ = policy.remember(arrays, recording.cut_states)
        return m.squeeze(1)
