"""How the figures look: a light page, colours that the colour-blind can tell apart, tables in Markdown."""

from collections.abc import Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

# Okabe and Ito's colours; markers differ as well, for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "v", "D", "P", "X")
PAPER = {"color": "#555555", "linestyle": "none", "marker": "D", "markerfacecolor": "none", "markersize": 7}
SOLVED = 0.1  # test RMSE below which a T-Maze counts as solved


def style(number: int) -> dict[str, Any]:
    """Of the n-th curve; later markers are smaller, so that those beneath them can be seen."""
    i = number % len(COLOURS)
    return {"color": COLOURS[i], "marker": MARKERS[i], "markersize": 9 - 0.8 * i}


NOTHING = "none of the cells has come far enough to be shown; `memup status --run` of one says where it stands"


def page(columns: int, rows: int = 1, width: float = 4.6, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    if not columns:
        raise SystemExit(NOTHING)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), layout="constrained", squeeze=False
    )
    for each in axes.flat:
        each.grid(color="#dddddd", linewidth=0.6)
        each.set_axisbelow(True)
    return figure, list(axes.flat)


def ticks(axes: Axes, values: Sequence[float]) -> None:
    """Exactly these values on a logarithmic x axis."""
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:,}" for value in values])
    axes.set_xticks([], minor=True)


def log_y(axes: Axes, label: str) -> None:
    """To be called when everything is drawn: a narrow range gets more numbers."""
    axes.set(yscale="log", ylabel=label)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}" if y >= 1 else f"{y:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def markdown(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        raise SystemExit(NOTHING)
    lines = [f"{title}\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
