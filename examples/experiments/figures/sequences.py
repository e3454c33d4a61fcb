"""The supervised tasks: the table of methods, the size of the memory, and what an update keeps over T."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from drawing import PAPER, log_y, markdown, mean, page, style, ticks
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from published import MEMORY_SIZE, METHODS, SUPERVISED
from runs import Run, trained

OUT_OF_MEMORY = "out of memory"
TASKS = ("copy", "scattered-copy", "add", "pmnist")


def supervised(runs: list[Run]) -> tuple[Figure, str]:
    found: dict[tuple[str, int], dict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if evaluation := run.evaluation("baselines"):
            for row in evaluation["rows"]:
                value = None if row["outcome"] == OUT_OF_MEMORY else _error(row)
                found[run.task, run.options["length"]][_method(row["method"])].append(value)
    keys = sorted(found, key=lambda key: (TASKS.index(key[0]), key[1]))
    columns = min(4, len(keys))
    figure, panels = page(columns, math.ceil(len(keys) / 4), width=3.6 if columns > 1 else 5.5, height=3.4)
    rows = []
    for axes in panels[len(keys) :]:
        axes.set_visible(False)
    for axes, key in zip(panels, keys, strict=False):
        published = dict(zip(METHODS, SUPERVISED.get(key, ()), strict=False))
        rows.append([f"{key[0]}-{key[1]}", *(_both(found[key].get(m, []), published, m, key[0]) for m in METHODS)])
        for number, method in enumerate(METHODS):
            values = [value for value in found[key].get(method, []) if value is not None]
            axes.plot(
                values, [number] * len(values), "o", color=style(0 if method == "MemUP" else 1)["color"], zorder=3
            )
            if published.get(method) is not None:
                axes.plot([published[method]], [number], **PAPER)
            lacking = [
                *(["here"] if found[key].get(method) and not values else []),
                *(["in the paper"] if method in published and published[method] is None else []),
            ]
            if lacking:
                note = f"{OUT_OF_MEMORY} {' and '.join(lacking)}"
                axes.text(0.5, number, note, ha="center", fontsize=7, transform=axes.get_yaxis_transform())
        axes.set_yticks(range(len(METHODS)), METHODS, fontsize=8)
        axes.invert_yaxis()
        axes.set_title(f"{key[0]}-{key[1]}", fontsize=10)
        if key[0] == "add":
            axes.set(xscale="log", xlabel="test MSE")
        else:
            axes.set(xlim=(-3, 103), xlabel="test accuracy, %")
    _legend(figure, any(key in SUPERVISED for key in keys), methods=True)
    title = "Ours, mean over seeds (the paper's): accuracy in %, of add the MSE"
    return figure, markdown(title, ["task", *METHODS], rows)


def _error(found: dict[str, Any]) -> float:
    """Percent right, or the MSE."""
    return 100 * found["accuracy"] if "accuracy" in found else found["mse"]


def _method(name: str) -> str:
    """memup, lstm or lstm-tr20, as the paper calls it."""
    model, truncated, _ = name.partition("-tr")
    label = {"memup": "MemUP", "transformer": "Transformer"}.get(model, model.upper())
    return f"{label} truncated" if truncated else label


def _number(value: float | None, task: str) -> str:
    if value is None:
        return OUT_OF_MEMORY
    return f"{value:.5f}" if task == "add" else f"{value:.1f}"


def _both(values: Sequence[float | None], published: dict[str, float | None], method: str, task: str) -> str:
    known = [value for value in values if value is not None]
    ours = "-" if not values else _number(mean(known) if known else None, task)
    return ours + (f" ({_number(published[method], task)})" if method in published else "")


def memory_size(runs: list[Run]) -> tuple[Figure, str]:
    sizes = trained(runs, lambda run, config: (run.task, run.options["length"], config["hidden"]))
    found: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if (evaluation := run.evaluation("memory")) and (entry := run.stage("train-memory")):
            found[run.task, run.options["length"]][entry["config"]["hidden"]].append(_error(evaluation))
    keys = sorted(found)
    figure, panels = page(len(keys))
    rows = []
    units = sorted({size for key in keys for size in [*found[key], *MEMORY_SIZE.get(key, {})]})
    for axes, key in zip(panels, keys, strict=True):
        published = MEMORY_SIZE.get(key, {})
        here = dict(sorted(found[key].items()))
        axes.plot(list(here), [mean(values) for values in here.values()], **style(0))
        for size, values in here.items():
            axes.plot([size] * len(values), values, ".", color=style(0)["color"], alpha=0.6)
        axes.plot(list(published), list(published.values()), **PAPER)
        ticks(axes, sorted({*here, *published}))
        axes.set(xlabel="units of the memory", ylabel="test accuracy, %")
        axes.set_title(f"{key[0]}-{key[1]}, {_updates(sizes, key)} updates", fontsize=10)
        if key[0] == "add":
            log_y(axes, "test MSE")
        cells = [
            _both(here.get(size, []), {"": published[size]} if size in published else {}, "", key[0]) for size in units
        ]
        rows.append([f"{key[0]}-{key[1]}", *cells])
    _legend(figure, any(key in MEMORY_SIZE for key in keys))
    title = "Ours, mean over seeds (the paper's): MSE of add, accuracy in % of pmnist"
    return figure, markdown(title, ["task", *(f"{size} units" for size in units)], rows)


def _updates(sizes: dict[tuple[str, int, int], list[dict[str, Any]]], key: tuple[str, int]) -> str:
    done = {entry["metrics"]["updates"] for each, entries in sizes.items() if each[:2] == key for entry in entries}
    return f"{min(done):,}" if len(done) == 1 else f"{min(done):,} to {max(done):,}"


def _legend(figure: Figure, with_paper: bool, methods: bool = False) -> None:
    def dot(number: int, label: str) -> Line2D:
        return Line2D([], [], linestyle="none", marker="o", color=style(number)["color"], label=label)

    handles = [dot(0, "MemUP, here"), dot(1, "baselines, here")] if methods else [dot(0, "here")]
    handles.append(
        Line2D([], [], label="the paper" if with_paper else "the paper has no figure for these sizes", **PAPER)
    )
    if not with_paper:
        handles[-1].set_marker("None")
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)


def space(runs: list[Run]) -> tuple[Figure, str]:
    kept: dict[str, dict[int, tuple[int, bool]]] = defaultdict(dict)  # method: {T: (bytes, measured)}
    batch = 0
    for run in sorted(runs, key=lambda run: run.options["length"]):
        entries = {
            "MemUP": run.stage("train-memory"),
            **{_method(n): e for n, e in run.stages("train-baseline").items()},
        }
        for method, entry in entries.items():
            if entry:
                batch, metrics = entry["config"]["batch"], entry["metrics"]
                measured = metrics.get("outcome") != OUT_OF_MEMORY
                kept[method][run.options["length"]] = (
                    metrics["saved_tensor_bytes" if measured else "predicted_bytes"],
                    measured,
                )
    figure, [axes] = page(1, width=6.4, height=4.2)
    order = [method for method in METHODS if method in kept]
    lengths = sorted({length for values in kept.values() for length in values})
    for number, method in enumerate(order):
        points = kept[method]
        axes.plot(list(points), [size / 1e6 for size, _ in points.values()], label=method, **style(number))
        missing = {length: size for length, (size, measured) in points.items() if not measured}
        axes.plot(list(missing), [size / 1e6 for size in missing.values()], "o", markersize=12, color="none",
                  markeredgecolor=style(number)["color"])  # fmt: skip
    if any(not measured for values in kept.values() for _, measured in values.values()):
        axes.plot([], [], "o", markersize=10, color="none", markeredgecolor="grey", label="predicted: out of memory")
    ticks(axes, lengths)
    log_y(axes, "MB kept for the backward pass of an update")
    axes.set_xlabel("sequence length T (copy)")
    axes.set_title(f"Batch of {batch}; in the paper MemUP keeps O(K + r), whatever T is", fontsize=10)
    axes.legend(fontsize=8)
    rows = [[f"T = {length}", *(_kept(kept, method, length) for method in order)] for length in lengths]
    return figure, markdown(f"Kept for the backward pass of one update of {batch} sequences", ["", *order], rows)


def _kept(kept: dict[str, dict[int, tuple[int, bool]]], method: str, length: int) -> str:
    if length not in kept[method]:
        return "-"
    size, measured = kept[method][length]
    text = f"{size / 1e6:,.1f} MB" if measured else f"{OUT_OF_MEMORY}: {size / 1e6:,.0f} MB predicted"
    ours = kept["MemUP"].get(length)
    return text if method == "MemUP" or not ours else f"{text}, x {size / ours[0]:,.1f}"
