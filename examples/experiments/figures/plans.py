"""What each part of the plan is good for."""

from collections import defaultdict

from drawing import markdown, mean, page
from matplotlib.figure import Figure
from runs import Run

ENOUGH = 0.95  # explained on validation episodes
PARTS = {
    "planned": "as planned",
    "gates": "gates open to all",
    "walk": "every rollout trained",
    "replay": "nothing replayed",
    "arrivals": "not asked on arrival",
    "average": "weights not averaged",
    "spread": "one spread for all",
    "plan": "no plan, inputs as they are",
}


def plan_ablation(runs: list[Run]) -> tuple[Figure, str]:
    cells: dict[tuple[str, str], list[tuple[int | None, float]]] = defaultdict(list)
    for run in runs:
        task, part, _ = run.folder.name.split("-")
        if (evaluation := run.evaluation("memory")) and run.stage("train-memory"):
            cells[task, part].append((_enough(run), evaluation["explained"]))
    tasks, parts = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    parts = [part for part in PARTS if part in parts]
    figure, (axes,) = page(1, width=7.5, height=0.6 * len(parts) + 1.5)
    shown = [[mean([explained for _, explained in cells[task, part]]) for task in tasks] for part in parts]
    axes.imshow(shown, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for row, values in enumerate(shown):
        for column, value in enumerate(values):
            colour = "white" if value > ENOUGH / 2 else "black"
            axes.text(column, row, f"{value:.0%}", ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(len(tasks)), tasks)
    axes.set_yticks(range(len(parts)), [PARTS[part] for part in parts])
    axes.set_title("Explained of test episodes, mean over seeds", fontsize=11)
    rows = [[PARTS[part], *(_cell(cells[task, part]) for task in tasks)] for part in parts]
    title = "Explained of test episodes, mean over seeds (updates until 95% is explained on validation episodes)"
    return figure, markdown(title, ["training", *tasks], rows)


def _enough(run: Run) -> int | None:
    """Updates until it was enough."""
    lines = run.log("train-memory")
    return next((line["update"] for line in lines if line.get("validation_explained", 0) >= ENOUGH), None)


def _cell(found: list[tuple[int | None, float]]) -> str:
    if not found:
        return "-"
    updates = ", ".join("never" if n is None else f"{n:,}" for n, _ in found)
    return f"{mean([explained for _, explained in found]):.1%} ({updates})"
