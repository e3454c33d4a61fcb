"""When a supervised training is good enough: what --until asks for, or else all that there is to learn."""

from ..errors import UsageProblem
from ..options.baseline_options import TrainBaselineOptions
from ..options.memory_options import TrainMemoryOptions
from ..options.until import ERRORS, allowed, parse
from ..tasks.spec import TaskSpec

ALL = 0.9999  # explained on validation episodes: there is nothing left to learn

Options = TrainMemoryOptions | TrainBaselineOptions


def check_goals(options: Options, spec: TaskSpec) -> None:
    """UsageProblem if the goal is not one of this task's targets."""
    what, metrics = ("classes", ("accuracy",)) if spec.target_kind == "classes" else ("numbers", ERRORS)
    if options.until and (goal := parse(options.until)).metric not in metrics:
        raise UsageProblem(f'--until "{goal}": this task predicts {what}; use {allowed(metrics)}')


def reached(options: Options, result: dict[str, float]) -> bool:
    """Whether the training is to stop here because what was asked for is reached."""
    if options.until:
        return parse(options.until).reached(result)
    return result.get("explained", 0.0) >= ALL
