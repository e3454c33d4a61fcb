"""The evaluate stage of agents: complete episodes, greedily and as they were trained."""

from typing import Any

import torch

from .. import console
from ..agents.returns import evaluate
from ..agents.saved import load_policy
from ..errors import UsageProblem
from ..options.common import StageOptions
from ..options.evaluate_options import EvaluateAgentOptions
from ..records.opening import digests, open_run, spec_of
from .evaluating import write_result
from .lifecycle import record


def evaluate_agent(options: EvaluateAgentOptions, stage: StageOptions, device: torch.device) -> dict[str, Any]:
    """How well an agent plays new episodes, greedily and as it was trained."""
    manifest = open_run(stage.run)
    spec = spec_of(manifest)
    policy, config = load_policy(manifest, options.agent)
    policy, agent = policy.to(device), config["agent"]
    if options.record:
        from ..agents.play.film import FORMATS, film_episode  # only then: they need an extra

        if not (options.record.suffix.lower() in FORMATS and options.record.parent.is_dir()):
            raise UsageProblem(
                f"--record {options.record}: give the name of a .gif or .png file in a folder that exists"
            )
    if stage.dry_run:
        return {"run": str(manifest.run), "agent": agent, "config": options.model_dump(mode="json")}
    found = evaluate(
        policy, config, manifest.task, spec, options.episodes, options.envs, stage.seed, device, stage.quiet
    )
    data = {"run": str(manifest.run), "agent": agent, **found["greedy"], **found}
    write_result(manifest, f"agent-{agent}", data)
    kept = options.model_dump(mode="json", exclude={"record"})
    inputs = digests(manifest, f"agent/{agent}")
    record(manifest, f"evaluate/{agent}", "complete", config=kept, inputs=inputs, metrics=found["greedy"])
    if options.record:
        steps = film_episode(policy, manifest.task, spec, stage.seed, device, options.record)
        console.note(f"wrote an episode of {steps:,} steps to {options.record}", stage.quiet)
    return data
