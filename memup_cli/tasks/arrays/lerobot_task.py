"""The episodes of a LeRobot data set, as `memup import lerobot` brings them into a run.

With rewards they are like those of a Gymnasium environment, whose returns are predicted. Without, or if the user says
so, one number of each step is the target, which no step shows.
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

from ...errors import BadInput
from ...options.common import RARE
from ..own.held_out import check_same_test, shared_out, usual_shares
from ..own.matters import HELP as MATTERS
from ..own.matters import Matters, with_rule
from ..spec import PREVIOUS_ACTION, TaskOptions, TaskSpec
from ..whole import WholeEpisodes
from .labels import Labels, look_at_labels
from .lerobot_columns import Columns, action_classes, choose_columns, target_of_steps
from .lerobot_files import Frames, LeRobotFiles, open_lerobot

ENDS, CUT = "next.done", "next.truncated"


class LeRobotOptions(TaskOptions):
    places: ClassVar[frozenset[str]] = frozenset({"folder"})

    folder: str = Option(
        description="Folder of a LeRobot data set of format v3.0: the one with meta and data in it.",
        min_length=1,
        json_schema_extra={"argument": "FOLDER"},
    )
    target: str | None = Option(
        None,
        description="What to predict of each step, such as next.success or action[3] (default: the returns of "
        "next.reward). Whole numbers are classes.",
    )
    numbers: bool = Option(False, description="A target of whole numbers is a number, no class.")
    observe: str | None = Option(
        None, description="Features that are seen, with commas (default: all numbers of observation...)."
    )
    test_share: float = Option(
        0.1, ge=0, lt=1, description="Share of the episodes for the test split, evenly spread over the data set."
    )
    gamma: float | None = Option(
        None,
        ge=0,
        le=1,
        description="Discount of the returns to be predicted (default: `memup score` chooses it).",
        json_schema_extra=RARE,
    )
    matters: Matters = Option(None, description=MATTERS)

    @field_validator("folder")
    @classmethod
    def _from_anywhere(cls, value: str) -> str:
        return str(Path(value).absolute())  # the run may be continued from another folder

    @model_validator(mode="after")
    def _agree(self) -> "LeRobotOptions":
        if self.target is None and self.numbers:
            raise ValueError("--numbers is about a target that --target names; leave it out")
        if self.target is not None and self.gamma is not None:
            raise ValueError("--gamma is the discount of returns; leave it out, as --target names something else")
        return self


class LeRobotTask(WholeEpisodes):
    Options = LeRobotOptions
    summary: ClassVar[str] = "The episodes of a LeRobot data set (format v3.0), without its videos."
    example: ClassVar[str] = "lerobot data/pusht --run runs/pusht"

    @cached_property
    def _files(self) -> LeRobotFiles:
        return open_lerobot(Path(self.options.folder))

    @property
    def _name(self) -> str:
        return Path(self.options.folder).name

    @cached_property
    def _columns(self) -> Columns:
        return choose_columns(self._files, self.options.target, self.options.observe)

    @property
    def _rewarded(self) -> bool:
        return self.options.target is None

    @cached_property
    def _action(self) -> Field | None:
        feature = self._columns.numeric.get("action")
        if feature is None:
            return None
        return Field(
            "action", "uint16" if self._action_classes else "float32", () if self._action_classes else feature.shape
        )

    @cached_property
    def _action_classes(self) -> int:
        return action_classes(self._files, self._columns.numeric["action"])

    @cached_property
    def _labels(self) -> Labels:
        name, column = self._columns.target
        classes = self._columns.numeric[name].is_whole and not self.options.numbers
        return look_at_labels(target_of_steps(self._files, name, column), classes)

    @cached_property
    def _observation(self) -> Field:
        """One feature as it is, of several all numbers in a row."""
        if len(self._columns.observed) > 1:
            return Field("observation", "float32", (sum(feature.size for feature in self._columns.observed),))
        (feature,) = self._columns.observed
        is_bytes = feature.kind in ("image", "uint8")
        return Field("observation", "uint8" if is_bytes else "float32", feature.shape)

    @cached_property
    def spec(self) -> TaskSpec:
        """What is known of a step that is asked about: not the target, nor the action that it is a part of."""
        self._files.check(self._names)
        acted = [self._action] if self._action else []
        rewarded, labels = self._rewarded, None if self._rewarded else self._labels
        asked = ["action"] * bool(acted and self._columns.target[0] != "action")
        spec = TaskSpec(
            fields=(
                self._observation,
                *acted,
                Field("reward", "float32") if labels is None else Field("target", labels.dtype),
            ),
            memory_input=("observation", *([PREVIOUS_ACTION] if acted else [])),
            query=("observation", *asked),
            target="reward" if rewarded else "target",
            target_kind="return" if rewarded else "classes" if labels and labels.classes else "scalar",
            classes={
                **({"action": self._action_classes} if acted and self._action_classes else {}),
                **({"target": labels.classes} if labels and labels.classes else {}),
            },
            gamma=self.options.gamma if rewarded else 0.0,
            parts=tuple((f.name, f.size) for f in self._columns.observed if self._observation.dtype == "float32"),
        )
        return with_rule(spec, self.options.matters)

    @cached_property
    def _names(self) -> list[str]:
        """The features that are read."""
        ends = [name for name in (ENDS, CUT) if name in self._columns.numeric]
        action = ["action"] if "action" in self._columns.numeric else []
        return list(dict.fromkeys([*(f.name for f in self._columns.observed), *action, self._columns.target[0], *ends]))

    @property
    def run_name(self) -> str:
        return f"lerobot-{self._name}"

    @property
    def default_episodes(self) -> tuple[int, int]:
        return usual_shares(len(self._files.lengths), self.options.test_share)

    @property
    def max_length(self) -> int:
        return int(self._files.lengths.max())

    def typical_length(self, seed: int) -> int:
        return -(-int(self._files.lengths.sum()) // len(self._files.lengths))

    def load(self, seed: int, episodes: dict[str, int], note: Callable[[str], None]) -> dict[str, Any]:
        """Look at every number before anything is written. A digest tells data apart; of images, their size."""
        files = self._files
        self._numbers = shared_out(self._name, len(files.lengths), episodes)
        if left := [f.name for f in files.features.values() if f.kind == "video"]:
            note(f"{self._name}: left out, being videos: {', '.join(left)}")
        seen = {feature.name for feature in self._columns.observed}
        if left := [f.name for f in files.features.values() if f.kind == "image" and f.name not in seen]:
            note(f"{self._name}: left out, being images: {', '.join(left)}. --observe NAME takes one of them instead.")
        found = hashlib.sha256(
            repr([(p.name, p.stat().st_size) for p in files.paths]).encode() if self._is_image else b""
        )
        reading = Frames(files, [name for name in self._names if files.features[name].kind != "image"])
        for number in range(len(files.lengths)):
            for name, values in reading.episode(number).items():
                self._look_at(number, name, values)
                found.update(np.ascontiguousarray(values).data)
        sizes = {"episodes": len(files.lengths), "frames": int(files.lengths.sum())}
        return {
            **sizes,
            "lengths": hashlib.sha256(files.lengths.astype("<i8").data).hexdigest(),
            "sha256": found.hexdigest(),
        }

    @property
    def _is_image(self) -> bool:
        return self._columns.observed[0].kind == "image"

    def _look_at(self, number: int, name: str, values: np.ndarray) -> None:
        with np.errstate(over="ignore"):  # what float32 does not hold is told as such
            fits = np.isfinite(values.astype(np.float32)).reshape(len(values), -1).all(1)
        if not fits.all():
            raise BadInput(
                f"episode {number} of {self.options.folder} has a number in {name!r} at step {int(fits.argmin())} that "
                "is not finite, or too large for float32. Mend the data, or name other features with --observe."
            )

    def check_growth(self, earlier: dict[str, int], episodes: dict[str, int]) -> None:
        """Test episodes are spread over the data set."""
        check_same_test(self._name, earlier, episodes)

    def items(self, split: str, first: int, stop: int) -> Iterator[Episode]:
        for number in self._numbers[split][first:stop].tolist():
            found = self._frames.episode(number)
            yield Episode(self._arrays(found), number, self._ended(found))

    @cached_property
    def _frames(self) -> Frames:
        return Frames(self._files, self._names)

    def _arrays(self, found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        name, column = self._columns.target
        rows = len(found[name])
        seen = [found[feature.name] for feature in self._columns.observed]
        values = {
            "observation": seen[0] if len(seen) == 1 else np.concatenate([part.reshape(rows, -1) for part in seen], 1),
            self.spec.target: found[name].reshape(rows, -1)[:, column],
        }
        if self._action:
            values["action"] = found["action"].reshape(rows, *self._action.shape)
        return {field.name: values[field.name].astype(field.numpy, copy=False) for field in self.spec.fields}

    @staticmethod
    def _ended(found: dict[str, np.ndarray]) -> bool:
        """Whether it came to an end of its own, as far as the data set says."""
        done, cut = (bool(found[name].reshape(-1)[-1]) if name in found else None for name in (ENDS, CUT))
        return done is not False and not cut
