"""Contexts: what the predictor knows of the target step k itself, as features c_k.

A context is a torch module that encodes what is kept of a target step. Each is a module of its own; a line in
registries.py plugs one in. There are two sorts: c_k comes from some rows near k, or from all steps since the
episode's start, along which the context then carries a state.
"""

from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from stores.layout import Field

from ..memory.cells import Shape, State
from ..memory.encoders import FieldEncoder
from ..registries import CONTEXTS
from ..streaming.reading import ReadEpisode
from ..tasks.spec import TaskSpec

Rows = dict[str, np.ndarray]


class Context(Protocol):
    takes: ClassVar[tuple[str, ...]]  # of --window and --context-hidden, ...
    because: ClassVar[str]  # ... and why not the others
    alone: ClassVar[bool]  # c_k says no more than the query row of k: one can ask for what could come next
    from_start: ClassVar[bool]  # c_k depends on all steps since the start: there are initial() and along(), not at()
    trained_now: ClassVar[bool]  # it learns from the steps of every rollout, and what is kept of a target is c_k itself
    once: ClassVar[bool]  # what is kept of targets is often the same, and is worth encoding only once
    images: ClassVar[bool]  # the query may hold images

    size: int  # of c_k
    query: FieldEncoder  # of query rows
    before: int  # steps before k that at() reads

    def __init__(self, spec: TaskSpec, shape: Shape, window: int, horizon: int, units: bool) -> None:
        """units: numbers as how far they go."""

    @staticmethod
    def kept(spec: TaskSpec, window: int, size: int) -> tuple[Field, ...]:
        """What tables keep of a target step."""

    @staticmethod
    def rows(spec: TaskSpec, window: int, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> Rows:
        """That of steps (M,) of a stored episode, read a block of steps at a time."""

    @staticmethod
    def own(kept: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of what is kept, the query rows of the steps themselves."""

    def of_episode(self, arrays: Rows, c: Tensor, steps: np.ndarray) -> Rows:
        """The same of an episode in RAM, and of c along it (T, size)."""

    def __call__(self, kept: dict[str, Tensor]) -> Tensor:
        """What is kept (..., *row) -> c (..., size)."""

    def at(self, arrays: Rows, episode: np.ndarray, place: np.ndarray, start: int, device: torch.device) -> Tensor:
        """c (n, size) of places (n,) of episodes (n,), in arrays (B, T, *row) that begin at step `start` of these."""

    def initial(self, batch: int) -> State: ...

    def along(self, arrays: dict[str, Tensor], state: State) -> tuple[Tensor, State]:
        """Steps (B, r, *row) -> c along them (B, r, size), and the state after."""


def context_class(name: str) -> type[Context]:
    found: type[Context] = CONTEXTS.load(name)
    return found


def build_context(spec: TaskSpec, name: str, shape: Shape, window: int, horizon: int, units: bool = False) -> Any:
    return context_class(name)(spec, shape, window, horizon, units)
