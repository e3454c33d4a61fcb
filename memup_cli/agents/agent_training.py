"""Training one agent: play complete episodes, learn from them, and so on; resumable at every iteration."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch

from stores.layout import LENGTH, START
from stores.reader import Shard, Trajectories

from .. import console, randomness
from ..compute.pace import peak_rss
from ..errors import BadInput
from ..interrupts import StopFlag
from ..options.common import MB
from ..options.until import parse
from ..predictor.predictor import MemoryModel
from ..records import checkpoint
from ..records.extending import Earlier, Extent
from ..records.metrics import Metrics
from ..registries import AGENTS
from ..streaming.moments import Moments
from ..tasks.spec import TaskSpec
from .imitation import Imitation
from .play.environments import Arena
from .play.playing import Player
from .play.recording import Recording
from .play.spread import spread_arena
from .policies import Policy, build_policy

RECENT = 200  # training episodes that say how well it goes
FROZEN_ROLLOUT = 128  # steps between two stored states of a frozen memory
MOST_STEPS = 2_000_000  # of an iteration kept in RAM for PPO on a frozen memory; learning takes 200 bytes for each
SHOWN = 100_000  # steps of an iteration after which the progress is shown
MOST_SEEN = 4 << 30  # bytes of observations among them
EPISODES, STEPS, PIECE = 1000, 10_000_000, 1 << 20  # looked at for the unit of rewards, at most; one episode at least


class AgentLearner(Protocol):
    """What learns from recordings. state() and load() are all a checkpoint needs."""

    policy_class: ClassVar[type[Policy]]
    keeps_all: ClassVar[bool]  # it learns from every step of an episode, however long

    policy: Any

    def state(self) -> dict[str, Any]: ...

    def load(self, state: dict[str, Any]) -> None: ...

    def epsilon(self, share: float) -> float:
        """How many actions are random when a share of the training lies behind."""

    def learn(self, recording: Recording, seed: int, share: float) -> dict[str, float]: ...


@dataclass(frozen=True)
class AgentTraining:
    """All that training one agent depends on, and where its checkpoints and curves go."""

    task: dict[str, Any]
    spec: TaskSpec
    memory: MemoryModel | None
    moments: Moments  # of what is observed; none: it is taken as it is, and so are rewards
    reward_unit: float
    episodes: Trajectories | None  # to imitate first
    config: dict[str, Any]
    seed: int
    device: torch.device
    folder: Path
    logs: Path
    initial: dict[str, torch.Tensor] | None  # weights to go on from
    checkpoint_every: float
    buffer_memory: int
    env_workers: int | None  # processes that step the environments; none given: as many as their steps are worth
    quiet: bool
    earlier: Earlier = ()  # of a training that is extended

    @property
    def rollout(self) -> int:
        return FROZEN_ROLLOUT if self.memory is not None else int(self.config["rollout"])

    def player(self, arena: Arena, policy: Policy) -> Player:
        """A recurrent core wants segments that follow each other, and some learners every step: those keep all."""
        limit = None
        if self.memory is not None and not AGENTS.load(self.config["agent"]).keeps_all:
            limit = min(MOST_STEPS, MOST_SEEN // policy.row_bytes)
        return Player(arena, policy, self.device, self.rollout, self.buffer_memory * MB, limit=limit)


def reward_unit(episodes: Trajectories) -> float:
    """What an episode brings: the root of the mean square of returns, of as many episodes as that takes."""
    where = [(shard, row) for shard, group in episodes.groups() for row in shard.rows(group)][:EPISODES]
    few = max(1, int((np.cumsum([row[LENGTH] for _, row in where]) <= STEPS).sum()))
    returns = [sum(_rewards(shard, int(row[START]), int(row[LENGTH]))) for shard, row in where[:few]]
    return float(np.sqrt(np.mean(np.square(returns)))) or 1.0


def _rewards(shard: Shard, start: int, length: int) -> Iterator[float]:
    """Of pieces of an episode."""
    for first in range(start, start + length, PIECE):
        stop = min(first + PIECE, start + length)
        yield float(shard.read_steps("reward", first, stop).sum(dtype=np.float64))


def build_learner(training: AgentTraining) -> AgentLearner:
    torch.manual_seed(training.seed)
    memory = training.memory.to(training.device) if training.memory is not None else None
    policy = build_policy(training.spec, memory, training.config).to(training.device)
    if training.moments:
        policy.tell_units(training.moments, training.reward_unit)
    if training.initial is not None:
        policy.load_own(training.initial)
    config = {**training.config, "rollout": training.rollout}
    learner: AgentLearner = AGENTS.load(config["agent"])(policy, training.spec, config, training.device)
    return learner


def build_imitation(training: AgentTraining, policy: Any) -> Imitation | None:
    """What comes before playing, if anything does."""
    if training.episodes is None or training.initial is not None:
        return None
    budget, config = training.buffer_memory * MB, training.config
    return Imitation(policy, training.spec, training.episodes, config, training.device, training.seed, budget)


def train(
    training: AgentTraining, stop: StopFlag, still_ours: Callable[[], None], saved_steps: Callable[[int], None]
) -> tuple[Policy, dict[str, Any]]:
    """Train until the steps are used up or the success is reached; if stopped, up to the last whole iteration.

    saved_steps is told how far the last checkpoint goes.
    """
    config = training.config
    schedule = Extent(config["steps"], training.earlier)
    learner = build_learner(training)
    imitation = build_imitation(training, learner.policy)
    iteration = steps = 0
    recent: deque[tuple[float, float, float]] = deque(maxlen=RECENT)  # return, length, success
    seconds = 0.0
    if (saved := checkpoint.load_latest(training.folder, training.device)) is not None:
        with checkpoint.fitting(training.folder):
            learner.load(saved["learner"])
            iteration, steps, seconds = saved["iteration"], saved["steps"], saved["seconds"]
            recent.extend(tuple(row) for row in saved["recent"].tolist())
            if imitation:
                imitation.load(saved["imitation"])
        console.resuming("train-agent", f"{steps:,} steps", training.quiet)

    def place() -> int:
        return iteration + (imitation.done if imitation else 0)

    saved_at, last_saved, began = place(), time.monotonic(), time.perf_counter()

    def save() -> None:
        nonlocal saved_at, last_saved
        content = {
            "learner": learner.state(),
            "imitation": imitation and imitation.state(),
            "iteration": iteration,
            "steps": steps,
            "seconds": seconds + time.perf_counter() - began,
            "recent": torch.tensor(list(recent), dtype=torch.float64).view(-1, 3),
        }
        checkpoint.save(training.folder, place(), content, still_ours)
        saved_steps(steps)
        saved_at, last_saved = place(), time.monotonic()

    def save_if_due() -> None:
        if time.monotonic() - last_saved >= training.checkpoint_every:
            save()

    if imitation and imitation.done < imitation.total:
        imitation.run(lambda: bool(stop), save_if_due, training.quiet)
        save()
    with (
        spread_arena(training.task, training.spec, config["envs"], training.env_workers, stop, training.quiet) as arena,
        Metrics(training.logs, iteration, still_ours) as metrics,
        console.Progress("train-agent", "step", config["steps"], steps, quiet=training.quiet) as bar,
    ):
        player = training.player(arena, learner.policy)
        plays, before = time.perf_counter(), steps

        def show(played: int) -> None:
            if (more := steps + played - bar.done) >= SHOWN:
                bar.advance(more)

        def enough() -> bool:
            return steps > schedule.begun and reached(config, recent)

        while steps < config["steps"] and not stop and not enough():
            share = min(schedule.share(steps), 1.0)
            seed = _iteration_seed(training.seed, iteration)
            epsilon = learner.epsilon(share)
            recording = player.play(
                seed,
                steps=config["iteration_steps"],
                epsilon=epsilon,
                stopped=lambda: bool(stop),
                told=show,
            )
            if recording is None:
                break
            recent.extend(zip(recording.returns, recording.lengths, recording.successes, strict=True))
            found: dict[str, float] = {}
            if not reached(config, recent):  # what has just succeeded is kept as it is
                found = learner.learn(recording, seed, share)
            iteration += 1
            if not (math.isfinite(found.get("loss", 0.0)) and _is_finite(learner.policy)):
                kept = saved_at - place() + iteration
                where = f"the last good checkpoint, of iteration {kept:,}, is kept" if saved_at else "none is saved"
                raise BadInput(
                    f"the agent's loss or weights are no longer finite at iteration {iteration:,}, after "
                    f"{steps + recording.steps:,} steps, with learning rate {config['lr']:.3g}; {where}. Use a smaller "
                    "--lr with --restart."
                )
            steps += recording.steps
            now = {**summarise(recording.returns, recording.lengths, recording.successes), **found}
            metrics.write(iteration, steps=steps, **now)
            bar.advance(steps - bar.done, _progress(recent))
            if time.monotonic() - last_saved >= training.checkpoint_every:
                metrics.sync()
                save()
        if saved_at != place():
            metrics.sync()
            save()
        played_for = time.perf_counter() - plays
    seconds += time.perf_counter() - began
    done = {"steps": steps, "iterations": iteration, "seconds": seconds}
    rate = {"steps_per_second": (steps - before) / max(played_for, 1e-9), "peak_rss_bytes": peak_rss()}
    return learner.policy, {**done, **summarise(*np.array(recent).reshape(-1, 3).T), **rate}


def _is_finite(policy: torch.nn.Module) -> bool:
    return all(bool(weights.isfinite().all()) for weights in policy.parameters())


def reached(config: dict[str, Any], recent: deque[tuple[float, float, float]]) -> bool:
    """Whether --until holds for the last episodes."""
    if not config["until"] or len(recent) < RECENT:
        return False
    return parse(config["until"]).holds(float(np.mean([success for _, _, success in recent])))


def summarise(returns: np.ndarray, lengths: np.ndarray, successes: np.ndarray) -> dict[str, float]:
    known = successes[~np.isnan(successes)]
    found = {"return_mean": float(np.mean(returns)), "length_mean": float(np.mean(lengths))} if len(returns) else {}
    return found | ({"success_rate": float(known.mean())} if len(known) else {})


def _progress(recent: deque[tuple[float, float, float]]) -> str:
    found = summarise(*np.array(recent).T)
    success = f", success {found['success_rate']:.0%}" if "success_rate" in found else ""
    return f"return {found['return_mean']:.3g}{success}"


def _iteration_seed(seed: int, iteration: int) -> int:
    return int(randomness.sequence(seed, randomness.ITERATION, iteration).generate_state(1, np.uint64)[0] >> 1)
