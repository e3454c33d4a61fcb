"""Whether a cell of another package is what cells.py says: looked at before anything is trained."""

from typing import Any

import torch
from torch import Tensor, nn

from .. import console
from ..blame import described
from ..registries import CELLS
from .cells import Shape, prepared

INPUTS, SIZE, BATCH, STEPS = 3, 8, 2, 5  # of the cell that is looked at


def check_cell(name: str, quiet: bool = False) -> None:
    """UsageProblem tells the author of a plug-in what of it is wrong."""
    if others := CELLS.unused(name):
        console.note(others, quiet)
    if CELLS.is_built_in(name):
        return
    kind = CELLS.load(name)
    try:
        with torch.random.fork_rng(devices=[]):  # what is trained draws the same numbers with or without this
            problem = wrong_cell(kind)
    except Exception as error:  # a plug-in can fail in any way
        raise CELLS.wrong(name, f"fails: {described(error)}") from error
    if problem:
        raise CELLS.wrong(name, f"is wrong: {problem}")


def wrong_cell(kind: Any) -> str | None:
    """What of a cell is not as the protocol has it: the member, and what is allowed there."""
    if not callable(kind):
        return f"it is {kind!r:.60}; it must be a class, or a function that makes a cell"
    cell: Any = kind(INPUTS, Shape(SIZE, standard=True), 20)
    if nn.Module not in type(cell).__mro__:
        return f"it makes {cell!r:.60}; it must make a torch.nn.Module"
    for member in ("initial", "forward"):
        if not callable(getattr(cell, member, None)) or getattr(type(cell), member, None) is nn.Module.forward:
            return f"it has no `{member}`"
    if getattr(cell, "size", None) != SIZE:
        return f"its `size` is {getattr(cell, 'size', None)!r}; it must be that of the Shape, here {SIZE}"
    cell.eval()
    begin = cell.initial(BATCH)
    if problem := _wrong_state(begin, BATCH):
        return f"`initial({BATCH})` gives {problem}; it must give a tuple of float tensors ({BATCH}, n)"
    if any(bool(part.any()) for part in begin):
        return "`initial` gives other numbers than zeros; zeros must mean that nothing was read yet"
    x = torch.randn(BATCH, STEPS, INPUTS)
    with torch.no_grad():
        m, after = cell(x, begin)
        if not isinstance(m, Tensor) or m.shape != (BATCH, STEPS, SIZE):
            return f"`forward` gives m {_shape(m)}; it must be (B, r, size), here ({BATCH}, {STEPS}, {SIZE})"
        if _wrong_state(after, BATCH) or [p.shape for p in after] != [p.shape for p in begin]:
            return f"`forward` gives the state {_shape(after)}; it must be like that of `initial`, {_shape(begin)}"
        if not _steps_alike(m, x, begin, lambda now, state: _first(cell(now.unsqueeze(1), state))):
            return "`forward` of many steps gives other states than one call for each step"
        if not _steps_alike(m, x, begin, prepared(cell)):
            return "`prepared()` gives other states than `forward`"
    return None


def _first(found: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    return found[0][:, 0], found[1]


def _steps_alike(m: Tensor, x: Tensor, state: Any, step: Any) -> bool:
    parts = []
    for now in x.unbind(1):
        one, state = step(now, state)
        parts.append(one)
    return torch.allclose(torch.stack(parts, 1), m, rtol=1e-3, atol=1e-4)


def _wrong_state(state: Any, batch: int) -> str | None:
    """What it is, if it is no state."""
    if not isinstance(state, tuple) or not all(isinstance(part, Tensor) for part in state):
        return f"{state!r:.60}"
    good = all(part.ndim == 2 and len(part) == batch and part.is_floating_point() for part in state)
    return None if good else _shape(state)


def _shape(found: Any) -> str:
    if isinstance(found, Tensor):
        return str(tuple(found.shape))
    return f"({', '.join(map(_shape, found))})" if isinstance(found, tuple) else f"{found!r:.60}"
