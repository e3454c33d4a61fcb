"""Permuted sequential MNIST: the pixels of an image one at a time, in one random order for all; then, which digit?"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option
from pydantic import field_validator

from stores.groups import Episode
from stores.layout import Field

from ...errors import UsageProblem
from ..equal_lengths import EqualLengths
from ..spec import StepRule, TaskOptions, TaskSpec
from .mnist import CLASSES, Images, read_splits

LENGTHS = (196, 784, 3136)
NO_LABEL = CLASSES  # the target of all steps but the last
BLOCK = 256  # images permuted at a time
FLAGS = {"train": "--episodes", "test": "--test-episodes"}


class PermutedMNISTOptions(TaskOptions):
    places: ClassVar[frozenset[str]] = frozenset({"data_dir"})

    length: int = Option(
        784, description="Steps: 784 (a pixel each), 3136 (zeros added) or 196 (means of 2 x 2 pixels)."
    )
    data_dir: Path | None = Option(
        None, description="Folder with the four MNIST files, plain or .gz (default: they are downloaded once)."
    )

    @field_validator("length")
    @classmethod
    def _known(cls, value: int) -> int:
        if value not in LENGTHS:
            raise ValueError(f"must be one of {', '.join(map(str, LENGTHS))}")
        return value

    @field_validator("data_dir")
    @classmethod
    def _from_anywhere(cls, value: Path | None) -> Path | None:
        return value and value.absolute()  # the run may be continued from another folder


def permutation(seed: int, length: int) -> np.ndarray:
    """The order of the steps. Ranks of raw random words: numpy may change how it shuffles, but not those."""
    words = np.random.PCG64(np.random.SeedSequence((seed, length))).random_raw(length)
    return np.argsort(words, kind="stable")


class PermutedMNIST(EqualLengths):
    Options = PermutedMNISTOptions
    name: ClassVar[str] = "pmnist"
    summary: ClassVar[str] = "MNIST pixel by pixel in a fixed random order, the digit asked for at the end."
    example: ClassVar[str] = "pmnist --length 784 --data-dir /data/mnist"

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(Field("pixel", "uint8"), Field("ask", "uint8"), Field("label", "uint8")),
            memory_input=("pixel", "ask"),
            query=("pixel", "ask"),
            target="label",
            target_kind="classes",
            classes={"ask": 2, "label": CLASSES + 1},
            scale={"pixel": 1 / 255},
            evaluate=StepRule("ask", 1),
            recipes=self.recipes,
        )

    @property
    def recipes(self) -> dict[str, dict[str, Any]]:
        """The detector needs to see one step only: the one that asks is the one that is uncertain."""
        hints = {
            "rollout": 49,
            "predict_every": 7,
            "cell": "gru",
            "hidden": 128,
            "horizon": 0.1,  # every pixel changes what is known of the digit: units that keep it all learn slowly
            "input_scale": 1.0,
            "lr": 3e-3,
            "average": 0.05,
            "updates": 40_000,
            "evaluate_every": 1000,
            "evaluate_episodes": 2000,
        }
        return {"hints": hints, "score": {"window": 1}}

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 60_000, 10_000

    def load(self, seed: int, episodes: dict[str, int], note: Callable[[str], None]) -> dict[str, Any]:
        """Read the images; what the manifest says of them tells two data sets or two orders apart."""
        wanted = {split: count for split, count in episodes.items() if count}
        self._splits = read_splits(self.options.data_dir, wanted, note)
        for split, count in wanted.items():
            images = self._splits[split]
            if count > len(images.labels):
                raise UsageProblem(
                    f"{FLAGS[split]} {count}: there are only {len(images.labels):,} {split} images; ask for at "
                    "most that"
                )
            self._check_length(images)
        self._order = permutation(seed, self.options.length)
        digest = hashlib.sha256(self._order.astype("<i4").data).hexdigest()
        return {
            "permutation": {"seed": seed, "length": self.options.length, "sha256": digest},
            "images": {split: images.describe() for split, images in self._splits.items()},
        }

    def _check_length(self, images: Images) -> None:
        side, length = images.side, self.options.length
        fitting = [n for n in LENGTHS if n >= side**2 or _is_pooled(side, n)]
        if length not in fitting:
            advice = f"use --length {' or '.join(map(str, fitting))}" if fitting else "they are too large"
            raise UsageProblem(f"--length {length} does not fit images of {side} x {side} pixels; {advice}")

    def items(self, split: str, first: int, stop: int) -> Iterator[Episode]:
        images, length = self._splits[split], self.options.length
        ask = np.zeros(length, np.uint8)
        ask[-1] = 1
        for start in range(first, stop, BLOCK):
            block = slice(start, min(start + BLOCK, stop))
            pixels = flatten(images.pixels[block], length)[:, self._order]  # (n, length)
            labels = np.full(pixels.shape, NO_LABEL, np.uint8)
            labels[:, -1] = images.labels[block]
            for index in range(len(pixels)):
                yield Episode({"pixel": pixels[index], "ask": ask, "label": labels[index]}, start + index)


def _is_pooled(side: int, length: int) -> bool:
    return side % 2 == 0 and (side // 2) ** 2 == length


def flatten(images: np.ndarray, length: int) -> np.ndarray:
    """Images (n, side, side) as rows (n, length): pooled 2 x 2 if they are four times as large, else zeros added."""
    count, side, _ = images.shape
    if _is_pooled(side, length):
        corners = images.reshape(count, side // 2, 2, side // 2, 2)
        return ((corners.sum((2, 4), dtype=np.uint16) + 2) // 4).astype(np.uint8).reshape(count, length)
    rows = np.zeros((count, length), np.uint8)
    rows[:, : side**2] = images.reshape(count, -1)
    return rows
