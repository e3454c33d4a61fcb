"""Sequences with targets from files of any kind, as `memup import arrays` brings them into a run.

The same data give the same run, whatever files they are in: what says where they are is a place, and no option of the
task.
"""

import hashlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option
from pydantic import field_validator, model_validator

from stores.groups import Episode
from stores.layout import Field

from ...errors import BadInput, UsageProblem
from ...options.common import RARE
from ..own.matters import Matters, with_rule
from ..spec import StepRule, TaskOptions, TaskSpec
from ..whole import WholeEpisodes
from .containers import locate, open_array
from .labels import Labels, look_at_labels
from .sequences import SPLITS, Sequences, open_sequences

FLAGS = {"train": "--episodes", "test": "--test-episodes"}
TEST_SHARE = 0.1
FILES = ("inputs", "targets", "lengths", "test")
COLUMNS = ("columns", "target_column", "episode_column", "split_column")


class ArraysOptions(TaskOptions):
    places: ClassVar[frozenset[str]] = frozenset({*FILES, *COLUMNS})

    inputs: str = Option(
        description="FILE[:KEY], npy, npz, HDF5 or Zarr, of (sequences, steps, ...); or a CSV or Parquet table of one "
        "row a step.",
        min_length=1,
    )
    targets: str | None = Option(
        None, description="FILE[:KEY], one target per sequence, for its last step, or one per step."
    )
    classes: bool = Option(False, description="Targets are classes: 0, 1, 2 and so on.")
    numbers: bool = Option(False, description="Targets are numbers.")
    lengths: str | None = Option(
        None, description="FILE[:KEY], how many steps each sequence has; inputs are (all steps, ...) then."
    )
    target_column: str | None = Option(None, description="Of a table: the target; empty where a step has no label.")
    episode_column: str | None = Option(None, description="Of a table: rows with the same value are a sequence.")
    columns: str | None = Option(
        None, description="Of a table: the inputs, such as a,b,c (default: all others).", json_schema_extra=RARE
    )
    split_column: str | None = Option(
        None, description="Of a table: which rows are train, validation or test.", json_schema_extra=RARE
    )
    test_share: float | None = Option(
        None,
        ge=0,
        lt=1,
        description="Share of the sequences, the last ones, for the test split (default: 0.1).",
        json_schema_extra=RARE,
    )
    test: str | None = Option(
        None, description="FILE[:KEY], the numbers of the test sequences, from 0 on.", json_schema_extra=RARE
    )
    matters: Matters = Option(
        None,
        description="The steps that matter, such as input[4]=1 (default: those with a label).",
        json_schema_extra=RARE,
    )

    @field_validator(*FILES)
    @classmethod
    def _from_anywhere(cls, value: str | None) -> str | None:
        return value and str(Path(value).absolute())  # the run may be continued from another folder

    @model_validator(mode="after")
    def _agree(self) -> "ArraysOptions":
        if self.classes == self.numbers:
            raise ValueError("say what the targets are: either --classes or --numbers")
        chosen = [name for name in ("test_share", "test", "split_column") if getattr(self, name) is not None]
        if len(chosen) > 1:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
            raise ValueError(f"{flags} both say which sequences are for the test; give one of them")
        return self


class ArraysTask(WholeEpisodes):
    Options = ArraysOptions
    summary: ClassVar[str] = "Your own sequences with targets, from npy, npz, HDF5, Zarr, CSV or Parquet."
    example: ClassVar[str] = "arrays --inputs X.npy --targets y.npy --classes --run runs/mine"

    @cached_property
    def _sequences(self) -> Sequences:
        return open_sequences(self.options)

    @cached_property
    def _labels(self) -> Labels:
        return look_at_labels(self._sequences, self.options.classes)

    @cached_property
    def spec(self) -> TaskSpec:
        """Steps that are asked for a target show it, or the last step of a sequence would look like the others."""
        sequences, labels = self._sequences, self._labels
        asked = () if labels.everywhere else (Field("asked", "uint8"),)
        seen = ("input", *(field.name for field in asked))
        spec = TaskSpec(
            fields=(
                Field("input", "uint8" if sequences.bytes_ else "float32", sequences.row),
                *asked,
                Field("target", labels.dtype),
            ),
            memory_input=seen,
            query=seen,
            target="target",
            target_kind="classes" if labels.classes else "scalar",
            classes={**{field.name: 2 for field in asked}, **({"target": labels.kinds} if labels.classes else {})},
            evaluate=StepRule("asked", 1) if asked else None,
        )
        return with_rule(spec, self.options.matters)

    @cached_property
    def _splits(self) -> dict[str, np.ndarray]:
        """The sequences of each split; those for validation are the last to train on."""
        count, named = self._sequences.count, self._sequences.named
        if named is not None:
            parts = {split: np.flatnonzero(named == number) for number, split in enumerate(SPLITS)}
            train = np.concatenate([parts["train"], parts["validation"]])
            if not len(parts["train"]):
                raise BadInput(f"no sequence is of the split train in {self.options.split_column!r}")
            return {"train": train, "test": parts["test"]}
        if self.options.test is not None:
            test = self._numbers_of_test(count)
        else:
            share = TEST_SHARE if self.options.test_share is None else self.options.test_share
            test = np.arange(count - min(count - 1, max(share > 0, round(count * share))), count)
        return {"train": np.setdiff1d(np.arange(count), test), "test": test}

    def _numbers_of_test(self, count: int) -> np.ndarray:
        array = open_array("--test", str(self.options.test))
        if array.dtype.kind not in "iu" or len(array.shape) != 1:
            raise BadInput(f"{array.name} must be the numbers of sequences; it is {array.dtype} {array.shape}")
        found = np.unique(array.read(0, array.shape[0]).astype(np.int64))
        if len(found) != array.shape[0] or not len(found) or found[0] < 0 or found[-1] >= count or len(found) == count:
            raise BadInput(
                f"{array.name} must name some of the {count:,} sequences, each once, as 0 to {count - 1:,}; others are "
                "trained on"
            )
        return found

    @property
    def default_validation(self) -> int | None:
        """How many of the training episodes are for validation, if the data say so."""
        named = self._sequences.named
        return int((named == SPLITS.index("validation")).sum()) or None if named is not None else None

    @property
    def run_name(self) -> str:
        return f"arrays-{locate('--inputs', self.options.inputs)[0].stem}"

    @property
    def default_episodes(self) -> tuple[int, int]:
        return len(self._splits["train"]), len(self._splits["test"])

    @property
    def max_length(self) -> int:
        return int(self._sequences.lengths.max())

    def typical_length(self, seed: int) -> int:
        return -(-int(self._sequences.starts[-1]) // self._sequences.count)

    def load(self, seed: int, episodes: dict[str, int], note: Callable[[str], None]) -> dict[str, Any]:
        """Look at every step before anything is written. A digest of what is stored tells data apart."""
        for split, count in episodes.items():
            there = len(self._splits[split])
            if count > there:
                raise UsageProblem(f"{FLAGS[split]} {count}: there are only {there:,} {split} sequences")
            if split == "train" and count < there and self.default_validation:
                raise UsageProblem(
                    f"--episodes {count}: --split-column says which of the {there:,} are for validation; all are taken"
                )
        for name in self._sequences.held:
            note(f"{name} is compressed, so it is held in RAM as a whole; numpy.savez does without")
        found, matter = hashlib.sha256(), self.spec.evaluate is None
        for number in range(self._sequences.count):
            arrays = self._arrays(number)
            self._look_at(number, arrays)
            rule = self.spec.evaluate
            if rule is not None and (steps := rule(arrays)).any():
                matter = True
                if "asked" in arrays and (steps > arrays["asked"]).any():
                    step = int((steps > arrays["asked"]).argmax())
                    raise UsageProblem(
                        f"--matters {self.options.matters}: step {step} of sequence {number} is one, and has no label"
                    )
            found.update(len(arrays["input"]).to_bytes(8, "little"))
            for values in arrays.values():
                found.update(np.ascontiguousarray(values).data)
        if not matter:
            raise UsageProblem(f"--matters {self.options.matters}: no step of any sequence is one")
        held_out = hashlib.sha256(self._splits["test"].astype("<i8").data).hexdigest()
        steps_in_all = int(self._sequences.starts[-1])
        data = {"sequences": self._sequences.count, "steps": steps_in_all, "sha256": found.hexdigest()}
        return {**data, "test": held_out, "train": len(self._splits["train"])}

    def _look_at(self, number: int, arrays: dict[str, np.ndarray]) -> None:
        values = arrays["input"]
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            step = int((~np.isfinite(values)).reshape(len(values), -1).any(1).argmax())
            raise BadInput(
                f"the inputs of sequence {number} have a number at step {step} that is missing, not finite or too "
                "large for float32. Mend the data: fill it in, or leave the sequence out."
            )
        if "asked" in arrays and not arrays["asked"].any():
            raise BadInput(f"sequence {number} has no label at any step; leave it out")

    def items(self, split: str, first: int, stop: int) -> Iterator[Episode]:
        for number in self._splits[split][first:stop].tolist():
            yield Episode(self._arrays(number), number)

    def _arrays(self, number: int) -> dict[str, np.ndarray]:
        sequences, labels = self._sequences, self._labels
        start, stop = int(sequences.starts[number]), int(sequences.starts[number + 1])
        y = sequences.step_targets(number)
        asked = ~np.isnan(y)
        with np.errstate(over="ignore"):  # what float32 does not hold is told as such
            arrays = {"input": sequences.inputs(start, stop).astype(self.spec.fields[0].numpy, copy=False)}
        if not labels.everywhere:
            arrays["asked"] = asked.astype(np.uint8)
        arrays["target"] = np.where(asked, y, labels.none).astype(labels.dtype)
        return arrays
