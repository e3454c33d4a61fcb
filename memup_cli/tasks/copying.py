"""Copy and scattered copy: ten digits at the start, to be given back in order where the input shows a 1."""

from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option

from stores.groups import Episode
from stores.layout import Field

from .spec import PAPER, StepRule, TaskOptions, TaskSpec

SYMBOLS = 10  # digits to remember
FIRST_DIGIT, LAST_DIGIT = 2, 9
RECALL = 1  # the input that asks for a digit; 0 is blank


class CopyOptions(TaskOptions):
    length: int = Option(120, ge=2 * SYMBOLS, le=100_000_000, description="Steps of a sequence (T).")


class Copy:
    """The ten recall marks are the last ten steps."""

    Options = CopyOptions
    summary: ClassVar[str] = "Ten digits, to be repeated at the end of the sequence."
    example: ClassVar[str] = "copy --length 1020"
    vectorised: ClassVar[bool] = True
    checked: ClassVar[bool] = True
    name: ClassVar[str] = "copy"
    context: ClassVar[dict[str, Any]] = {"context": "window", "window": SYMBOLS + 2, "context_scale": 1.0}
    paper_context: ClassVar[dict[str, Any]] = {}

    def __init__(self, options: CopyOptions) -> None:
        self.options = options

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(Field("input", "uint8"), Field("target", "uint8")),
            memory_input=("input",),
            query=("input",),
            target="target",
            target_kind="classes",
            classes={"input": LAST_DIGIT + 1, "target": LAST_DIGIT + 1},
            evaluate=StepRule("input", RECALL),
            recipes=self.recipes,
        )

    @property
    def recipes(self) -> dict[str, dict[str, Any]]:
        """All ten recalls are targets at once; the scale of the inputs and the gated predictor make it quick."""
        paper = {**PAPER, "rollout": 10 if self.options.length < 1000 else 20, **self.paper_context}
        fast = {
            "rollout": 10 if self.options.length < 500 else 20,
            "targets": SYMBOLS,
            "hidden": 128,
            "input_scale": 1.0,
            **self.context,
            "predictor": "gated",
            "replay": 0.5,
            "starts": 0.25 if self.options.length >= 500 else 0.0,  # in long sequences walkers seldom come to a start
            "lr": 1e-2,
            "average": 0.05,
            "updates": 20_000,
            "evaluate_every": 1000,
            "evaluate_episodes": 1000,
        }
        if self.options.length >= 1000:  # a walk in five updates: the states that are replayed must not be old
            fast |= {"rollout_sampling": "priority", "stretch": self.options.length // 100}
        if self.options.length >= 2000:  # blanks would pile up in the units that keep the digits, until those are lost
            fast |= {"novelty_gates": True, "horizon": 10.0}
        return {"fast": fast, "paper": paper}

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.options.length}"

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 10_000, 1000

    @property
    def max_length(self) -> int:
        return self.options.length

    def typical_length(self, seed: int) -> int:
        return self.options.length

    def recall_steps(self, rng: np.random.Generator) -> np.ndarray:
        return np.arange(self.options.length - SYMBOLS, self.options.length)

    def episode(self, seed: int) -> Episode:
        rng = np.random.Generator(np.random.PCG64(seed))
        digits = rng.integers(FIRST_DIGIT, LAST_DIGIT + 1, SYMBOLS, dtype=np.uint8)
        recall = self.recall_steps(rng)
        inputs = np.zeros(self.options.length, np.uint8)
        inputs[:SYMBOLS] = digits
        inputs[recall] = RECALL
        target = np.zeros(self.options.length, np.uint8)
        target[recall] = digits
        return Episode({"input": inputs, "target": target}, seed)


class ScatteredCopy(Copy):
    """The recall marks lie anywhere after the digits; the n-th asks for the n-th digit."""

    summary: ClassVar[str] = "Ten digits, to be repeated at ten random later steps."
    example: ClassVar[str] = "scattered-copy --length 520 --run runs/scattered"
    name: ClassVar[str] = "scattered-copy"
    # Which digit a mark asks for is the number of marks before it: no window shows that, a total does.
    context: ClassVar[dict[str, Any]] = {"context": "totals", "predictor_hidden": 256}
    paper_context: ClassVar[dict[str, Any]] = {"context": "carried", "context_scale": None}

    def recall_steps(self, rng: np.random.Generator) -> np.ndarray:
        return np.sort(SYMBOLS + rng.choice(self.options.length - SYMBOLS, SYMBOLS, replace=False))
