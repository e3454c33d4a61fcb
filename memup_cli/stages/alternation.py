"""Alternating schedule: the agent's episodes train the memory, the memory serves the agent, in rounds.

A round lives in rounds/<agent>/<number>/, an ordinary run of its own: trajectories that the policy played, their
scores, the memory trained on from the one before, and the agent trained on from the one before. Each of its phases is
resumed like the stage it is.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from stores.groups import Episode
from stores.manifest import Manifest

from ..agents.agent_training import FROZEN_ROLLOUT, train
from ..agents.play.environments import Arena
from ..agents.play.playing import Player
from ..agents.play.spread import spread_arena
from ..agents.policies import Policy
from ..compute.devices import weights_digest
from ..detector.detection import ScoreConfig
from ..errors import Interrupted, Stopped
from ..interrupts import StopFlag
from ..learning.weights import load_model
from ..limits import available_cpus
from ..options.memory_options import TrainMemoryOptions
from ..records.opening import split_of
from ..records.runs import recorded_config
from ..tasks.spec import TaskOptions, TaskSpec
from .agent_stage import AgentJob
from .collect.collection import Collection, collect
from .lifecycle import continue_command, record
from .memory.memory_job import resolve as resolve_memory
from .memory.memory_stage import train_memory
from .scoring import score

EXPLORE = 0.25  # random actions while collecting: where the policy is always right there is no surprise to learn from


class PlayedTask:
    """A task whose episodes a policy plays, many side by side."""

    Options: ClassVar[type[TaskOptions]] = TaskOptions
    summary: ClassVar[str] = "episodes of a trained policy"
    example: ClassVar[str] = ""
    vectorised: ClassVar[bool] = True

    def __init__(self, arena: Arena, spec: TaskSpec, policy: Policy, device: torch.device, length: int) -> None:
        self._arena, self.spec, self._length = arena, spec, length
        self._player = Player(arena, policy, device, FROZEN_ROLLOUT, raw=True)

    run_name, default_episodes, max_length = "", (0, 0), None

    def typical_length(self, seed: int) -> int:
        return self._length

    def episode(self, seed: int) -> Episode:
        return next(self.episodes([seed]))

    def episodes(self, seeds: list[int]) -> Iterator[Episode]:
        """Episodes in the order of their seeds, a batch of environments at a time."""
        fields = {f.name: f.numpy for f in self.spec.fields}
        for first in range(0, len(seeds), self._arena.count):
            batch = seeds[first : first + self._arena.count]
            padded = batch + batch[:1] * (self._arena.count - len(batch))
            played = self._player.play(padded[0] & 0x7FFFFFFF, seeds=[s & 0x7FFFFFFF for s in padded], epsilon=EXPLORE)
            assert played is not None
            for env, seed in enumerate(batch):
                length = int(played.ended[:, env].argmax()) + 1
                arrays = {
                    **{name: played.arrays[name][:length, env] for name in self.spec.observed},
                    "action": played.arrays["action"][:length, env].astype(fields["action"]),
                    "reward": played.reward[:length, env],
                }
                yield Episode(arrays, seed, bool(played.terminated[length - 1, env]))


def alternate(
    job: AgentJob,
    policy: Policy,
    metrics: dict[str, Any],
    stop: StopFlag,
    still_ours: Callable[[], None],
    saved_steps: Callable[[int], None],
) -> tuple[Policy, dict[str, Any], Manifest]:
    """The rounds after the first agent training; returns the last policy, all metrics, and the run of its memory."""
    rounds: list[dict[str, Any]] = []
    home = job.manifest
    steps, seconds = metrics["steps"], metrics["seconds"]
    for number in range(1, job.options.alternate + 1):
        folder = job.manifest.run / "rounds" / job.agent / f"{number:02d}"
        entry: dict[str, Any] = {"round": number, "path": str(folder.relative_to(job.manifest.run))}
        rounds.append(entry)

        def note(phase: str, entry: dict[str, Any] = entry) -> None:
            if stop:  # a signal between two phases, each of which has a flag of its own
                raise stop.error(f"round {entry['round']} has come to {phase}", continue_command())
            entry["phase"] = phase
            started = job.manifest.stages[job.stage]["started"]
            record(job.manifest, job.stage, "running", still_ours, rounds=rounds, started=started)

        try:
            note("collect")
            home = _collect(job, policy, folder, stop)
            if "score" in job.manifest.stages and job.manifest.stages["train-memory"]["config"]["detector"]:
                note("score")
                config = ScoreConfig(**job.manifest.stages["score"]["config"])
                score(folder, config, job.device, restart=False, quiet=job.quiet)
            note("train-memory")
            entry["memory"] = _train_memory(job, home, number)
        except (Stopped, Interrupted) as error:
            raise type(error)(f"{error}".split(" To continue:")[0] + f" To continue: {continue_command()}") from None
        note("train-agent")
        home = Manifest.load(folder)
        training = replace(
            job.training(load_model(home, job.options.checkpoint)),
            seed=job.seed + number,
            folder=folder / "agent",
            logs=folder / "logs" / "train-agent",
            initial=policy.own_state(),
        )
        policy, found = train(training, stop, still_ours, partial(_add, saved_steps, steps))
        entry["agent"] = found
        steps, seconds = steps + found["steps"], seconds + found["seconds"]
        if stop:
            break
        note("complete")
    return policy, {**metrics, **rounds[-1].get("agent", {}), "steps": steps, "seconds": seconds}, home


def _add(saved_steps: Callable[[int], None], before: int, more: int) -> None:
    saved_steps(before + more)


def _collect(job: AgentJob, policy: Policy, folder: Path, stop: StopFlag) -> Manifest:
    """Episodes of the current policy, as many as the run has; a pure function of its weights and the seed."""
    base = job.manifest.stages["collect"]["config"]
    played_by = weights_digest(policy)
    length = int(split_of(job.manifest, "train").lengths.mean())
    workers = job.options.env_workers
    with spread_arena(job.manifest.task, job.spec, job.options.envs, workers, stop, job.quiet) as arena:
        task = PlayedTask(arena, job.spec, policy, job.device, length)
        collect(
            Collection(
                task_name=job.manifest.task["name"],
                task=task,
                task_options={**job.manifest.task["options"], "played_by": played_by},
                run=folder,
                config={
                    "episodes": base["episodes"],
                    "test_episodes": base["test_episodes"],
                    "seed": job.seed,
                    "shards": 1,
                },
                part=0,
                workers=available_cpus(),
                commit_every=2.0,
                restart=False,
                quiet=job.quiet,
            )
        )
    return Manifest.load(folder)


def _train_memory(job: AgentJob, home: Manifest, number: int) -> dict[str, Any]:
    """Go on with the memory of the round before, on this round's episodes."""
    before = job.manifest if number == 1 else Manifest.load(home.run.parent / f"{number - 1:02d}")
    recorded = recorded_config(job.manifest, "train-memory")
    fields = {k: v for k, v in recorded.items() if k in TrainMemoryOptions.model_fields and k != "detector"}
    options = TrainMemoryOptions(**fields)
    memory_job = resolve_memory(home.run, options, job.seed + number, job.device, restart=False, quiet=job.quiet)
    summary = train_memory(replace(memory_job, initial=load_model(before, job.options.checkpoint)))
    return {name: summary[name] for name in ("updates", "rmse", "accuracy") if name in summary}
