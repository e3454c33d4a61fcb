"""memup train-baseline: other models on the same store, over whole sequences or truncated."""

from typing import Any

from .. import console
from ..options.baseline_options import TrainBaselineOptions
from ..options.command_line import command_function
from ..options.common import StageOptions

HELP = """Train a supervised baseline on the same data: an LSTM, a minGRU, an SRNN, a Transformer or a GTrXL.

It sees whole sequences, with gradients through all of them, or with --truncate windows of so many steps. What an
update needs is predicted first; a model that will not fit is recorded as out of memory. It can be stopped at any time;
the same command again continues, and with more --updates from its end. A run can have several baselines side by side.

Example: memup train-baseline --model transformer --truncate 20"""


def _train(options: TrainBaselineOptions, stage: StageOptions) -> None:
    from ..compute.devices import prepare_device
    from ..records.extending import is_extension
    from ..stages.baseline_stage import memory_needed, resolve, train_baseline

    device = prepare_device(stage.device, stage.threads)
    job = resolve(stage.run, options, stage.seed, device, restart=stage.restart, quiet=stage.quiet)
    if stage.dry_run:
        room = memory_needed(job)
        data = {"run": str(job.manifest.run), "config": job.config, **room}
        needed, limit = (console.human_bytes(number) for number in room.values())
        more = not job.restart and is_extension(job.manifest, job.stage, job.config, "updates")
        text = (
            f"Would {'extend the training of' if more else 'train'} the baseline {options.name} of {job.manifest.run} "
            f"{'to' if more else 'for'} {options.updates:,} updates, which "
            f"need {needed} of the {limit} there are. Nothing was written."
        )
        console.result(data, stage.json_, lambda: text)
        return
    summary = train_baseline(job)
    console.result(summary, stage.json_, lambda: _text(summary))


def _text(summary: dict[str, Any]) -> str:
    from ..records.runs import quoted

    run, model = summary["run"], summary["model"]
    if summary["outcome"] == "up to date":
        return f"{run}: {model} is up to date"
    if summary["outcome"] == "out of memory":
        needed, limit = (console.human_bytes(summary[key]) for key in ("predicted_bytes", "limit_bytes"))
        return (
            f"{run}: {model} is out of memory: an update would need {needed}, the limit is {limit}. Nothing was "
            "trained. Use --truncate, a smaller --batch or --hidden, or a larger --memory-limit."
        )
    main = "rmse" if "rmse" in summary else "accuracy"
    lines = [
        f"{run}: {model}, {summary['updates']:,} updates"
        f"{', as good as asked,' if summary['early'] else ''} at {summary['updates_per_second']:.3g} a second "
        f"({summary['data_wait_share']:.1%} of the time waiting for data)",
        f"On validation episodes, at the steps that matter: {main} {summary[main]:.4g} "
        f"(best {summary[f'best_{main}']:.4g})",
        f"Memory: {console.human_bytes(summary['peak_rss_bytes'])} at most; "
        f"{console.human_bytes(summary['saved_tensor_bytes'])} are kept for the backward pass of an update",
        f"Next: memup evaluate baselines --run {quoted(run)}",
    ]
    return "\n".join(lines)


train_baseline = command_function("train-baseline", {"options": TrainBaselineOptions, "stage": StageOptions}, _train)
