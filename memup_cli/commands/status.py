"""memup status: where each stage of a run stands."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .. import console

RunOption = Annotated[
    Path | None,
    typer.Option("--run", envvar="MEMUP_RUN", show_envvar=False, help="Run folder (default: the only one in runs/)."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", envvar="MEMUP_JSON", show_envvar=False, help="Print one JSON object.")
]


def status(run: RunOption = None, json: JsonOption = False) -> None:
    """Show where each stage of a run stands, what is missing and what is stale."""
    from stores.manifest import Manifest

    from ..configs import STAGES
    from ..runs import find_readable, refresh_collect, refresh_stage

    manifest = Manifest.load(find_readable(run))
    stages: dict[str, dict[str, Any]] = {}
    for name in sorted(manifest.stages, key=lambda s: (STAGES.index(s.partition("/")[0]), s)):
        entry = refresh_collect(manifest) if name == "collect" else refresh_stage(manifest, name)
        stages[name] = {**entry, **entry.get("progress", {}), "stale": manifest.stale(name)}
    task = manifest.task
    data = {"run": str(manifest.run), "task": {"name": task["name"], **task["options"]}, "stages": stages}
    console.result(data, json, lambda: _table(data))


def _table(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    from ..runs import collect_command, quoted

    task = dict(data["task"])
    title = f"{data['run']}  ({task.pop('name')}: {', '.join(f'{k} {v}' for k, v in task.items())})"
    table = Table(title=title, title_justify="left")
    for column in ("stage", "status", "done", "of", "when", "where"):
        table.add_column(column, justify="right" if column in ("done", "of") else "left")
    notes = []
    for name, entry in data["stages"].items():
        room = entry.get("metrics", {}).get("outcome") == "out of memory"
        status = "stale" if entry["stale"] else "out of memory" if room else entry["status"]
        attempt = entry.get("attempt", {})
        where = attempt.get("host", "") + (f" job {attempt['job']}" if attempt.get("job") else "")
        when = entry.get("finished") or entry.get("started", "")
        counts = [f"{entry[key]:,}" if key in entry else "" for key in ("done", "total")]
        table.add_row(name, status, *counts, when, where)
        for shard in entry.get("missing", []):
            notes.append(
                f"{shard['path']} (shard {shard['shard']}): {shard['problem']}, {shard['done']:,} of "
                f"{shard['total']:,} episodes"
            )
        if entry.get("rounds") and entry["status"] != "complete":
            last = entry["rounds"][-1]
            notes.append(f"{name}: round {last['round']} of {entry['config']['alternate']}, phase {last['phase']}")
        if room:
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
