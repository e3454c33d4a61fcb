"""The few numbers a run is about, each with its interval and what was asked for."""

import math
from typing import Any

from ..options.until import Goal, parse


def key_figures(run: dict[str, Any]) -> list[dict[str, Any]]:
    """[{label, value, format, interval, asked, reached, note}], the memory's first."""
    stages = {stage["name"]: stage for stage in run["stages"]}
    figures = []
    if memory := run["memory"]:
        main = "accuracy" if "accuracy" in memory else "rmse"
        wanted = _wanted(stages.get("train-memory", {}).get("config", {}), main)
        note = f"{memory['steps']:,} steps of {memory['episodes']:,} test episodes"
        stale = stages.get("evaluate", {}).get("status") == "stale"
        if "explained" in memory:  # not in runs of 0.1.0
            interval = memory.get("explained_interval")
            figures.append(_figure("explained", memory["explained"], "share", interval, None, _stale(note, stale)))
            others = (("memoryless", "without a memory"), ("constant", "the best constant"))
            beside = [f"{words} {format_figure(memory[name][main], main)}" for name, words in others]
            note = f"{note}; {', '.join(beside)}"
        figures.append(
            _figure(f"memory {main}", memory[main], main, memory.get("interval"), wanted, _stale(note, stale))
        )
    elif trained := stages.get("train-memory", {}).get("metrics"):
        main = "accuracy" if "accuracy" in trained else "rmse"
        wanted = _wanted(stages["train-memory"]["config"], main)
        if main in trained:
            figures.append(
                _figure(
                    f"memory {main}",
                    trained[main],
                    main,
                    None,
                    wanted,
                    "on validation episodes, at the end of training",
                )
            )
    for agent, found in run["agents"].items():
        wanted = _wanted(stages.get(f"train-agent/{agent}", {}).get("config", {}), "success")
        stale = stages.get(f"evaluate/{agent}", {}).get("status") == "stale"
        note = _stale(f"{found['episodes']:,} episodes, greedy", stale)
        if found.get("success_rate") is not None:
            figures.append(_figure(f"{agent} success", found["success_rate"], "share", found["interval"], wanted, note))
        figures.append(_figure(f"{agent} return", found["return_mean"], "number", found["return_interval"], None, note))
    return figures


def _wanted(config: dict[str, Any], main: str) -> Goal | None:
    """What training was to reach; an MSE as the RMSE that it is."""
    goal = parse(config["until"]) if config.get("until") else None
    if goal and goal.metric == "mse":
        goal = Goal("rmse", goal.sense, math.sqrt(goal.bound))
    return goal if goal and goal.metric == main else None


def _stale(note: str, stale: bool) -> str:
    return f"{note}; trained again since" if stale else note


def _figure(
    label: str, value: float, kind: str, interval: list[float] | None, asked: Goal | None, note: str
) -> dict[str, Any]:
    return {
        "label": label,
        "value": value,
        "format": kind,
        "interval": interval,
        "asked": f"{asked.words} {format_figure(asked.bound, kind)}" if asked else None,
        "reached": asked.holds(value) if asked else None,
        "note": note,
    }


def format_figure(value: float | None, kind: str) -> str:
    if value is None:
        return "unknown"
    if kind in ("share", "accuracy"):
        return f"{100 * value:.4g}%"
    return f"{value:.4g}"
