"""memup evaluate: memory error at the steps that matter, baselines beside it, and how well an agent plays."""

import json
from typing import Any

import typer

from .. import console
from ..errors import StageMissing, UsageProblem
from ..options.command_line import command_function, flowing
from ..options.common import StageOptions
from ..options.evaluate_options import EvaluateAgentOptions, EvaluateBaselinesOptions, EvaluateOptions
from ..options.until import Goal, parse

app = typer.Typer(
    help="Measure what was trained, on episodes it has not seen.\n\nExample: memup evaluate memory",
    rich_markup_mode="rich",
    no_args_is_help=True,
)

HELP = """Predict the targets at the steps that matter from the memory's state there.

Example: memup evaluate memory --run runs/tmaze-1000 --json"""


def _memory(options: EvaluateOptions, stage: StageOptions) -> None:
    from stores.files import make_folder, to_json, write_durably

    from ..evaluation.predictions import summary
    from ..evaluation.timeline import timelines
    from ..interrupts import StopFlag
    from ..learning.weights import load_model
    from ..records.lifecycle import (
        continue_command,
        digests,
        open_run,
        prepare_device,
        record,
        require,
        require_test,
        spec_of,
    )
    from ..records.runs import quoted, recorded_config
    from ..stages.memory.memory_job import recorded_job
    from ..stages.memory.memoryless import Comparison, train_without
    from ..tasks.spec import PREVIOUS_ACTION

    device = prepare_device(stage.device, stage.threads)
    manifest = open_run(stage.run)
    require(manifest, "train-memory")
    config = recorded_config(manifest, "train-memory")
    spec = spec_of(manifest)
    model = load_model(manifest, options.checkpoint).to(device)
    require_test(manifest)
    if stage.dry_run:
        plan = {"run": str(manifest.run), "config": options.model_dump()}
        console.result(plan, stage.json_, lambda: f"Would evaluate the {options.checkpoint} memory of {manifest.run}.")
        return
    job = recorded_job(manifest, device, stage.quiet)
    with StopFlag() as stop:
        if not train_without(job, stop):
            raise stop.error("the predictor without a memory is saved in part", continue_command())
    compare = Comparison(job)
    found = compare.predict(model, "test", options.episodes)
    after = "train-agent" if PREVIOUS_ACTION in spec.memory_input else "report"
    data = {
        "run": str(manifest.run),
        **summary(found, compare.without("test", options.episodes), options.bins),
        "checkpoint": options.checkpoint,
        "matters": compare.by,
        "cue_at_start": spec.cue_at_start,
        "next": f"memup {after} --run {quoted(manifest.run)}",
        **_verdict(found.metrics(), config, spec),
    }
    make_folder(manifest.run / "evaluation")
    write_durably(manifest.run / "evaluation" / "memory.json", to_json(data))
    if options.timelines:
        drawn = timelines(model, manifest, spec, config, options.timelines)
        shown = {"checkpoint": options.checkpoint, **drawn}
        write_durably(manifest.run / "evaluation" / "timeline.json", json.dumps(shown, allow_nan=False).encode())
    metrics = {name: data[name] for name in data if name in FIGURES}
    inputs = digests(manifest, "test", "memory")
    record(manifest, "evaluate", "complete", config=options.model_dump(), inputs=inputs, metrics=metrics)
    console.result(data, stage.json_, lambda: _table(data))


FIGURES = ("rmse", "accuracy", "nll", "mse", "right", "interval", "explained", "explained_interval")


def _verdict(found: dict[str, float], config: dict[str, Any], spec: Any) -> dict[str, Any]:
    """Whether it is solved, if the user (in train-memory) or the task gave a threshold."""
    goal = parse(config["until"]) if config.get("until") else _solved(spec)
    if goal is None or goal.metric not in found:
        return {"solved": None}
    return {"solved": goal.reached(found), "goal": str(goal), "threshold": {goal.metric: goal.bound}}


def _solved(spec: Any) -> Goal | None:
    """What the task calls solved."""
    if spec.solved is None:
        return None
    return Goal("accuracy", ">=", spec.solved) if spec.target_kind == "classes" else Goal("rmse", "<", spec.solved)


MATTERS = {
    "rule": "the steps that matter, by the task's rule",
    "scores": "the steps that targets are drawn from, as often as they are drawn",
    "all": "all steps",
}


def _beside(data: dict[str, Any]) -> Any:
    """The memory, the best constant, and a predictor without a memory."""
    from rich.table import Table

    table = Table(title=f"{data['run']}: test error at {MATTERS[data['matters']]}", title_justify="left")
    figures = list(data["constant"])
    for column in ("", *figures):
        table.add_column(column, justify="right" if column else "left")
    rows = (("the memory", data), ("without a memory", data["memoryless"]), ("the best constant", data["constant"]))
    for name, row in rows:
        table.add_row(name, *(f"{row[figure]:.4g}" for figure in figures))
    return table


def _table(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    main = "accuracy" if "accuracy" in data else "rmse"
    low, high = data["interval"]
    tables = [_beside(data)]
    counted = next(iter(data["by_order"][0])) if data["by_order"] else ""
    for name, first in (("by_length", "steps"), ("by_order", counted)):
        if not data[name]:
            continue
        steps = "dependency length" if data["cue_at_start"] else "step of the episode"
        what = counted if name == "by_order" else steps
        table = Table(title=f"{data['run']}: {main} by {what}", title_justify="left")
        figures = [key for key in data[name][0] if key not in ("from", "to", counted, "count")]
        for column in (first, "targets", *figures):
            table.add_column(column, justify="right")
        for row in data[name]:
            place = f"{row[counted]:,}" if name == "by_order" else console.human_range(row["from"], row["to"])
            table.add_row(place, f"{row['count']:,}", *(f"{row[figure]:.4g}" for figure in figures))
        tables.append(table)
    verdict = ""
    if data["solved"]:
        goal = parse(data["goal"])
        verdict = f": solved ({goal.metric} {goal.words} {goal.bound:g})"
    least, most = data["explained_interval"]
    over = "" if data["matters"] == "scores" else f"{data['steps']:,} steps of "  # by scores they have weights
    text = (
        f"Explained beyond what needs no memory: {console.percent(data['explained'])} (95% interval "
        f"{console.percent(least)} to {console.percent(most)})\n"
        f"{main} {data[main]:.4g} (95% interval {low:.4g} to {high:.4g}) over {over}{data['episodes']:,} test "
        f"episodes{verdict}"
    )
    if data["nothing_to_explain"]:
        text = f"There is nothing to explain: without a memory the predictions are right already.\n{text}"
    if "right" in data:
        text += f"\n{data['right']:.2%} of them are nearer to what came than to the other outcome"
    return Group(*tables, text, f"Next: {data['next']}")


memory = command_function("evaluate memory", {"options": EvaluateOptions, "stage": StageOptions}, _memory)
app.command("memory", help=flowing(HELP))(memory)


AGENT_HELP = """Play complete episodes with a trained agent, greedily and as it was trained.

Example: memup evaluate agent --run runs/tmaze-1000 --episodes 200"""


def _agent(options: EvaluateAgentOptions, stage: StageOptions) -> None:
    from stores.files import make_folder, to_json, write_durably

    from ..agents.play.film import FORMATS, film_episode
    from ..agents.returns import evaluate
    from ..agents.saved import load_policy
    from ..records.lifecycle import digests, open_run, prepare_device, record, spec_of

    device = prepare_device(stage.device, stage.threads)
    manifest = open_run(stage.run)
    spec = spec_of(manifest)
    policy, config = load_policy(manifest, options.agent)
    policy, agent = policy.to(device), config["agent"]
    if options.record and not (options.record.suffix.lower() in FORMATS and options.record.parent.is_dir()):
        raise UsageProblem(f"--record {options.record}: give the name of a .gif or .png file in a folder that exists")
    if stage.dry_run:
        plan = {"run": str(manifest.run), "agent": agent, "config": options.model_dump(mode="json")}
        console.result(plan, stage.json_, lambda: f"Would evaluate the {agent} agent of {manifest.run}.")
        return
    found = evaluate(
        policy, config, manifest.task, spec, options.episodes, options.envs, stage.seed, device, stage.quiet
    )
    data = {"run": str(manifest.run), "agent": agent, **found["greedy"], **found}
    make_folder(manifest.run / "evaluation")
    write_durably(manifest.run / "evaluation" / f"agent-{agent}.json", to_json(data))
    kept = options.model_dump(mode="json", exclude={"record"})
    inputs = digests(manifest, f"agent/{agent}")
    record(manifest, f"evaluate/{agent}", "complete", config=kept, inputs=inputs, metrics=found["greedy"])
    if options.record:
        steps = film_episode(policy, manifest.task, spec, stage.seed, device, options.record)
        console.note(f"wrote an episode of {steps:,} steps to {options.record}", stage.quiet)
    console.result(data, stage.json_, lambda: _agent_table(data))


def _agent_table(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    from ..records.runs import quoted

    table = Table(
        title=f"{data['run']}: {data['agent']}, {data['episodes']:,} episode{'s' * (data['episodes'] > 1)} each",
        title_justify="left",
    )
    for column in ("actions", "success", "95% interval", "return", "95% interval", "length"):
        table.add_column(column, justify="left" if column == "actions" else "right")
    for way in ("greedy", "stochastic"):
        row = data[way]
        success = ["unknown", ""]
        if row["success_rate"] is not None:
            low, high = row["interval"]
            success = [f"{row['success_rate']:.1%}", f"{low:.1%} to {high:.1%}"]
        low, high = row["return_interval"]
        table.add_row(
            way, *success, f"{row['return_mean']:.4g}", f"{low:.4g} to {high:.4g}", f"{row['length_mean']:,.1f}"
        )
    return Group(table, f"Next: memup report {quoted(data['run'])}")


agent = command_function("evaluate agent", {"options": EvaluateAgentOptions, "stage": StageOptions}, _agent)
app.command("agent", help=flowing(AGENT_HELP))(agent)


BASELINES_HELP = """Compare the memory and all baselines of a run: error at the steps that matter, and what they cost.

Example: memup evaluate baselines --run runs/copy-120"""


def _baselines(options: EvaluateBaselinesOptions, stage: StageOptions) -> None:
    from stores.files import make_folder, to_json, write_durably

    from ..records.lifecycle import digests, open_run, prepare_device, record, require_test
    from ..records.runs import quoted
    from ..stages.comparison import compare, trained_methods

    device = prepare_device(stage.device, stage.threads)
    manifest = open_run(stage.run)
    require_test(manifest)
    methods = trained_methods(manifest)
    if methods in ([], ["train-memory"]):
        raise StageMissing(
            f"{manifest.run} has no trained baseline; run `memup train-baseline --run {quoted(manifest.run)}` first"
        )
    if stage.dry_run:
        plan = {"run": str(manifest.run), "methods": methods, "config": options.model_dump()}
        console.result(plan, stage.json_, lambda: f"Would compare {', '.join(methods)} of {manifest.run}.")
        return
    rows = compare(manifest, options.checkpoint, options.episodes, device)
    data = {"run": str(manifest.run), "rows": rows, "checkpoint": options.checkpoint}
    make_folder(manifest.run / "evaluation")
    write_durably(manifest.run / "evaluation" / "baselines.json", to_json(data))
    made = [name for method in methods for name in manifest.stages[method]["outputs"]]
    inputs = digests(manifest, "test", *made)
    metrics = {row["method"]: row.get("accuracy", row.get("rmse", row["outcome"])) for row in rows}
    record(manifest, "evaluate/baselines", "complete", config=options.model_dump(), inputs=inputs, metrics=metrics)
    console.result(data, stage.json_, lambda: _comparison(data))


def _comparison(data: dict[str, Any]) -> Any:
    from rich.table import Table

    rows = data["rows"]
    figures = ["accuracy"] if any("accuracy" in row for row in rows) else ["rmse", "mse"]
    table = Table(title=f"{data['run']}: test error at the steps that matter", title_justify="left")
    columns = ("method", *figures, f"95% interval of {figures[0]}", "kept per update", "x MemUP", "updates", "minutes")
    for column in columns:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in rows:
        if row["outcome"] != "trained":
            needed, limit = (console.human_bytes(row[key]) for key in ("predicted_bytes", "limit_bytes"))
            blank = [""] * len(figures[1:])
            table.add_row(row["method"], row["outcome"], *blank, "", f"needs {needed} of {limit}", "", "", "")
            continue
        low, high = row["interval"]
        ratio, minutes = ("" if row[key] is None else f"{row[key]:.3g}" for key in ("ratio_to_memup", "minutes"))
        table.add_row(
            row["method"],
            *(f"{row[figure]:.4g}" for figure in figures),
            f"{low:.4g} to {high:.4g}",
            console.human_bytes(row["saved_tensor_bytes"]),
            ratio,
            f"{row['updates']:,}",
            minutes,
        )
    return table


baselines = command_function(
    "evaluate baselines", {"options": EvaluateBaselinesOptions, "stage": StageOptions}, _baselines
)
app.command("baselines", help=flowing(BASELINES_HELP))(baselines)
