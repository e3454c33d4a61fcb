"""memup evaluate: memory error at the steps that matter, baselines beside it, and how well an agent plays."""

from typing import Any

import typer

from .. import console
from ..options.command_line import command_function, flowing
from ..options.common import StageOptions
from ..options.evaluate_options import EvaluateAgentOptions, EvaluateBaselinesOptions, EvaluateOptions
from ..options.until import parse

app = typer.Typer(
    help="Measure what was trained, on episodes it has not seen.\n\nExample: memup evaluate memory",
    rich_markup_mode="rich",
    no_args_is_help=True,
)

HELP = """Predict the targets at the steps that matter from the memory's state there.

Example: memup evaluate memory --run runs/tmaze-1000 --json"""


def _memory(options: EvaluateOptions, stage: StageOptions) -> None:
    from ..compute.devices import prepare_device
    from ..stages.evaluating import evaluate_memory

    found = evaluate_memory(options, stage, prepare_device(stage.device, stage.threads))
    console.result(
        found,
        stage.json_,
        lambda: (
            f"Would evaluate the {options.checkpoint} memory of {found['run']}." if stage.dry_run else _table(found)
        ),
    )


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
    if least <= 0 and not data["nothing_to_explain"]:
        text += "\nThat is no more than chance can do: an agent gains nothing from this memory. What to try next is in"
        return Group(*tables, f"{text} README.md, under 'When the memory does not learn'.")
    return Group(*tables, text, f"Next: {data['next']}")


memory = command_function("evaluate memory", {"options": EvaluateOptions, "stage": StageOptions}, _memory)
app.command("memory", help=flowing(HELP))(memory)


AGENT_HELP = """Play complete episodes with a trained agent, greedily and as it was trained.

Example: memup evaluate agent --run runs/tmaze-1000 --episodes 200"""


def _agent(options: EvaluateAgentOptions, stage: StageOptions) -> None:
    from ..compute.devices import prepare_device
    from ..stages.agent_evaluating import evaluate_agent

    with console.results_only():
        found = evaluate_agent(options, stage, prepare_device(stage.device, stage.threads))
    console.result(
        found,
        stage.json_,
        lambda: (
            f"Would evaluate the {found['agent']} agent of {found['run']}." if stage.dry_run else _agent_table(found)
        ),
    )


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
    from ..compute.devices import prepare_device
    from ..stages.evaluating import evaluate_baselines

    found = evaluate_baselines(options, stage, prepare_device(stage.device, stage.threads))
    console.result(
        found,
        stage.json_,
        lambda: (
            f"Would compare {', '.join(found['methods'])} of {found['run']}." if stage.dry_run else _comparison(found)
        ),
    )


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
