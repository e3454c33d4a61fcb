"""memup train-agent: freeze the memory, train an agent on (observation, memory state); or a baseline without it."""

from typing import Any

from .. import console
from ..options.agent_options import TrainAgentOptions
from ..options.command_line import command_function
from ..options.common import StageOptions
from ..options.until import parse

HELP = """Train an agent on the frozen memory (ppo, qrdqn), or a baseline that has to remember by itself.

It can be stopped at any time; the same command again continues from the last checkpoint, and with more --steps
from its end. A run can have several agents, one of each kind.
--dry-run --json shows what would be used.

Example: memup train-agent --until "success>0.99" --agent ppo"""


def _train(options: TrainAgentOptions, stage: StageOptions) -> None:
    from ..compute.devices import prepare_device
    from ..stages.agent_stage import find, resolve, train_agent

    device = prepare_device(stage.device, stage.threads)
    job = resolve(stage.run, options, stage.seed, device, restart=stage.restart, quiet=stage.quiet)
    if stage.dry_run:
        data = {"run": str(job.manifest.run), "config": job.config}
        more = (state := find(job)) == "extend"
        text = (
            f"Would {'extend the training of' if more else 'train'} a {job.agent} agent in {job.manifest.run} "
            f"{'to' if more else 'for'} {job.options.steps:,} steps. Nothing was written."
        )
        if state == "up to date":
            text = f"{job.manifest.run}: up to date. Nothing was written."
        console.result(data, stage.json_, lambda: text)
        return
    with console.results_only():
        summary = train_agent(job)
    console.result(summary, stage.json_, lambda: _text(summary, options))


def _text(summary: dict[str, Any], options: TrainAgentOptions) -> str:
    from ..agents.agent_training import RECENT
    from ..records.runs import quoted

    run, agent = summary["run"], options.agent
    if summary["outcome"] == "up to date":
        return f"{run}: up to date"
    success = f", success {summary['success_rate']:.1%}" if "success_rate" in summary else ""
    if options.until and not parse(options.until).holds(summary.get("success_rate", 0.0)):
        success += f' (--until "{options.until}" was not reached)'
    return "\n".join(
        [
            f"{run}: {agent} played {summary['steps']:,} steps in {console.human_time(summary['seconds'])} "
            f"({summary['steps_per_second']:,.0f} steps/s)",
            f"Mean of the last training episodes, {RECENT} at most: return {summary['return_mean']:.4g}{success}, "
            f"length {summary['length_mean']:,.1f}",
            f"Memory: {console.human_bytes(summary['peak_rss_bytes'])} at most",
            f"Next: memup evaluate agent --agent {agent} --run {quoted(run)}",
        ]
    )


train_agent = command_function("train-agent", {"options": TrainAgentOptions, "stage": StageOptions}, _train)
