"""Which of the processes that torchrun started this is, read from its environment. Imports no torch."""

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Rank:
    """One process of a training, of `size` in all; it is number `local` of the `here` on its machine."""

    number: int
    size: int
    local: int
    here: int = 1


def rank() -> Rank:
    """Alone, unless the launcher says otherwise."""
    size = _count("WORLD_SIZE", 1)
    if size < 2 or "MASTER_ADDR" not in os.environ:
        return Rank(0, 1, 0)
    return Rank(_count("RANK", 0), size, _count("LOCAL_RANK", 0), _count("LOCAL_WORLD_SIZE", 1))


def _count(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else default
