"""The train-agent stage: what it needs, what it records, and the agent it leaves in agent/<name>/."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stores.files import remove_tree
from stores.manifest import Manifest

from ..agents.agent_training import AgentTraining, reward_unit, train
from ..agents.play.environments import open_arena
from ..agents.saved import save_policy
from ..errors import UsageProblem
from ..learning.weights import load_model
from ..options.agent_options import TrainAgentOptions
from ..predictor.contexts import context_class
from ..predictor.predictor import MemoryModel
from ..records import checkpoint
from ..records.extending import earlier_parts, is_extension
from ..records.opening import digests, open_run, require, spec_of, split_of
from ..records.runs import altered_weights, now, recorded_config
from ..registries import AGENTS
from ..streaming.moments import moments_of
from ..tasks.spec import TaskSpec
from .jobs import TrainingJob
from .lifecycle import attempting, is_up_to_date

BOTH = {"steps", "until", "envs", "iteration_steps", "gamma", "lr", "hidden", "minibatch", "max_grad"}
MOST_ACTIONS = 128  # numbered combinations of an action's numbers
GOOD = 0.5  # explained by the memory: the predictor's outlook is worth seeing
ITERATIONS = 40  # of the steps there are, if they are enough for that with ...
FEW = 8  # ... this many environments


@dataclass(frozen=True)
class AgentJob(TrainingJob[TrainAgentOptions]):
    """A fully resolved train-agent command."""

    @property
    def agent(self) -> str:
        return self.options.agent

    @property
    def stage(self) -> str:
        return f"train-agent/{self.agent}"

    @property
    def folder(self) -> Path:
        return self.manifest.run / "agent" / self.agent

    @property
    def logs(self) -> Path:
        return self.manifest.run / "logs" / f"train-agent-{self.agent}"

    @property
    def config(self) -> dict[str, Any]:
        """What the result depends on, defaults filled in."""
        entry = AGENTS.entry(self.agent)
        known = BOTH | entry.options
        chosen = {k: v for k, v in self.options.model_dump(mode="json").items() if k in known}
        frozen = entry.on_memory
        chosen["minibatch"] = self.options.minibatch or (512 if frozen else 2048)
        if "sample" in chosen:
            chosen["sample"] = self.options.sample or (8192 if frozen else 32_768)
        alone = next((f for f in self.spec.fields if self.spec.observed == (f.name,)), None)
        if frozen and alone and alone.is_image:
            chosen["eyes"] = self.options.eyes or entry.eyes
        elif frozen and self.spec.observed_images:  # the memory's would see the images only
            chosen["eyes"] = self.options.eyes or "own"
        begun = {} if self.restart else self.manifest.stages.get(self.stage, {}).get("config", {})
        units = {"units": True} if begun.get("units", not begun) else {}  # what 0.1.0 began goes on without
        return {"agent": self.agent, **chosen, **units, "seed": self.seed}

    def training(self, memory: MemoryModel | None) -> AgentTraining:
        return AgentTraining(
            task=self.manifest.task,
            spec=self.spec,
            memory=memory,
            moments=moments_of(self.manifest, self.spec, keep=True) if self.config.get("units") else {},
            reward_unit=reward_unit(split_of(self.manifest, "train")),
            episodes=split_of(self.manifest, "train") if self.config.get("imitate") else None,
            config=self.config,
            seed=self.seed,
            device=self.device,
            folder=self.folder,
            logs=self.logs,
            initial=None,
            checkpoint_every=self.options.checkpoint_every,
            buffer_memory=self.options.buffer_memory,
            env_workers=self.options.env_workers,
            quiet=self.quiet,
            earlier=self.earlier,
        )


def resolve(
    run: Path | None, options: TrainAgentOptions, seed: int, device: torch.device, *, restart: bool, quiet: bool
) -> AgentJob:
    """Check what the command needs: a task with an environment and, unless it is a baseline, a trained memory."""
    manifest = open_run(run)
    spec = spec_of(manifest)
    entry = AGENTS.entry(options.agent)
    known = BOTH | entry.options | {"agent", "alternate", "buffer_memory", "checkpoint_every", "env_workers"}
    known |= {"eyes"} if entry.on_memory else set()
    if foreign := sorted(options.model_fields_set - known):
        raise UsageProblem(f"--{foreign[0].replace('_', '-')} is not for {options.agent}; leave it out")
    hints = {**planned(manifest, spec, options, restart), **spec.recipes.get(options.agent, {})}
    options = TrainAgentOptions(**{**hints, **options.model_dump(exclude_unset=True)})
    open_arena(manifest.task, spec, 1).close()
    counts = spec.counts("action")
    if entry.numbered and not (counts and math.prod(counts) <= MOST_ACTIONS):
        many = (
            f"have {math.prod(counts):,} combinations, and it takes up to {MOST_ACTIONS}"
            if counts
            else "are continuous"
        )
        raise UsageProblem(
            f"--agent {options.agent} chooses among numbered actions, but those of {manifest.task['name']} {many}; "
            "use --agent ppo, which chooses each number of an action by itself"
        )
    if options.outlook and "action" in spec.components:
        raise UsageProblem(
            f"--outlook asks about each action by its number, but an action of {manifest.task['name']} has "
            f"{len(counts)} numbers; use --no-outlook"
        )
    if options.eyes == "memory" and spec.observed_images and len(spec.observed) > 1:
        raise UsageProblem(
            f"--eyes memory is for observations that are one image, but those of {manifest.task['name']} are in "
            f"several fields, {', '.join(spec.observed)}; use --eyes own or imitated"
        )
    if options.alternate and (more := {f.name for f in spec.fields} - {*spec.observed, "action", "reward"}):
        raise UsageProblem(
            f"--alternate collects observations, actions and rewards; {manifest.task['name']} also has "
            f"{', '.join(sorted(more))}, which only `memup collect` can tell"
        )
    if entry.on_memory:
        require(manifest, "train-memory")
    return AgentJob(
        manifest=manifest, spec=spec, options=options, seed=seed, device=device, restart=restart, quiet=quiet
    )


def planned(manifest: Manifest, spec: TaskSpec, options: TrainAgentOptions, restart: bool) -> dict[str, Any]:
    """What follows from the episodes and from the memory: whom to ask, and how many to play side by side.

    An iteration is of whole episodes: the longer these are, the fewer environments leave time for many iterations.
    Where even few play more than all the steps, they play once: who asks the predictor of a good memory is right from
    the start, and learning from chance would take many. What was begun goes on as it was.
    """
    begun = {} if restart else recorded_config(manifest, f"train-agent/{options.agent}")
    if begun:
        return {n: v for n, v in begun.items() if n in TrainAgentOptions.model_fields and n != "agent"}
    found: dict[str, Any] = {}
    if _has_good_outlook(manifest, spec, options):
        found["outlook"] = True
    length = int(np.median(split_of(manifest, "train").lengths))
    envs = options.envs
    if "envs" not in options.model_fields_set:
        fitting = options.steps // (ITERATIONS * length)
        envs = found["envs"] = min(max(fitting, FEW), options.envs)
    if envs * length > options.steps and "outlook" in found:
        found["steps"] = envs * length
    return found


def _has_good_outlook(manifest: Manifest, spec: TaskSpec, options: TrainAgentOptions) -> bool:
    """Whether the predictor can be asked about actions, and is right often enough on validation episodes."""
    entry = manifest.stages.get("train-memory", {})
    asks = (
        AGENTS.entry(options.agent).on_memory and "action" in spec.classes and spec.query == (*spec.observed, "action")
    )
    good = entry.get("metrics", {}).get("explained", 0.0) >= GOOD
    return bool(asks and good and context_class(entry["config"]["context"]).alone)


def find(job: AgentJob) -> str:
    """What there is to do: new, continue, extend, up to date. Refuses other options or inputs without --restart."""
    inputs = digests(job.manifest, "memory") if AGENTS.entry(job.agent).on_memory else {}
    begun = checkpoint.exists(job.folder) or (job.manifest.run / "rounds" / job.agent).exists()
    done = is_up_to_date(job.manifest, job.stage, job.config, inputs, job.restart, begun, "steps")
    if done and not altered_weights(job.manifest, job.stage):
        return "up to date"
    if not job.restart and is_extension(job.manifest, job.stage, job.config, "steps"):
        if job.options.alternate:
            raise UsageProblem(
                f"--steps {job.options.steps}: with --alternate these are the steps of every round, and rounds that "
                "are done cannot get more. Use --restart to discard them, or another --run."
            )
        return "extend"
    return "continue" if begun and not job.restart else "new"


def train_agent(job: AgentJob) -> dict[str, Any]:
    """Run the stage; returns the summary to print."""
    from .alternation import alternate

    if find(job) == "up to date":
        return {"run": str(job.manifest.run), "outcome": "up to date", **job.manifest.stages[job.stage]["metrics"]}
    inputs = digests(job.manifest, "memory") if AGENTS.entry(job.agent).on_memory else {}
    total = job.options.steps * (job.options.alternate + 1)
    with attempting(job.manifest, job.stage, job.folder, job.quiet) as attempt:
        stop, began = attempt.stop, now()

        def saved(steps: int) -> None:
            attempt.note("running", progress={"done": steps, "total": total}, started=began)

        if job.restart or job.stage not in job.manifest.stages:
            checkpoint.clear(job.folder)
            remove_tree(job.manifest.run / "rounds" / job.agent)
        if not job.restart:
            parts = earlier_parts(job.manifest, job.stage, job.config, "steps", job.folder, job.quiet)
            job = replace(job, earlier=parts)
        begun: dict[str, Any] = {"config": job.config, "inputs": inputs, "earlier": job.earlier, "started": began}
        attempt.note("running", **begun, outputs={}, rounds=[])
        home = job.manifest
        memory = load_model(home, job.options.checkpoint) if AGENTS.entry(job.agent).on_memory else None
        policy, metrics = train(job.training(memory), stop, attempt.still_ours, saved)
        if job.options.alternate and not stop:
            policy, metrics, home = alternate(job, policy, metrics, stop, attempt.still_ours, saved)
        progress = {"done": metrics["steps"], "total": total}
        if stop:
            raise attempt.interrupted(f"checkpoint saved at {metrics['steps']:,} steps", progress=progress)
        acts_on = None
        if AGENTS.entry(job.agent).on_memory:
            path = (home.run / "memory").relative_to(job.manifest.run)
            acts_on = {"path": str(path), "digest": home.stages["train-memory"]["weights"][job.options.checkpoint]}
        digest = save_policy(job.folder, policy, job.config, acts_on, attempt.still_ours)
        outputs = {f"agent/{job.agent}": {"path": f"agent/{job.agent}", "digest": digest}}
        attempt.note("complete", progress=progress, metrics=metrics, outputs=outputs, acts_on=acts_on)
    return {"run": str(job.manifest.run), "agent": job.agent, "outcome": "trained", **metrics}
