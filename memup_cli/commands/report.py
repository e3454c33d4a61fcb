"""memup report: one page with the pictures of a run, or of several side by side."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .. import __version__, console
from .status import JsonOption, RunOption

HELP = """Write one self-contained page about a run: stages, figures, curves, an episode step by step.

Several runs are laid over each other; those that differ only in the seed become a mean with a band. What is missing is
named with the command that makes it.

Example: memup report runs/seed-* --output seeds.html"""
OWN_NAMES = {
    *("trajectories", "scores", "detector", "memory", "baseline", "agent", "rounds", "logs", "evaluation", "quarantine")
}


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="Run folders (default: as --run).", show_default=False),
    ] = None,
    run: RunOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="File to write; - is stdout (default: report.html in the run, or here for several)."
        ),
    ] = None,
    format_: Annotated[
        Literal["html", "md", "json"],
        typer.Option(
            "--format",
            metavar="WORD",
            show_default=False,
            help="A page, text, or the data it is built from. [dim](html, md or json; default: html)[/dim]",
        ),
    ] = "html",
    json: JsonOption = False,
) -> None:
    import json as encoding
    import sys

    from stores.files import write_durably

    from ..errors import UsageProblem
    from ..records.runs import find_run, now
    from ..reports.gather import gather_run
    from ..reports.page import page
    from ..reports.seeds import group_runs
    from ..reports.text import markdown

    folders = list(dict.fromkeys(find_run(each) for each in runs)) if runs else [find_run(run)]
    place = output or (folders[0] if len(folders) == 1 else Path()) / f"report.{format_}"
    to_stdout = str(place) == "-"
    if not to_stdout and (place.is_dir() or not place.parent.is_dir()):
        raise UsageProblem(f"--output {place}: give the name of a file in a folder that exists")
    if not to_stdout and (problem := _in_the_way(place)):
        raise UsageProblem(f"--output {place} {problem}; give another file, such as {folders[0] / 'report.html'}")
    if to_stdout and json:
        raise UsageProblem("--json and --output - both want stdout; give --output a file")
    found = [gather_run(folder) for folder in folders]
    data = {"version": __version__, "made": now(), "runs": found, "groups": group_runs(found)}
    if format_ == "json":
        text = encoding.dumps(data, indent=1, allow_nan=False) + "\n"
    else:
        text = page(data) if format_ == "html" else markdown(data)
    if to_stdout:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_durably(place, text.encode())
    missing = [{"run": each["path"], **hint} for each in found for hint in each["hints"]]
    problems = [f"{each['path']}: {problem}" for each in found for problem in each["problems"]]
    summary = {
        "report": str(place),
        "bytes": len(text.encode()),
        "runs": [each["path"] for each in found],
        "missing": missing,
        "problems": problems,
    }
    console.result(summary, json, lambda: _text(summary))


def _in_the_way(place: Path) -> str:
    """Why a report must not be written there: it would replace what belongs to a run."""
    from stores.manifest import Manifest

    target = place.resolve()
    for folder in target.parents:
        if not Manifest.exists(folder):
            continue
        parts = target.relative_to(folder).parts
        if parts[0] in OWN_NAMES or (parts[0].startswith("manifest") and target.suffix == ".json"):
            return f"is a place that the run {folder} keeps its own files in"
        is_report = parts in {(f"report.{ending}",) for ending in ("html", "md", "json")}
        if not is_report and target.exists() and not _was_report(target):
            return f"is a file of the run {folder} that is no report"
    return ""


def _was_report(path: Path) -> bool:
    """Whether `memup report` wrote a file, in any of its formats."""
    import json as encoding

    text = path.read_text("utf-8", errors="replace")
    if text.startswith("{"):
        try:
            return {"version", "made", "runs", "groups"} == set(encoding.loads(text))
        except ValueError:
            return False
    is_page = text.startswith("<!doctype html>") and " - memup report</title>" in text
    return is_page or text.startswith("# memup report\n")


def _text(summary: dict[str, Any]) -> str:
    count = len(summary["runs"])
    lines = [f"{summary['report']}: {count} run{'s' * (count > 1)}, {console.human_bytes(summary['bytes'])}"]
    lines += [f"  {problem}" for problem in summary["problems"]]
    lines += [f"  {hint['what']} Run: {hint['command']}" for hint in summary["missing"]]
    return "\n".join(lines)
