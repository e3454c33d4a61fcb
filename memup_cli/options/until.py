"""--until: when a training has come far enough, such as "rmse<0.1" or "success>=0.95"."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SENSES: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "<": ("below", operator.lt),
    "<=": ("at most", operator.le),
    ">": ("above", operator.gt),
    ">=": ("at least", operator.ge),
}
ERRORS = ("rmse", "mse")  # of numbers; less is better
SHARES = ("accuracy", "success")  # of classes, and of an agent's episodes; more is better, and 1 is all
SUPERVISED = (*ERRORS, "accuracy")
EXAMPLES = {"rmse": "rmse<0.1", "mse": "mse<0.001", "accuracy": "accuracy>0.99", "success": "success>0.95"}
FORM = re.compile(r"\s*([A-Za-z_]+)\s*([<>]=?)\s*(\S+)\s*")


@dataclass(frozen=True)
class Goal:
    """A figure, on which side of a bound it is to be, and the bound."""

    metric: str
    sense: str  # one of SENSES
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{self.sense}{repr(self.bound).removesuffix('.0')}"

    @property
    def words(self) -> str:
        return SENSES[self.sense][0]

    def holds(self, value: float) -> bool:
        return SENSES[self.sense][1](value, self.bound)

    def reached(self, figures: Mapping[str, float]) -> bool:
        """Whether it holds; not without the figure."""
        return self.metric in figures and self.holds(figures[self.metric])


def parse(text: str, metrics: tuple[str, ...] = (*SUPERVISED, "success")) -> Goal:
    """ValueError, which says what there can be, unless it is a goal in one of these metrics that can be reached."""
    found = FORM.fullmatch(text)
    if not found or found[1] not in metrics:
        raise ValueError(f"it must be such as {allowed(metrics)}, in quotes")
    goal = Goal(found[1], found[2], _number(found[3]))
    upwards = goal.sense.startswith(">")
    if upwards != (goal.metric in SHARES):
        raise ValueError(f"that holds before there is anything to learn; it must be as in {EXAMPLES[goal.metric]}")
    if not 0 < goal.bound < math.inf:
        raise ValueError("the bound must be a number above 0")
    if goal.metric in SHARES and (goal.bound > 1 or (goal.bound == 1 and goal.sense == ">")):
        raise ValueError(f"{goal.metric} is a share, 1 at most; {goal.metric}>=1 is all")
    return goal


def allowed(metrics: tuple[str, ...]) -> str:
    """Examples of goals in these metrics."""
    examples = [f'"{EXAMPLES[metric]}"' for metric in metrics]
    return " or ".join([", ".join(examples[:-1]), examples[-1]] if len(examples) > 1 else examples)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def supervised(text: str | None) -> str | None:
    """The value of a --until of train-memory and train-baseline, always written the same way."""
    return None if text is None else str(parse(text, SUPERVISED))


def of_agent(text: str | None) -> str | None:
    """That of train-agent."""
    return None if text is None else str(parse(text, ("success",)))
