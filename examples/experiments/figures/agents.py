"""T-Maze solved by agents: the scaling experiment, and the comparison with agents that remember by themselves."""

from collections import defaultdict
from typing import Any

import numpy as np
from drawing import SOLVED, log_y, markdown, mean, page, percent, style, ticks
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from runs import Run, trained

BEST, CHANCE = 4.0, 0.5  # returns of an agent that always turns right, and of one that guesses
SMOOTHED_OVER = 5  # iterations


def scaling(runs: list[Run]) -> tuple[Figure, str]:
    cells = trained(runs, lambda run, _: run.options["length"])
    played: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        if (found := run.evaluation("agent-ppo")) and (entry := run.stage("train-agent/ppo")):
            played[run.options["length"]].append({**found, "steps": entry["metrics"]["steps"]})
    figure, [policy, memory] = page(2)
    lengths = sorted(cells)
    _points(policy, {length: [each["return_mean"] for each in played[length]] for length in sorted(played)})
    policy.axhline(BEST, color="grey", linestyle=":")
    policy.axhline(CHANCE, color="grey", linestyle=":")
    policy.text(0.01, BEST - 0.25, "right every time; so in the paper, 500 to 20,000", **_note(policy))
    policy.text(0.01, CHANCE + 0.1, "chance", **_note(policy))
    policy.set(xlabel="corridor length", ylabel="return of MemUP + PPO", ylim=(-0.2, 4.4), title="a) policy")
    _points(memory, {length: [e["metrics"]["rmse"] for e in cells[length]] for length in lengths})
    memory.axhline(SOLVED, color="grey", linestyle=":")
    memory.text(0.01, SOLVED * 1.05, "solved below, where training stops", **_note(memory))
    memory.set_ylim(top=max(2 * SOLVED, memory.get_ylim()[1]))
    log_y(memory, "test RMSE at the junction")
    memory.set(xlabel="corridor length", title="b) memory")
    for axes in (policy, memory):
        ticks(axes, lengths)
    rows = []
    for length in lengths:
        rmse, updates = (mean([e["metrics"][key] for e in cells[length]]) for key in ("rmse", "updates"))
        agent = ["-", "-", "-"]
        if here := played[length]:
            agent = [percent(mean([e["success_rate"] for e in here])), f"{mean([e['return_mean'] for e in here]):.2f}",
                     f"{mean([e['steps'] for e in here]):,.0f}"]  # fmt: skip
        published = "solved" if length in (500, 1000, 5000, 10000, 20000) else "-"
        rows.append([f"T-Maze-{length}", str(len(cells[length])), f"{rmse:.3f}", f"{updates:,.0f}", *agent, published])
    head = ["maze", "seeds", "test RMSE", "updates", "success", "return", "environment steps", "in the paper"]
    return figure, markdown("Means over seeds", head, rows)


def _points(axes: Axes, values: dict[int, list[float]]) -> None:
    """The mean as a line, every seed as a dot."""
    values = {x: each for x, each in values.items() if each}
    axes.plot(list(values), [mean(each) for each in values.values()], zorder=3, **style(0))
    for x, each in values.items():
        axes.plot([x] * len(each), each, ".", color=style(0)["color"], alpha=0.6)


def _note(axes: Axes) -> dict[str, Any]:
    return {"color": "#555555", "fontsize": 8, "transform": axes.get_yaxis_transform()}


def comparison(runs: list[Run]) -> tuple[Figure, str]:
    found: dict[str, list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]]] = defaultdict(list)
    for run in runs:
        for agent, entry in run.stages("train-agent").items():
            if evaluation := run.evaluation(f"agent-{agent}"):
                label = _label(run, agent, entry["config"])
                found[label].append((evaluation, entry["metrics"], run.log(f"train-agent-{agent}")))
    order = sorted(found, key=lambda name: (not name.startswith("MemUP"), name))
    figure, [axes] = page(1, width=7.2, height=4.2)
    rows = []
    for number, name in enumerate(order):
        for i, (_, _, points) in enumerate(found[name]):
            steps, returns = (
                np.array([p[key] for p in points if "return_mean" in p]) for key in ("steps", "return_mean")
            )
            width = min(SMOOTHED_OVER, len(returns))
            smooth = np.convolve(returns, np.ones(width) / width, mode="valid")
            axes.plot(steps[width - 1 :], smooth, label=None if i else name, markevery=[-1], **style(number))
        success, total = (mean([e[key] for e, _, _ in found[name]]) for key in ("success_rate", "return_mean"))
        steps = mean([trained_["steps"] for _, trained_, _ in found[name]])
        published = "solved, almost at once" if name.startswith("MemUP") else "not solved"
        if name.startswith(("gtrxl", "MemUP + QRDQN")):
            published = "-"  # only in Two-Colors
        rows.append([name, str(len(found[name])), percent(success), f"{total:.2f}", f"{steps:,.0f}", published])
    for level in (CHANCE, BEST):
        axes.axhline(level, color="grey", linewidth=0.8, linestyle=":")
    lengths = ", ".join(str(length) for length in sorted({run.options["length"] for run in runs}))
    axes.set(xlabel="environment steps", ylabel="return of training episodes", ylim=(-1, 4.6))
    axes.set_title(
        f"T-Maze-LNR-{lengths}; a marker is where training ended\nDotted: always right, as MemUP + PPO becomes in the "
        "paper at L = 1000, and chance,\nwhere its PPO-LSTM and AMRL stay",
        fontsize=9,
    )
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g} M")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    head = ["agent", "seeds", "success", "return", "environment steps", "the paper, L = 1000"]
    return figure, markdown(f"T-Maze-{lengths}, greedy, means over seeds", head, rows)


def _label(run: Run, agent: str, config: dict[str, Any]) -> str:
    if run.stage("train-memory"):
        return f"MemUP + {agent.upper()}"
    return f"{agent} ({'attention' if agent == 'gtrxl' else 'r'} = {config['span' if agent == 'gtrxl' else 'rollout']})"
