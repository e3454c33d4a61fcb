"""When a supervised training is good enough: what --until-... asks for, or else all that there is to learn."""

import math

from ..errors import UsageProblem
from ..options.baseline_options import TrainBaselineOptions
from ..options.stage_options import TrainMemoryOptions
from ..tasks.spec import TaskSpec

ALL = 0.9999  # explained on validation episodes: there is nothing left to learn

Options = TrainMemoryOptions | TrainBaselineOptions


def check_goals(options: Options, spec: TaskSpec) -> None:
    """UsageProblem if a goal is not one of this task's targets."""
    classes = spec.target_kind == "classes"
    for name in ("until_rmse", "until_mse"):
        if getattr(options, name) and classes:
            raise UsageProblem(
                f"--{name.replace('_', '-')} is for numbers; this task predicts classes: use --until-accuracy"
            )
    if options.until_accuracy and not classes:
        raise UsageProblem("--until-accuracy is for classes; this task predicts numbers: use --until-rmse")


def reached(options: Options, result: dict[str, float]) -> bool:
    """Whether the training is to stop here because what was asked for is reached."""
    errors = (("rmse", options.until_rmse), ("mse", options.until_mse))
    if not any((options.until_rmse, options.until_mse, options.until_accuracy)):
        return result.get("explained", 0.0) >= ALL
    if any(wanted and result.get(name, math.inf) < wanted for name, wanted in errors):
        return True
    return bool(options.until_accuracy and result.get("accuracy", 0.0) >= options.until_accuracy)
