"""Suites of tasks: what the memory explains, PPO on it, and PPO that remembers by itself."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from drawing import NOTHING, markdown, mean, page, percent, style
from matplotlib.figure import Figure
from runs import Run

from stores.reader import Trajectories

AGENTS = {"ppo": "MemUP + PPO", "ppo-lstm": "PPO-LSTM"}


@dataclass(frozen=True)
class Played:
    """One agent of one run."""

    mean_return: float  # greedy
    best: float  # the best mean return of an iteration in training, as POPGym's MMER has it
    steps: int


def suite(runs: list[Run]) -> tuple[Figure, str]:
    explained: dict[str, list[float]] = defaultdict(list)
    random: dict[str, list[float]] = defaultdict(list)
    played: dict[tuple[str, str], list[Played]] = defaultdict(list)
    for run in runs:
        task = run.options["env_id"].partition("-v")[0].removeprefix("popgym-").removeprefix("MiniGrid-")
        if (found := run.evaluation("memory")) and run.stage("train-memory"):
            explained[task].append(found["explained"])
        for agent in AGENTS:
            if (result := run.evaluation(f"agent-{agent}")) and (entry := run.stage(f"train-agent/{agent}")):
                played[task, agent].append(_played(result, entry, run.log(f"train-agent-{agent}")))
        if run.stage("collect"):
            episodes = Trajectories(run.folder / "trajectories" / "train", 1)
            random[task].append(mean([float(episode["reward"].sum(dtype=np.float64)) for episode in episodes]))
    tasks = [task for task in random if any(played[task, agent] for agent in AGENTS)]
    if not tasks:
        raise SystemExit(NOTHING)
    return _figure(tasks, random, played), _table(tasks, explained, random, played)


def _played(result: dict[str, Any], entry: dict[str, Any], log: list[dict[str, Any]]) -> Played:
    best = max(line["return_mean"] for line in log if "return_mean" in line)
    return Played(result["return_mean"], best, entry["metrics"]["steps"])


def _figure(tasks: list[str], random: dict[str, list[float]], played: dict[tuple[str, str], list[Played]]) -> Figure:
    figure, (axes,) = page(1, width=7.5, height=0.35 * len(tasks) + 1.6)
    rows = np.arange(len(tasks))
    axes.plot([mean(random[task]) for task in tasks], rows, "|", color="#555555", markersize=12, label="random")
    for number, (agent, label) in enumerate(AGENTS.items()):
        shown = [(row, each.mean_return) for row, task in enumerate(tasks) for each in played[task, agent]]
        if shown:
            y, x = zip(*shown, strict=True)
            axes.plot(x, np.array(y) + 0.15 * (2 * number - 1), linestyle="none", label=label, **style(number))
    axes.set_yticks(rows, tasks)
    axes.invert_yaxis()
    axes.set(xlabel="return of greedy episodes; a mark a seed")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _table(
    tasks: list[str],
    explained: dict[str, list[float]],
    random: dict[str, list[float]],
    played: dict[tuple[str, str], list[Played]],
) -> str:
    rows = []
    for task in tasks:
        cells = [task, str(max(len(played[task, agent]) for agent in AGENTS))]
        cells += [percent(mean(explained[task])) if explained[task] else "-", f"{mean(random[task]):.3f}"]
        for agent in AGENTS:
            found = played[task, agent]
            cells += [f"{mean([each.mean_return for each in found]):.3f}" if found else "-"]
            cells += [f"{mean([each.best for each in found]):.3f}" if found else "-"]
        steps = [each.steps for agent in AGENTS for each in played[task, agent]]
        rows.append([*cells, f"{mean(steps):,.0f}"])
    agents = [name for label in AGENTS.values() for name in (label, "best of training")]
    head = ["task", "seeds", "explained", "random", *agents, "steps of an agent"]
    title = (
        "Means over seeds: what the memory explains of test episodes, and returns: of the collected episodes, of greedy"
        " ones after training, and the best mean of an iteration in it"
    )
    return markdown(title, head, rows)
