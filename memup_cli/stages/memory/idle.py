"""Options of train-memory that have no effect beside others: given, they are a mistake, and refused."""

from ...errors import UsageProblem
from ...options.memory_options import TrainMemoryOptions
from ...predictor.contexts import context_class
from ...registries import CELLS
from ...selection.rules import rule_of
from ...tasks.spec import TaskSpec
from .memory_job import MemoryJob

_OF_THE_STATE = ("hidden", "layers", "embedding", "dropout", "horizon", "replay", "starts", "rollout_sampling")
_OF_CONTEXTS = ("window", "context_hidden")


def idle(options: TrainMemoryOptions, spec: TaskSpec) -> dict[str, str]:
    """What has no effect with these options, and because of which."""
    context = context_class(options.context)
    useless = tuple(name for name in _OF_CONTEXTS if name not in context.takes)
    rule = rule_of(options.select)
    rules = (
        (not CELLS.entry(options.cell).remembers, _OF_THE_STATE, f"--cell {options.cell} has no state"),
        (True, rule.idle, f"--select {options.select} {rule.because}"),
        (options.scores == "online", ("detector",), "--scores online are the model's own errors"),
        (True, useless, f"--context {options.context} {context.because}"),
        (options.layers == 1, ("dropout",), "it lies between two layers, and there is one"),
        (options.rollout_sampling == "all", ("stretch", "priority"), "every rollout is trained"),
        (spec.target_kind != "return", ("gamma",), "the targets of this task are no returns"),
    )
    return {name: why for applies, names, why in rules if applies for name in names}


def refuse_idle(asked: set[str], job: MemoryJob) -> None:
    """UsageProblem for what is asked for and has no effect, whichever of the rivals may win."""
    ways = [idle(job.options.model_copy(update=rival), job.spec) for rival in job.rivals or ({},)]
    for name in sorted(asked):
        if all(name in way for way in ways):
            option = "--" + name.replace("_", "-")
            raise UsageProblem(f"{option} has no effect here: {ways[0][name]}. Leave it out, or change that.")
