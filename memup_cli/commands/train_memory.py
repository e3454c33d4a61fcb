"""memup train-memory: stream rollouts and future targets from disk, train memory and predictor."""

import json
from typing import Any

from .. import console
from ..options.command_line import command_function
from ..options.common import StageOptions
from ..options.memory_options import TrainMemoryOptions

HELP = """Train the memory so that its state explains the surprising steps of the future (MemUP).

It can be stopped at any time; the same command again continues from the last checkpoint, with the same result.
With more --updates, also a finished training goes on from its end. Options that you leave out are as they were when
the training was begun, until --restart.

What is not given is planned by what the scored episodes look like, before the defaults below; --dry-run shows each
choice with its reason, as a file that --config takes. Where the data do not tell, short trainings race first.

Example: memup train-memory --until "rmse<0.1" --rollout 20"""


def _train(options: TrainMemoryOptions, stage: StageOptions) -> None:
    from ..compute.devices import prepare_device
    from ..records.extending import is_extension
    from ..stages.memory.idle import refuse_idle
    from ..stages.memory.memory_job import resolve
    from ..stages.memory.memory_stage import is_done, train_memory

    device = prepare_device(stage.device, stage.threads)
    job = resolve(stage.run, options, stage.seed, device, restart=stage.restart, quiet=stage.quiet)
    refuse_idle(options.model_fields_set, job)
    if stage.dry_run:
        data = {"run": str(job.manifest.run), "config": job.config, "plan": job.plan.to_json()}
        more = not job.restart and is_extension(job.manifest, "train-memory", job.config, "updates")
        text = (
            f"Would {'extend the training of' if more else 'train'} the memory of {job.manifest.run} "
            f"{'to' if more else 'for'} {job.options.updates:,} updates. Nothing was written."
        )
        if is_done(job):
            text = f"{job.manifest.run}: up to date. Nothing was written."
        console.result(data, stage.json_, lambda: f"# {text}\n{_planned(job, options)}")
        return
    summary = train_memory(job)
    console.result(summary, stage.json_, lambda: _text(summary))


def _planned(job: Any, given: TrainMemoryOptions) -> str:
    """A file for --config: what is given, and what is planned with its reason."""
    from ..stages.memory.idle import idle
    from ..stages.memory.plan import BEGUN
    from ..stages.memory.race import described

    useless, usual = idle(job.options, job.spec), TrainMemoryOptions().model_dump()
    open_yet = {name for rival in job.rivals for name in rival}
    chosen = {c.option: (c.value, c.why) for c in job.plan.choices if c.option not in {*useless, *open_yet}}
    chosen = {n: (value, why) for n, (value, why) in chosen.items() if why != BEGUN or value != usual[n]}
    chosen = {"updates": (job.options.updates, "the default"), **chosen}
    chosen |= {name: (getattr(given, name), "given") for name in sorted(given.model_fields_set)}
    lines = [f"{name.replace('_', '-')} = {json.dumps(value)}" for name, (value, _) in chosen.items()]
    width = max(map(len, lines))
    lines = [f"{line:<{width}}  # {why}" for line, (_, why) in zip(lines, chosen.values(), strict=True)]
    rivals = [f"#   {described(rival)}" for rival in job.rivals]
    race = ["# Not decided yet: short trainings race on validation episodes, with one of these each:"] if rivals else []
    return "\n".join(["[train-memory]", *lines, *race, *rivals])


def _text(summary: dict[str, Any]) -> str:
    from ..records.runs import quoted

    run = summary["run"]
    if summary["outcome"] == "up to date":
        return f"{run}: up to date"
    main = "rmse" if "rmse" in summary else "accuracy"
    lines = [
        f"{run}: {summary['updates']:,} updates"
        f"{_why_early(summary)} at {summary['updates_per_second']:.0f} a second "
        f"({summary['data_wait_share']:.1%} of the time waiting for data)",
        f"On validation episodes, at the steps that matter: {console.percent(summary['explained'])} explained beyond "
        f"what needs no memory; {main} {summary[main]:.4g}{_kept(summary, main)}",
        f"Memory: {console.human_bytes(summary['peak_rss_bytes'])} at most; "
        f"{console.human_bytes(summary['saved_tensor_bytes'])} are kept for the backward pass of an update",
        *_advice(summary),
        f"Next: memup evaluate memory --run {quoted(run)}",
    ]
    return "\n".join(lines)


def _kept(summary: dict[str, Any], main: str) -> str:
    """Which weights that is: the best ones are kept."""
    last = summary.get("last_weights", summary)
    if last[main] == summary[main]:
        return ""
    return (
        f". That is with the best weights, of update {summary['best_update']:,}, which are kept; the last ones explain "
        f"{console.percent(last['explained'])}"
    )


def _why_early(summary: dict[str, Any]) -> str:
    from ..learning.goals import ALL

    if not summary["early"]:
        return ""
    return ", with nothing left to learn," if summary["explained"] >= ALL else ", as good as asked,"


OVERFITTING = 0.2  # more explained of training episodes than of others
LITTLE, MOST = 0.1, 0.9  # explained: nothing was learned to speak of; or about all there is
FEW = 1000  # training episodes: with fewer, more are worth a try


def _advice(summary: dict[str, Any]) -> list[str]:
    """What goes wrong, if it can be told."""
    from ..records.runs import quoted

    own, other = summary["explained_of_training"], summary["explained"]
    run, episodes = quoted(summary["run"]), summary["training_episodes"]
    if own - max(other, 0) >= OVERFITTING:
        return [
            f"Overfitting: {own:.0%} is explained of training episodes, and {max(other, 0):.0%} of others. There are "
            f"{episodes:,} training episodes with {summary['training_events']:,} events; collect more with: memup "
            f"collect --run {run} --episodes {max(4 * episodes, FEW)}"
        ]
    if summary["early"] or other >= MOST:
        return []
    if other < LITTLE:
        return [
            "The memory does not explain more than the step itself tells. See what `memup score` and `memup inspect "
            f"--run {run}` say of the surprising steps; then try more --updates, which continue this training, or a "
            "larger --rollout with --restart."
        ]
    return ["There may be more to learn: the same command with more --updates continues this training."]


train_memory = command_function("train-memory", {"options": TrainMemoryOptions, "stage": StageOptions}, _train)
