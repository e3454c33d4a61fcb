"""Add: three marked steps; at the third the target is the sum of the values at the first two."""

from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option

from stores.groups import Episode
from stores.layout import Field

from .spec import PAPER, StepRule, TaskOptions, TaskSpec

MARKS = 3


class AddOptions(TaskOptions):
    length: int = Option(100, ge=MARKS, le=100_000_000, description="Steps of a sequence (T).")


class Add:
    Options = AddOptions
    summary: ClassVar[str] = "Two marked numbers, their sum at a third mark."
    example: ClassVar[str] = "add --length 500 --episodes 20000"
    vectorised: ClassVar[bool] = True
    checked: ClassVar[bool] = True

    def __init__(self, options: AddOptions) -> None:
        self.options = options

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(Field("input", "float32", (2,)), Field("target", "float32")),
            memory_input=("input",),
            query=("input",),
            target="target",
            target_kind="scalar",
            evaluate=StepRule("target", 0, equal=False),
            recipes=self.recipes,
        )

    @property
    def recipes(self) -> dict[str, dict[str, Any]]:
        long = self.options.length >= 500
        fast = {
            # Only in a rollout with both marks is the second number no noise to what is learned about the first.
            "rollout": 100 if long else 10,
            "targets": MARKS,
            "at_targets": True,  # a mark that was just read moves the state
            "hidden": 128,
            "input_scale": 1.0,
            "context": "totals",
            "predictor": "gated",
            "predictor_hidden": 256,
            "spread": "learned",  # between the two marks half of the sum is unknown
            "replay": 0.5,
            "lr": 1e-2,
            "lr_end": 0.01,
            "average": 0.05,
            "updates": 12_000 if long else 30_000,
            "evaluate_every": 1000,
            "evaluate_episodes": 1000,
        }
        return {"fast": fast, "paper": {**PAPER, "rollout": 10 if self.options.length < 1000 else 20}}

    @property
    def run_name(self) -> str:
        return f"add-{self.options.length}"

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 10_000, 1000

    @property
    def max_length(self) -> int:
        return self.options.length

    def typical_length(self, seed: int) -> int:
        return self.options.length

    def episode(self, seed: int) -> Episode:
        rng = np.random.Generator(np.random.PCG64(seed))
        inputs = np.zeros((self.options.length, 2), np.float32)
        inputs[:, 0] = rng.random(self.options.length, dtype=np.float32)
        first, second, place = np.sort(rng.choice(self.options.length, MARKS, replace=False))
        inputs[[first, second, place], 1] = 1
        target = np.zeros(self.options.length, np.float32)
        target[place] = inputs[first, 0] + inputs[second, 0]
        return Episode({"input": inputs, "target": target}, seed)
