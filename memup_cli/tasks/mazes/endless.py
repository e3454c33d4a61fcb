"""Endless T-Maze: corridors that follow each other, each with its own hint and junction; the last hint counts.

Observations, actions and rewards are those of the T-Maze (tmaze.py). The step after a junction begins the next corridor
with a new hint, so the memory must forget the old one; the episode ends with the last corridor.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field as Option
from pydantic import model_validator

from ..own.spaces import registered
from ..spec import TaskSpec
from .tmaze import CorridorOptions, Corridors, Maze, draw_hints, random_bytes

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

MAX_STEPS = 100_000_000


class EndlessOptions(CorridorOptions):
    corridors: int = Option(10, ge=1, le=1000, description="Corridors of an episode.")
    length: int = Option(100, ge=1, le=MAX_STEPS, description="Steps from a hint to its junction (at least).")

    @model_validator(mode="after")
    def _not_too_long(self) -> "EndlessOptions":
        if self.max_length > MAX_STEPS:
            raise ValueError(f"{self.corridors} corridors of {self.length} steps are more than {MAX_STEPS:,} steps")
        return self

    @property
    def max_length(self) -> int:
        return self.corridors * super().max_length

    def draw(self, rng: np.random.Generator) -> Maze:
        hints, lengths = draw_hints(rng, self.corridors), self.draw_lengths(rng, self.corridors)
        places = np.cumsum(lengths + 1) - 1
        last = int(places[-1])
        marks, payoffs = np.ones(self.corridors, np.int64), np.zeros(self.corridors, np.float32)
        return Maze(hints, places - lengths, last, random_bytes(rng, last // 8 + 1), places, marks, hints > 0, payoffs)


class EndlessTMaze(Corridors):
    """The Endless T-Maze task."""

    Options = EndlessOptions
    summary: ClassVar[str] = "T-Mazes one after the other: each hint replaces the one before."
    example: ClassVar[str] = "endless-tmaze --corridors 10 --length 100"
    options: EndlessOptions

    @property
    def spec(self) -> TaskSpec:
        return replace(super().spec, counted="corridor")

    @property
    def environment_spec(self) -> "EnvSpec":
        return registered("memup/EndlessTMaze-v0", self.max_length, self.options.model_dump())

    @property
    def run_name(self) -> str:
        mode = "-ln" if self.options.mode == "LN" else ""
        return f"endless-tmaze{mode}-{self.options.corridors}x{self.options.length}"
