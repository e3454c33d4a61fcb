"""memup status: where each stage of a run stands."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .. import console

RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run",
        envvar="MEMUP_RUN",
        show_envvar=False,
        metavar="PATH",
        help="Run folder (default: the only one in runs/).",
    ),
]
JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", envvar="MEMUP_JSON", show_envvar=False, metavar="", help="Print the result as one JSON object."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", metavar="", help="No progress, no notes.")]


HELP = """Show where each stage of a run stands, what is missing and what is stale.

With --watch it goes on looking, also while another process trains: a live table on a terminal, in a pipe a line for
each change (with --json an object). It ends when all stages that were begun are complete, or with Ctrl-C; exit 0 both
times. Of a chain of stages, name the last one with --until: there may be moments when none is running.

Example: memup status --run runs/tmaze-1000 --watch --until train-agent"""


def status(
    run: RunOption = None,
    watch: Annotated[
        bool, typer.Option("--watch", metavar="", help="Look again and again until all stages are complete.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="X",
            min=0.1,
            max=3600,
            show_default=False,
            help="Seconds between two looks. [dim](default: 2)[/dim]",
        ),
    ] = 2.0,
    until: Annotated[
        Literal["collect", "score", "train-memory", "train-baseline", "train-agent", "evaluate"] | None,
        typer.Option("--until", metavar="WORD", help="Watch until this stage is complete, begun or not."),
    ] = None,
    json: JsonOption = False,
) -> None:
    from ..records.runs import find_readable

    place = find_readable(run)
    if watch:
        from .status_watch import watch as follow

        follow(lambda: look(place), _table, every, json, until)
    else:
        data = look(place)
        console.result(data, json, lambda: _table(data))


def look(run: Path) -> dict[str, Any]:
    """Where each stage of a run stands now, with what a running one has logged so far."""
    from stores.manifest import Manifest

    from ..options.common import STAGES
    from ..records.runs import refresh_collect, refresh_stage
    from ..records.stage_files import latest

    manifest = Manifest.load(run)
    stages: dict[str, dict[str, Any]] = {}
    for name in sorted(manifest.stages, key=lambda s: (STAGES.index(s.partition("/")[0]), s)):
        entry = refresh_collect(manifest) if name == "collect" else refresh_stage(manifest, name)
        stages[name] = {**entry, **entry.get("progress", {}), "stale": manifest.stale(name)}
        if entry["status"] == "running" and (now := latest(manifest.run, name)):
            stages[name] |= {"latest": now, "done": now.get("steps", now["update"])}
    task = manifest.task
    return {"run": str(manifest.run), "task": {"name": task["name"], **task["options"]}, "stages": stages}


def told(entry: dict[str, Any]) -> str:
    """A stage's status in a word or two."""
    room = entry.get("metrics", {}).get("outcome") == "out of memory"
    return "stale" if entry["stale"] else "out of memory" if room else str(entry["status"])


def measured(entry: dict[str, Any]) -> str:
    """What a running stage logged last."""
    shown = ("loss", "validation_explained", "validation_rmse", "validation_accuracy", "return_mean", "success_rate")
    values = {name: value for name, value in entry.get("latest", {}).items() if name in shown}
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items())


def _table(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    from ..records.runs import collect_command, quoted

    task = dict(data["task"])
    title = f"{data['run']}  ({task.pop('name')}: {', '.join(f'{k} {v}' for k, v in task.items() if v is not None)})"
    table = Table(title=escape(title), title_justify="left")
    for column in ("stage", "status", "done", "of", "when", "where"):
        table.add_column(column, justify="right" if column in ("done", "of") else "left")
    notes = []
    for name, entry in data["stages"].items():
        attempt = entry.get("attempt", {})
        where = attempt.get("host", "") + (f" job {attempt['job']}" if attempt.get("job") else "")
        when = entry.get("started" if entry["status"] == "running" else "finished") or entry.get("started", "")
        counts = [f"{entry[key]:,}" if key in entry else "" for key in ("done", "total")]
        table.add_row(name, told(entry), *counts, when, where)
        for shard in entry.get("missing", []):
            notes.append(
                f"{shard['path']} (shard {shard['shard']}): {shard['problem']}, {shard['done']:,} of "
                f"{shard['total']:,} episodes"
            )
        if entry.get("rounds") and entry["status"] != "complete":
            last = entry["rounds"][-1]
            notes.append(f"{name}: round {last['round']} of {entry['config']['alternate']}, phase {last['phase']}")
        if now := measured(entry):
            notes.append(f"{name}: {now}")
        if told(entry) == "out of memory":
            wanted, limit = (console.human_bytes(entry["metrics"][key]) for key in ("predicted_bytes", "limit_bytes"))
            notes.append(f"{name}: out of memory (it needs {wanted}, the limit is {limit}); nothing was trained")
        if entry["status"] == "failed" and entry.get("problem"):
            notes.append(f"{name} failed: {entry['problem']}")
        if entry["stale"]:
            notes.append(f"{name} is stale: {', '.join(entry['stale'])} changed since it ran")
        elif any(shard["problem"].startswith("damaged") for shard in entry.get("missing", [])):
            notes.append(f"To set damaged shards aside: memup verify --run {quoted(data['run'])} --repair")
        elif entry.get("missing"):
            notes.append(f"To continue: {collect_command(data['run'], entry)}")
    return Group(table, *notes)
