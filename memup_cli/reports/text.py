"""A report as Markdown: the same figures and tables, as text."""

import re
from collections.abc import Iterable
from typing import Any

from .. import console
from .figures import format_figure


def markdown(report: dict[str, Any]) -> str:
    lines = ["# memup report", "", f"Made {report['made']} with memup {report['version']}.", ""]
    if len(report["runs"]) > 1:
        lines += ["## Runs", "", *table(*_runs(report["runs"])), ""]
        for stage, groups in report["groups"].items():
            seeds = [group for group in groups if len(group["runs"]) > 1]
            lines += [f"### {text(stage)}: seeds", "", *table(*_seeds(seeds)), ""] if seeds else []
    for run in report["runs"]:
        lines += _run(run)
    return "\n".join(lines).rstrip() + "\n"


def _run(run: dict[str, Any]) -> list[str]:
    options = ", ".join(f"{key} {value}" for key, value in run["task"]["options"].items())
    lines = [f"## {text(run['name'])}", "", f"{text(run['task']['name'])}: {text(options)}", ""]
    heads: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    if run["figures"]:
        heads = ("figure", "value", "95% interval", "asked", "over")
        rows = [(f["label"], shown_value(f), shown_interval(f), _asked(f), f["note"]) for f in run["figures"]]
        lines += [*table(heads, rows), ""]
    heads = ("stage", "status", "done", "of", "finished", "host", "outputs")
    rows = [
        (s["name"], s["status"], _count(s["done"]), _count(s["total"]), s["finished"] or "", s["host"],
         " ".join(f"{name} {digest}" for name, digest in s["outputs"].items()))
        for s in run["stages"]
    ]  # fmt: skip
    lines += ["### Pipeline", "", *table(heads, rows), ""]
    if run["memory"]:
        main = "accuracy" if "accuracy" in run["memory"] else "rmse"
        found = run["memory"]["by_length"]
        rows = [(console.human_range(r["from"], r["to"]), f"{r['count']:,}", r[main]) for r in found]
        what = "dependency length" if run["memory"].get("cue_at_start") else "step of the episode"
        lines += [f"### Error by {what}", "", *table(("steps", "targets", main), rows), ""]
    if run["baselines"]:
        lines += ["### Baselines", "", *table(*_baselines(run["baselines"]["rows"])), ""]
    curves = [(stage, n, s["y"][0], s["y"][-1], min(s["y"]), max(s["y"]))
              for stage, curve in run["curves"].items() for n, s in curve["series"].items()]  # fmt: skip
    if curves:
        lines += ["### Curves", "", *table(("stage", "curve", "first", "last", "lowest", "highest"), curves), ""]
    if run["hints"] or run["problems"]:
        lines += ["### What is missing", ""]
        lines += [f"- {text(hint['what'])} `{_code(hint['command'])}`" for hint in run["hints"]]
        lines += [f"- {text(problem)}" for problem in run["problems"]]
        lines.append("")
    return lines


def _runs(runs: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    labels = list(dict.fromkeys(figure["label"] for run in runs for figure in run["figures"]))
    rows = []
    for run in runs:
        have = {figure["label"]: figure for figure in run["figures"]}
        shown = [shown_value(have[label]) if label in have else "" for label in labels]
        rows.append([run["name"], run["task"]["name"], "" if run["seed"] is None else run["seed"], *shown])
    return ["run", "task", "seed", *labels], rows


def _seeds(groups: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    rows = []
    for group in groups:
        for name, series in group["series"].items():
            rows.append([group["label"], name, *(series[key][-1] for key in ("x", "mean", "low", "high", "count"))])
    return ["group", "curve", "at", "mean", "lowest", "highest", "seeds there"], rows


def _baselines(found: list[dict[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    main = "accuracy" if any("accuracy" in row for row in found) else "rmse"
    rows = []
    for row in found:
        kept, low = row.get("saved_tensor_bytes"), row.get("interval") or ["", ""]
        figure = row.get(main, row["outcome"])
        size = console.human_bytes(kept) if kept else ""
        rows.append(
            [row["method"], figure, *low, size, row.get("ratio_to_memup"), row.get("updates"), row.get("minutes")]
        )
    return ["method", main, "from", "to", "kept per update", "x MemUP", "updates", "minutes"], rows


def shown_value(figure: dict[str, Any]) -> str:
    return format_figure(figure["value"], figure["format"])


def shown_interval(figure: dict[str, Any]) -> str:
    ends = figure["interval"] or []
    return " to ".join(format_figure(end, figure["format"]) for end in ends)


def _asked(figure: dict[str, Any]) -> str:
    return f"{figure['asked']}: {'reached' if figure['reached'] else 'not reached'}" if figure["asked"] else ""


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    heads = list(heads)
    lines = [heads, ["---"] * len(heads), *([_cell(value) for value in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else text(str(value))


def _code(command: str) -> str:
    """A command in a code span, which nothing in it can end."""
    return re.sub(r"[\s`]+", " ", command)


def text(value: str) -> str:
    """A text on one line, with nothing in it that Markdown or HTML would take for its own."""
    flat = re.sub(r"\s+", " ", str(value))
    return (
        re.sub(r"([\\`*_{}\[\]<>#|!])", r"\\\1", flat).replace("\\_", "_").replace("\\<", "&lt;").replace("\\>", "&gt;")
    )
