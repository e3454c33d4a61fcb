"""Options that 0.1.0 had: what to write instead of them, and today's names for what old runs recorded."""

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import UsageProblem
from .until import Goal

_SUPERVISED = ("train-memory", "train-baseline")
# Stages that had it, its metric and its sense.
GOALS = {
    "until-rmse": (_SUPERVISED, "rmse", "<"),
    "until-mse": (_SUPERVISED, "mse", "<"),
    "until-accuracy": (_SUPERVISED, "accuracy", ">="),
    "until-success": (("train-agent",), "success", ">="),
}
# Of train-memory, and what there is now.
GONE = {
    "reach": "--near has targets near and far alike",
    "input-scale": "inputs are in units of how much they vary; leave it out",
    "context-scale": "inputs are in units of how much they vary; leave it out",
    "replay-size": "2,048 rollouts are kept to be repeated, and --replay says how much of a batch repeats them",
    "lr-end": "the learning rate falls to a tenth of --lr; leave it out",
    "ema": "the slow average has a decay of 0.99; leave it out",
}


def refuse_old_options(stage: str | None, words: list[str]) -> None:
    """UsageProblem for an old option among the words of a command."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag.startswith("--"):
            refuse_old(stage, flag[2:], value if equals else following)


def refuse_old(stage: str | None, option: str, value: Any, file: str = "") -> None:
    """UsageProblem, with what to write instead, if a stage had this option. file: that it is in, if it is in one."""
    if option in GOALS and stage in GOALS[option][0]:
        goal = _goal(option, value)
        was, now = (f"{file}{option} = {value}", "until = ") if file else (f"--{option} {value}", "--until ")
        raise UsageProblem(f'{was} is now {now}"{goal}"')
    if option in GONE and stage == "train-memory":
        raise UsageProblem(f"{file or '--'}{option} is gone: {GONE[option]}")


def old_variable(name: str, value: str) -> str | None:
    """What is now instead of a MEMUP_ variable of 0.1.0 that gave one of these options."""
    option = name.removeprefix("MEMUP_").lower().replace("_", "-")
    if option in GOALS:
        goal = _goal(option, value)
        new = (f'MEMUP_{stage.replace("-", "_").upper()}_UNTIL="{goal}"' for stage in GOALS[option][0])
        return f"{name}={value} is now {' or '.join(new)}"
    return f"{name} is gone: {GONE[option]}" if option in GONE else None


def renewed(config: dict[str, Any]) -> dict[str, Any]:
    """A recorded configuration in today's names."""
    old = {option: config[option.replace("-", "_")] for option in GOALS if option.replace("-", "_") in config}
    if not old:
        return config
    goals = [Goal(*GOALS[option][1:], float(bound)) for option, bound in old.items() if bound is not None]
    kept = {name: value for name, value in config.items() if name.replace("_", "-") not in old}
    return {**kept, "until": str(_laxest(goals)) if goals else None}


def _laxest(goals: list[Goal]) -> Goal:
    """0.1.0 stopped at the first of several: of an RMSE and an MSE that is the larger one."""
    bounds = {goal.metric: goal.bound for goal in goals}
    if bounds.keys() == {"rmse", "mse"}:
        return Goal("rmse", "<", max(bounds["rmse"], math.sqrt(bounds["mse"])))
    return goals[0]


def renewed_words(stage: str, words: Iterable[str]) -> Iterator[str]:
    """A recorded command, as it can be given today."""
    rest = iter(words)
    for word in rest:
        flag, equals, value = word.partition("=")
        option = flag.removeprefix("--")
        if flag == option:
            yield word
        elif option in GOALS and stage in GOALS[option][0]:
            yield from ("--until", _goal(option, value if equals else next(rest, "")))
        elif option in GONE and stage == "train-memory":
            if not equals:
                next(rest, None)
        else:
            yield word


def _goal(option: str, value: Any) -> str:
    """As it is written now, whatever the value was."""
    _, metric, sense = GOALS[option]
    text = str(value)
    return f"{metric}{sense}{text}" if re.fullmatch(r"[\d.eE+-]+", text) else f"{metric}{sense}X"
