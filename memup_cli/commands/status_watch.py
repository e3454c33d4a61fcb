"""memup status --watch: look again and again, until everything that was begun is complete."""

import json
import signal
import time
from collections.abc import Callable
from typing import Any

from .. import console
from ..interrupts import SIGNALS

Look = Callable[[], dict[str, Any]]


def watch(look: Look, table: Callable[[dict[str, Any]], Any], every: float, as_json: bool, until: str | None) -> None:
    """Show what look() finds every few seconds. Leaving, with Ctrl-C or any other signal, is no error."""
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    try:
        if console.stdout.is_terminal and not as_json:
            _draw(look, table, every, until)
        else:
            _tell(look, every, as_json, until)
    except KeyboardInterrupt:
        pass


def _draw(look: Look, table: Callable[[dict[str, Any]], Any], every: float, until: str | None) -> None:
    from rich.live import Live

    with Live(console=console.stdout, auto_refresh=False) as live:
        while True:
            data = look()
            live.update(table(data), refresh=True)
            if _is_over(data, until):
                return
            time.sleep(every)


def _tell(look: Look, every: float, as_json: bool, until: str | None) -> None:
    from ..records.runs import now
    from .status import measured, told

    before: dict[str, Any] = {}
    while True:
        data = look()
        stages = {
            name: (told(entry), entry.get("done"), entry.get("total"), measured(entry))
            for name, entry in data["stages"].items()
        }
        if as_json and stages != before:
            print(json.dumps(data), flush=True)
        for name, (status, done, total, values) in stages.items() if not as_json else ():
            if before.get(name) != stages[name]:
                count = f", {done:,} of {total:,}" if done is not None and total is not None else ""
                print(f"{now()} {name}: {status}{count}{', ' if values else ''}{values}", flush=True)
        before = stages
        if _is_over(data, until):
            return
        time.sleep(every)


def _is_over(data: dict[str, Any], until: str | None) -> bool:
    """Whether all that was begun is complete, and the stage to wait for was begun."""
    begun = {name.partition("/")[0] for name in data["stages"]}
    complete = all(entry["status"] == "complete" and not entry["stale"] for entry in data["stages"].values())
    return complete and (until is None or until in begun)
