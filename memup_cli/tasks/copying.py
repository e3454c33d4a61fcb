"""Copy and scattered copy: ten digits at the start, to be given back in order where the input shows a 1."""

from typing import ClassVar

import numpy as np
from pydantic import Field as Option

from stores.groups import Episode
from stores.layout import Field

from .equal_lengths import EqualLengths
from .spec import StepRule, TaskOptions, TaskSpec

SYMBOLS = 10  # digits to remember
FIRST_DIGIT, LAST_DIGIT = 2, 9
RECALL = 1  # the input that asks for a digit; 0 is blank


class CopyOptions(TaskOptions):
    length: int = Option(120, ge=2 * SYMBOLS, le=100_000_000, description="Steps of a sequence (T).")


class Copy(EqualLengths):
    """The ten recall marks are the last ten steps."""

    Options = CopyOptions
    summary: ClassVar[str] = "Ten digits, to be repeated at the end of the sequence."
    example: ClassVar[str] = "copy --length 1020"
    name: ClassVar[str] = "copy"

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
        )

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 10_000, 1000

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

    def recall_steps(self, rng: np.random.Generator) -> np.ndarray:
        return np.sort(SYMBOLS + rng.choice(self.options.length - SYMBOLS, SYMBOLS, replace=False))
