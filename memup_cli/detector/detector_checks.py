"""Whether a detector of another package is what kinds.py says: looked at before anything is trained."""

from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor

from .. import console
from ..blame import described
from ..errors import UsageProblem
from ..registries import DETECTORS
from ..registry import in_words
from ..tasks.spec import TaskSpec

KINDS = get_args(get_type_hints(TaskSpec)["target_kind"])
STEPS = 6


def check_detector(name: str, spec: TaskSpec, quiet: bool = False) -> None:
    """UsageProblem if it does not suit the task, or tells the author of a plug-in what of it is wrong."""
    if others := DETECTORS.unused(name):
        console.note(others, quiet)
    if not DETECTORS.is_built_in(name):
        kind = DETECTORS.load(name)
        try:
            with torch.random.fork_rng(devices=[]):
                problem = wrong_detector(kind, spec)
        except Exception as error:  # a plug-in can fail in any way
            raise DETECTORS.wrong(name, f"fails: {described(error)}") from error
        if problem:
            raise DETECTORS.wrong(name, f"is wrong: {problem}")
    if not spec.suits(name):
        raise UsageProblem(f"--detector {name} does not fit this task; use {in_words(spec.detectors)}")


def wrong_detector(kind: Any, spec: TaskSpec) -> str | None:
    """What of a kind is not as the protocol has it: the member, and what is allowed there."""
    if not isinstance(kind, type):
        return f"it is {kind!r:.60}, not a class"
    targets = getattr(kind, "targets", None)
    if not (isinstance(targets, tuple) and targets and set(targets) <= set(KINDS)):
        return f"its `targets` is {targets!r}; it must be a tuple of some of: {', '.join(KINDS)}"
    if spec.target_kind not in targets:
        return None
    made: Any = kind(spec, "entropy")
    for member, wanted in (("outputs", int), ("numbers", bool), ("looks_at_y", bool)):
        if type(found := getattr(made, member, None)) is not wanted:
            return f"its `{member}` is {found!r:.60}; it must be of type {wanted.__name__}"
    if made.outputs < 1:
        return f"its `outputs` is {made.outputs}; it must be 1 at least"
    for member in ("loss", "deviation", "score"):
        if not callable(getattr(made, member, None)):
            return f"it has no `{member}`"
    same = torch.Generator().manual_seed(0)  # whatever is wrong is told every time
    output = torch.randn(STEPS, made.outputs, generator=same).requires_grad_()
    classes = spec.classes[spec.target] if spec.target_kind == "classes" else 0
    y = torch.randint(classes, (STEPS,), generator=same) if classes else torch.randn(STEPS, generator=same)
    loss = made.loss(output, y, torch.ones(()))
    if not (isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad):
        return "`loss` must give one number (), a tensor with gradients to the output"
    for member in ("deviation", "score"):
        values = getattr(made, member)(output.detach(), y)
        if not (isinstance(values, Tensor) and values.shape == (STEPS,)):
            what = tuple(values.shape) if isinstance(values, Tensor) else f"{values!r:.60}"
            return f"`{member}` gives {what}; it must be one number for each step, here ({STEPS},)"
        if not bool((values >= 0).all()):
            return f"`{member}` gives numbers below 0, or none; it must be 0 or more"
    return None
