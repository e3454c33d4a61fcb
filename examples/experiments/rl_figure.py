"""Table and learning curves of the runs below a folder: python rl_figure.py FOLDER."""

import collections
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

SMOOTHED_OVER = 5  # iterations


def label(run: Path, agent: str) -> str:
    kind = run.name.rpartition("-seed")[0]
    if kind == "memup":
        return f"MemUP + {agent.upper()}"
    return f"{agent} ({'r' if kind.startswith('rollout') else 'attention'} = {kind.lstrip('rolutspan')})"


def main(folder: Path) -> None:
    rows: dict[str, list[dict]] = collections.defaultdict(list)
    curves: dict[str, list[tuple[np.ndarray, np.ndarray]]] = collections.defaultdict(list)
    for path in sorted(folder.glob("*/evaluation/agent-*.json")):
        run, found = path.parent.parent, json.loads(path.read_text())
        name = label(run, found["agent"])
        stages = json.loads((run / "manifest.json").read_text())["stages"]
        rows[name].append({**found, **{"train": stages[f"train-agent/{found['agent']}"]["metrics"]}})
        lines = (run / f"logs/train-agent-{found['agent']}/metrics.jsonl").read_text().splitlines()
        points = [json.loads(line) for line in lines]
        curves[name].append(tuple(np.array([p[key] for p in points]) for key in ("steps", "return_mean")))
    order = sorted(rows, key=lambda name: (not name.startswith("MemUP"), name))
    print(f"{'agent':26}{'seeds':>6}{'success':>10}{'return':>9}{'steps':>14}{'minutes':>9}")
    for name in order:
        each = rows[name]
        mean = {key: np.mean([row[key] for row in each]) for key in ("success_rate", "return_mean")}
        steps, seconds = (np.mean([row["train"][key] for row in each]) for key in ("steps", "seconds"))
        print(f"{name:26}{len(each):>6}{mean['success_rate']:>10.1%}{mean['return_mean']:>9.2f}"
              f"{steps:>14,.0f}{seconds / 60:>9.1f}")  # fmt: skip
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for number, name in enumerate(order):
        for i, (steps, returns) in enumerate(curves[name]):
            width = min(SMOOTHED_OVER, len(returns))
            smooth = np.convolve(returns, np.ones(width) / width, mode="valid")
            axes.plot(steps[width - 1 :], smooth, label=None if i else name, color=f"C{number}")
    axes.set(xlabel="environment steps", ylabel="return of training episodes", ylim=(-3.2, 4.2))
    axes.axhline(0.5, color="grey", linewidth=0.8, linestyle=":")
    axes.text(0.99, 0.55, "chance", color="grey", fontsize=8, ha="right", transform=axes.get_yaxis_transform())
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M")
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(folder / "curves.png", dpi=150)
    print(f"Learning curves: {folder / 'curves.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
