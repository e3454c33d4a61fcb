"""memup doctor: whether this machine and this folder can run the stages."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import console
from .status import JsonOption

if TYPE_CHECKING:
    from ..health.findings import Finding

HELP = """Check whether this machine can run memup, and how well.

Looks at packages, extras, devices, cores, RAM, the batch queue and the Doom engine, and at the folder that runs would
go to: its file system, free space, the speed of durable writes, renames and locks. The folder is left as it was.

Each check is ok, a note (memup runs, but mind the advice) or a problem (no stage could run). Exit 0 without a problem,
74 if the folder cannot be used, 1 if the installation does not work.

Example: memup doctor --run /scratch/me/runs"""


def doctor(
    run: Annotated[
        Path | None,
        typer.Option(
            "--run", envvar="MEMUP_RUN", show_envvar=False, metavar="PATH", help="Where runs would go (default: runs/)."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", metavar="", help="Leave out what takes seconds: the disk's speed and the Doom engine."),
    ] = False,
    json: JsonOption = False,
) -> None:
    from ..health.findings import guarded
    from ..health.folder import check_folder
    from ..health.machine import check_machine
    from ..interrupts import StopFlag
    from ..records.runs import HOME, follow

    folder = follow(run or HOME)
    with StopFlag() as stop:  # a signal waits until what was made is removed
        checks = [*check_machine(), *check_folder(folder, quick)]
        if not quick and not stop:
            from ..health.game import ADVICE, check_game

            checks.append(guarded("Doom engine", lambda: check_game(stop), "note", ADVICE))
    if stop:
        raise stop.error("nothing is left behind", "memup doctor")
    code = next((check.code for check in checks if check.code), 0)
    data = {"ok": not code, "folder": str(folder), "checks": [asdict(check) for check in checks]}
    console.result(data, json, lambda: _table(checks))
    raise typer.Exit(code)


def _table(checks: "list[Finding]") -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False)
    styles = {"ok": "green", "note": "yellow", "problem": "bold red"}
    for check in checks:
        table.add_row(Text(check.level, styles[check.level]), check.name, Text(check.found))
        if check.advice:
            table.add_row("", "", Text(f"-> {check.advice}", "bold"))
    problems = sum(check.level == "problem" for check in checks)
    verdict = "memup can run here." if not problems else "memup cannot run here: see the problem above."
    return Group(table, verdict)
