"""memup verify: whether a run's data and weights are intact."""

from typing import Annotated, Any

import typer

from .. import console
from .status import JsonOption, QuietOption, RunOption

HELP = """Check a run's trajectories, scores, weights and checkpoints; exit 65 if anything is damaged.

Every chunk is decoded, and every episode compared with its checksum. --repair moves what is damaged to quarantine/ in
the run; the commands that make it again are shown.

Example: memup verify --run runs/tmaze-1000 --repair"""


def verify(
    run: RunOption = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", metavar="", help="Set what is damaged aside, so that it can be made again."),
    ] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    from ..stages.verifying import verify_run

    data = verify_run(run, repair, quiet)
    console.result(data, json, lambda: _text(data, data["run"], repair))
    if not (data["ok"] or data["mended"]):
        raise typer.Exit(65)


def _text(data: dict[str, Any], run: str, repair: bool) -> str:
    from ..records.runs import quoted

    checked = data["checked"]
    lines = [
        f"{run}: checked {checked['episodes']:,} episodes in {checked['chunks']:,} chunks "
        f"({console.human_bytes(checked['bytes'])} decoded): {'intact' if data['ok'] else 'DAMAGED'}"
    ]
    for damage in data["damaged"]:
        first, stop = damage["episodes"]
        place = f"episodes {first} to {stop - 1}: " if stop > first else ""
        lines.append(f"  {damage['path']}: {place}{damage['problem']}")
    if data["quarantined"]:
        lines.append(f"Set aside: {', '.join(data['quarantined'])}")
    elif not repair and any(
        damage["path"].startswith(("trajectories/", "scores/")) or damage["path"].endswith((".pt", ".json"))
        for damage in data["damaged"]
    ):
        lines.append(f"To set the damaged parts aside: memup verify --run {quoted(run)} --repair")
    shards = sorted({shard["shard"] for shard in data["missing"]})
    if shards:
        flag = "" if shards == ["0/1"] else f" --shard {shards[0]}"
        lines.append(f"Episodes are missing; to collect them: memup collect --run {quoted(run)}{flag}")
    lines += [f"To make it again: {command}" for command in data["remake"]]
    return "\n".join(lines)
