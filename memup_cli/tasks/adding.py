"""Add: three marked steps; at the third the target is the sum of the values at the first two."""

from typing import ClassVar

import numpy as np
from pydantic import Field as Option

from stores.groups import Episode
from stores.layout import Field

from .equal_lengths import EqualLengths
from .spec import StepRule, TaskOptions, TaskSpec

MARKS = 3


class AddOptions(TaskOptions):
    length: int = Option(100, ge=MARKS, le=100_000_000, description="Steps of a sequence (T).")


class Add(EqualLengths):
    Options = AddOptions
    name: ClassVar[str] = "add"
    summary: ClassVar[str] = "Two marked numbers, their sum at a third mark."
    example: ClassVar[str] = "add --length 500 --episodes 20000"

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(Field("input", "float32", (2,)), Field("target", "float32")),
            memory_input=("input",),
            query=("input",),
            target="target",
            target_kind="scalar",
            evaluate=StepRule("target", 0, equal=False),
        )

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 10_000, 1000

    def episode(self, seed: int) -> Episode:
        rng = np.random.Generator(np.random.PCG64(seed))
        inputs = np.zeros((self.options.length, 2), np.float32)
        inputs[:, 0] = rng.random(self.options.length, dtype=np.float32)
        first, second, place = np.sort(rng.choice(self.options.length, MARKS, replace=False))
        inputs[[first, second, place], 1] = 1
        target = np.zeros(self.options.length, np.float32)
        target[place] = inputs[first, 0] + inputs[second, 0]
        return Episode({"input": inputs, "target": target}, seed)
