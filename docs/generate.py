"""Writes the part of docs/commands.md that comes from the help texts: `make docs`. The rest of the page stays."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer

from memup_cli.app import app
from memup_cli.commands.collect import ABOUT
from memup_cli.tasks import GROUP

PAGE = Path(__file__).parent / "commands.md"
BEGIN, END = "<!-- from here: make docs -->\n", "<!-- to here: make docs -->\n"
COMMON = "Every stage"  # a panel that is shown once
COLLECTING = "Collecting"  # likewise


def generated() -> str:
    """All commands with all their options, as Markdown."""
    memup: Any = typer.main.get_command(app)
    context = typer.Context(memup, info_name="memup")
    own = {task.name for task in entry_points(group=GROUP) if task.value.startswith("memup_cli.")}
    lines: list[str] = []
    once: dict[str, list[Any]] = {}
    for name in memup.list_commands(context):
        command = memup.get_command(context, name)
        lines += _section(f"memup {name}", command, once)
        for inner in command.list_commands(context) if hasattr(command, "list_commands") else ():
            if name not in ("collect", "import") or inner in own:
                lines += _section(f"memup {name} {inner}", command.get_command(context, inner), once)
    shared = ["### Options of every stage", "", *_table(once[COMMON])]
    shared += ["", "### Options of every `memup collect TASK`", "", *_table(once[COLLECTING])]
    return "\n".join([*lines, *shared]) + "\n"


def _section(title: str, command: Any, once: dict[str, list[Any]]) -> Iterator[str]:
    """One command: what it does, an example, its options by panel. Panels shown once are put aside."""
    yield from (f"### {title}", "")
    *paragraphs, example = command.help.split("\n\n")
    if not example.startswith("Example: "):
        raise SystemExit(f"the help of {title} does not end with an example")
    for paragraph in (text for text in paragraphs if text != ABOUT):  # said once, at `memup collect`
        yield from (_plain(paragraph), "")
    yield from ("```", f"$ {example.removeprefix('Example: ')}", "```", "")
    panels: dict[str, list[Any]] = {}
    for parameter in command.params:
        if parameter.name not in ("help", "help_all"):
            panels.setdefault(parameter.rich_help_panel or "", []).append(parameter)
    for panel in {COMMON, COLLECTING} & panels.keys():
        once[panel] = panels.pop(panel)
    for panel, parameters in panels.items():
        yield from ([f"{panel}:", ""] if panel and not panel.startswith("Task ") else [])
        yield from (*_table(parameters), "")


def _table(parameters: list[Any]) -> list[str]:
    return ["| option | meaning |", "|---|---|", *(f"| {_flags(p)} | {_plain(p.help)} |" for p in parameters)]


def _flags(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.metavar}`".replace("|", "\\|")
    value = f" {parameter.metavar}" if parameter.metavar else ""
    flags = [f"`{flag}{value if flag.startswith('--') else ''}`" for flag in parameter.opts]
    return ", ".join([*flags, *(f"`{flag}`" for flag in parameter.secondary_opts)])


def _plain(text: str) -> str:
    """Without the markup of the terminal, and with nothing that Markdown would take for its own."""
    text = re.sub(r"\[/?(dim|bold)\]", "", text)
    return re.sub(r"(?<!`)<([a-z]+)>", r"&lt;\1&gt;", text).replace("|", "\\|").replace("~", "\\~")


def page(old: str) -> str:
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{generated()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    print(f"{PAGE}: written", file=sys.stderr)
