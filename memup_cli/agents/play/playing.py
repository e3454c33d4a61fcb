"""Playing complete episodes with a policy.

Memory states are kept only if they fit a budget: at 64 x 20,000 steps they are far larger than everything else. The
core's state is kept where segments of `rollout` steps begin, so that all others can be computed again. With a limit,
steps are kept only in part if there are more (thinning.py).
"""

from collections.abc import Callable

import numpy as np
import torch

from ... import randomness
from ...memory.cells import reset
from ..policies import Policy
from .environments import Arena
from .log import Log, Tally
from .recording import Recording, to_device

TOLD_EVERY = 1000  # steps, if nothing is recorded


class Player:
    """Plays a policy in an arena. What it does is a pure function of the weights and the seeds."""

    def __init__(
        self,
        arena: Arena,
        policy: Policy,
        device: torch.device,
        rollout: int,
        budget: int = 0,
        raw: bool = False,
        limit: int | None = None,
    ) -> None:
        self.arena, self.policy, self.device, self.rollout = arena, policy, device, rollout
        self._budget = budget  # bytes of memory states to keep
        self._raw = raw  # record the observations themselves, to be stored; learners want what the policy sees
        self._limit = limit  # steps to keep, about; None: all

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
        told: Callable[[int], None] = lambda _: None,
    ) -> Recording | None:
        """Complete episodes: at least one per environment, then until there are so many steps or episodes.

        seeds: of the environments, if they are not to be drawn from `seed`. epsilon: how many actions are random.
        told: is told now and then how many steps were played. None if stopped() became true; nothing is kept of
        unfinished episodes then.
        """
        rng = randomness.stream(seed, randomness.PLAYED_EPISODES)
        log = Log(self.arena.count, self.rollout, self.device, self._budget, self._limit, rng)
        tally = self._play(log, seed, seeds, steps, episodes, greedy, epsilon, stopped, told)
        return log.recording(tally) if tally else None

    def outcomes(
        self,
        seed: int,
        greedy: bool = False,
        epsilon: float = 0.0,
        told: Callable[[int], None] = lambda _: None,
    ) -> np.ndarray:
        """Return, length and success (E, 3) of an episode per environment, of which nothing else is kept."""
        tally = self._play(None, seed, None, 0, 0, greedy, epsilon, lambda: False, told)
        assert tally
        return tally.episodes()

    def _play(
        self,
        log: Log | None,
        seed: int,
        seeds: list[int] | None,
        steps: int,
        episodes: int,
        greedy: bool,
        epsilon: float,
        stopped: Callable[[], bool],
        told: Callable[[int], None],
    ) -> Tally | None:
        arena, policy, count = self.arena, self.policy, self.arena.count
        step, decide = policy.prepared(), policy.decider()
        drawn = randomness.sequence(seed, randomness.PLAYED_ACTIONS).generate_state(count + 2)
        generator = torch.Generator(self.device).manual_seed(int(drawn[-1]))
        explorer = np.random.Generator(np.random.PCG64(int(drawn[-2])))
        observation, previous = arena.reset(seeds or drawn[:-2].tolist()), arena.nothing_before()
        seen = policy.see(observation) | previous
        state = policy.core.initial(count)
        active, age = np.ones(count, bool), np.zeros(count, np.int64)
        tally = Tally()
        playing, wait = count, 0  # active environments; steps in which no segment begins
        while playing:
            if stopped():
                return None
            if not wait:
                wait = log.begin(active, age, seen, state) if log else TOLD_EVERY
                told(tally.taken)
            with torch.inference_mode():
                features, m, state = step({name: to_device(seen[name], self.device) for name in seen}, state)
                action = policy.choose(decide(features), generator, greedy).cpu().numpy()
            if epsilon:
                arena.explore(action, epsilon, explorer)
            chosen = arena.playable(action)
            outcome = arena.step(chosen)
            over = outcome.ended  # also in environments that only wait for the others
            if log:
                log.remember(m)
                rows = seen | (observation if self._raw else {})
                ends = {"terminated": outcome.terminated, "over": over, "active": active}
                log.step(rows | {"action": arena.stored(action), "reward": outcome.reward} | ends)
            tally.taken += playing
            age += 1
            wait -= 1
            observation, previous = outcome.observation, arena.before(action=chosen, reward=outcome.reward)
            seen = policy.see(observation) | previous
            if outcome.success is None:
                continue
            ended = over & active
            cut = ended & ~outcome.terminated
            if log and cut.any():
                log.cut(cut, seen, state)
            tally.finish(ended, arena.returns, age, outcome.success)
            if tally.taken >= steps and tally.finished >= episodes:
                active = active & ~ended
                playing = int(active.sum())
            age[over] = wait = 0
            observation, state = arena.restart(over), reset(state, to_device(over, self.device))
            for name, none in arena.nothing_before().items():
                previous[name][over] = none[over]
            seen = policy.see(observation) | previous
        return tally
