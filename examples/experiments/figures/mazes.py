"""T-Maze solved by the memory alone: the ablation, and the heat map of distractors."""

from typing import Any

import numpy as np
from drawing import SOLVED, log_y, markdown, mean, page, style, ticks
from matplotlib.figure import Figure
from runs import Run, trained

SELECTIONS = {"surprise": "MemUP (surprise)", "uniform": "Rnd-Pred (uniform)", "current": "Default (current)"}


def solved_in_the_paper(length: int, rollout: int, select: str) -> bool | None:
    """What its text says of L = 100 and 1000 with r = 1, 5, 10, 50 and 100."""
    if length not in (100, 1000) or rollout not in (1, 5, 10, 50, 100):
        return None
    return select == "surprise" or (select == "uniform" and length == 100 and rollout >= 50)


def ablation(runs: list[Run]) -> tuple[Figure, str]:
    cells = trained(runs, lambda run, config: (run.options["length"], config["rollout"], config["select"]))
    lengths = sorted({length for length, _, _ in cells})
    rollouts = sorted({rollout for _, rollout, _ in cells}, reverse=True)
    figure, panels = page(len(lengths), width=5.2)
    rows = []
    for axes, length in zip(panels, lengths, strict=True):
        for number, (select, label) in enumerate(SELECTIONS.items()):
            here = {r: [e["metrics"]["rmse"] for e in cells.get((length, r, select), [])] for r in rollouts}
            here = {r: values for r, values in here.items() if values}
            means = [mean(values) for values in here.values()]
            axes.plot(list(here), means, label=label, zorder=3, **style(number))
            axes.vlines(list(here), *_ends(here.values()), color=style(number)["color"], zorder=2)
            for r in here:  # the paper's outcome, in rows above the curves
                if (solved := solved_in_the_paper(length, r, select)) is not None:
                    height = 1.18 - 0.06 * number
                    axes.text(r, height, "solved" if solved else "not", color=style(number)["color"], fontsize=8,
                              ha="center", va="center", transform=axes.get_xaxis_transform())  # fmt: skip
            rows.append([f"T-Maze-{length}", label, *(_ablation_cell(cells, length, r, select) for r in rollouts)])
        axes.text(-0.02, 1.12, "in the paper:", fontsize=8, ha="right", va="center", transform=axes.transAxes)
        axes.axhline(SOLVED, color="grey", linestyle=":")
        axes.text(
            0.99,
            SOLVED * 1.08,
            "solved below",
            color="grey",
            fontsize=8,
            ha="right",
            transform=axes.get_yaxis_transform(),
        )
        ticks(axes, rollouts)
        axes.margins(x=0.15)
        axes.invert_xaxis()  # the paper's order: harder to the right
        log_y(axes, "test RMSE at the junction")
        axes.set_xlabel("rollout r (steps of backpropagation)")
        axes.set_title(f"T-Maze-LNR-{length}", y=1.24, fontsize=11)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    title = "Test RMSE, mean over seeds (solved of all; updates, mean; the paper's outcome)"
    return figure, markdown(title, ["maze", "targets", *(f"r = {r}" for r in rollouts)], rows)


def _ends(values: Any) -> tuple[list[float], list[float]]:
    return [min(v) for v in values], [max(v) for v in values]


def _ablation_cell(cells: dict[Any, list[dict[str, Any]]], length: int, rollout: int, select: str) -> str:
    found = [entry["metrics"] for entry in cells.get((length, rollout, select), [])]
    if not found:
        return "-"
    solved = sum(each["rmse"] < SOLVED for each in found)
    published = {True: "; paper: solved", False: "; paper: not", None: ""}[solved_in_the_paper(length, rollout, select)]
    rmse, updates = (mean([each[key] for each in found]) for key in ("rmse", "updates"))
    return f"{rmse:.3f} ({solved} of {len(found)}; {updates:,.0f}{published})"


# (D, K): what the text says of that cell.
NOISY_TV = {(19, 1): "paper: none\nin 45,000", (19, 2): "paper: 4 of 5", (19, 3): "paper: 4 of 5"}


def noisy_tv(runs: list[Run]) -> tuple[Figure, str]:
    cells = trained(runs, lambda run, config: (config["select"], run.options["distractors"], config["targets"]))
    selections = sorted({select for select, _, _ in cells})
    distractors, targets = sorted({d for _, d, _ in cells}), sorted({k for _, _, k in cells})
    figure, panels = page(len(selections), width=1.6 + 1.3 * len(distractors), height=1.8 + 0.9 * len(targets))
    needed = np.full((len(selections), len(targets), len(distractors)), np.nan)
    texts = {}
    for (select, d, k), entries in cells.items():
        updates = [e["metrics"]["updates"] for e in entries if e["metrics"]["rmse"] < SOLVED]
        budget = max(e["config"]["updates"] for e in entries)
        place = selections.index(select), targets.index(k), distractors.index(d)
        needed[place] = mean(updates) if updates else np.nan
        shown = f"{mean(updates):,.0f}" if updates else f"not in {budget:,}"
        published = f"\n{NOISY_TV[d, k]}" if select == "surprise" and (d, k) in NOISY_TV else ""
        texts[place] = f"{shown}\n{len(updates)} of {len(entries)} solved{published}"
    slowest = np.nanmax(needed) if np.isfinite(needed).any() else 1.0
    for axes, select, here in zip(panels, selections, needed, strict=True):
        axes.grid(visible=False)
        axes.set_facecolor("#eeeeee")
        image = axes.imshow(here, cmap="cividis_r", origin="lower", aspect="auto", vmin=0, vmax=slowest)
        axes.set_xticks(range(len(distractors)), map(str, distractors))
        axes.set_yticks(range(len(targets)), map(str, targets))
        axes.set(xlabel="distractors D", ylabel="targets K")
        axes.set_title(f"{select}: updates to a test RMSE below {SOLVED} (grey: not solved)", fontsize=9)
        figure.colorbar(image, label="updates, mean of the solved")
    for (panel, row, column), text in texts.items():
        colour = "white" if needed[panel, row, column] > slowest / 2 else "black"
        panels[panel].text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
    rows = [
        [
            select,
            f"K = {k}",
            *(texts.get((i, j, column), "-").replace("\n", ", ") for column in range(len(distractors))),
        ]
        for i, select in enumerate(selections)
        for j, k in enumerate(targets)
    ]
    head = ["targets", "", *(f"D = {d}" for d in distractors)]
    return figure, markdown("Updates until the test RMSE is below 0.1, mean of the solved runs", head, rows)
