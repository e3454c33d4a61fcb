"""What a task tells the rest of memup about its episodes."""

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict

from stores.groups import Episode
from stores.layout import Field

from ..registries import DETECTORS, PROBE

PREVIOUS_ACTION = "previous_action"  # as a memory input: the action of the step before, one-hot, zeros at the start
PREVIOUS_REWARD = "previous_reward"  # the same of the reward, a number
SMALLEST_IMAGE = 20  # pixels a side, for convolutions; smaller ones are numbers
LATE = {PREVIOUS_ACTION: "action", PREVIOUS_REWARD: "reward"}  # inputs that are a stored field one step late


def is_seen(field: Field) -> bool:
    """Whether networks see a field as images, with convolutions."""
    return field.is_image and min(field.shape[:2]) >= SMALLEST_IMAGE


@dataclass(frozen=True)
class StepRule:
    """Steps at which a field (or one column of it) equals a value, or differs from it."""

    field: str
    value: float
    column: int | None = None
    equal: bool = True

    def __call__(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        values = arrays[self.field] if self.column is None else arrays[self.field][..., self.column]
        return (values == self.value) == self.equal


@dataclass(frozen=True)
class TaskSpec:
    """Which fields are the memory's input x_t, the predictor's query and the target y_k."""

    fields: tuple[Field, ...]
    memory_input: tuple[str, ...]
    query: tuple[str, ...]
    target: str
    target_kind: Literal["classes", "scalar", "return"]  # return: discounted sum of the target field from k on
    classes: dict[str, int] = field(default_factory=dict)  # fields that hold class numbers, and how many there are
    scale: dict[str, float] = field(default_factory=dict)  # what networks see of a field: its values times this
    gamma: float | None = 0.0  # discount of a return; None: `memup score` chooses it
    evaluate: StepRule | None = None  # the steps that matter; None: every step
    counted: str = ""  # what they are, one after the other, if evaluation is to tell the first from the second
    cue_at_start: bool = False  # what they depend on: then their step is the dependency length
    solved: float | None = None  # the task is solved with a lower RMSE than this, or a higher accuracy
    near: float | None = None  # numbers: a prediction less than this away from y is as good as right
    recipes: dict[str, dict[str, Any]] = field(default_factory=dict)  # hints, paper, score, of agents
    parts: tuple[tuple[str, int], ...] = ()  # what the columns of an observation are: names, and how many each has
    components: dict[str, tuple[int, ...]] = field(
        default_factory=dict
    )  # of fields whose rows are several class numbers

    @property
    def detectors(self) -> tuple[str, ...]:
        """The built-in ones that can predict the target; the probe goes with each."""
        return tuple(name for name in DETECTORS.built_in if self.suits(name))

    def suits(self, detector: str) -> bool:
        """Whether a detector can predict the target."""
        if DETECTORS.is_built_in(detector):
            return self.target_kind in DETECTORS.entry(detector).targets
        return self.target_kind in DETECTORS.load(detector).targets

    def counts(self, name: str) -> tuple[int, ...]:
        """How many classes each number of a field's rows has; none if they are no class numbers."""
        if name not in self.classes:
            return self.components.get(name, ())
        shape = next(f.shape for f in self.fields if f.name == name)
        return (self.classes[name],) * math.prod(shape)

    def source(self, name: str) -> str:
        """The stored field that an input is, or is one step late."""
        return name if any(f.name == name for f in self.fields) else LATE.get(name, name)

    def late(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those inputs that are one step late."""
        return tuple(name for name in names if self.source(name) != name)

    @property
    def observed_images(self) -> tuple[str, ...]:
        """Those that go through convolutions."""
        return tuple(f.name for f in self.fields if f.name in self.observed and is_seen(f) and not self.counts(f.name))

    @property
    def observed(self) -> tuple[str, ...]:
        """The fields that an environment shows."""
        return tuple(name for name in self.memory_input if self.source(name) == name) or ("observation",)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        if not self.components:  # not in 0.1.0
            del found["components"]
        return found

    @staticmethod
    def from_json(found: dict[str, Any]) -> "TaskSpec":
        values = dict(found)
        values["fields"] = tuple(Field(f["name"], f["dtype"], tuple(f["shape"])) for f in values["fields"])
        values["evaluate"] = StepRule(**values["evaluate"]) if values["evaluate"] else None
        values["memory_input"], values["query"] = tuple(values["memory_input"]), tuple(values["query"])
        values["parts"] = tuple((name, int(count)) for name, count in values.get("parts", ()))
        values["components"] = {name: tuple(counts) for name, counts in values.get("components", {}).items()}
        return TaskSpec(**values)


def default_detector(spec: TaskSpec) -> str:
    """One whose scores do not look at y: those that did would draw unlikely outcomes, whatever the step."""
    return spec.detectors[0]


def detectors_of(detector: str, spec: TaskSpec) -> tuple[str, ...]:
    """Whose scores a score stage writes."""
    return (default_detector(spec), detector) if detector == PROBE else (detector,)


class TaskOptions(BaseModel):
    """Base of a task's options; the fields' descriptions are the help text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    places: ClassVar[frozenset[str]] = frozenset()  # options that say only where files lie, not what is in them


class Task(Protocol):
    """A source of episodes. Episode number i of a split is a pure function of its seed.

    A task with an environment also has `vector_environment(count, render_mode)`: a Gymnasium VectorEnv with autoreset
    disabled. It may have `success_return`: an episode with that return is a success if its info has no `is_success`;
    and `environment_spec`: what `gymnasium.make` takes, which exported data sets name as their environment.
    A task with `checked = True` vouches for its episodes; those of others are looked at for classes out of range and
    numbers that are not finite.
    A DataSet has items() instead of episode(). A task may have `default_validation`: how many of the training episodes,
    the last ones, are for validation if the user does not say.
    """

    Options: ClassVar[type[TaskOptions]]
    summary: ClassVar[str]  # one line for the help
    example: ClassVar[str]  # a command line for the help, after `memup collect`
    vectorised: ClassVar[bool]  # whole episodes at once (threads suffice), or stepped (worker processes)

    def __init__(self, options: Any) -> None: ...

    @property
    def spec(self) -> TaskSpec: ...

    @property
    def run_name(self) -> str:
        """Name of the default run folder."""

    @property
    def default_episodes(self) -> tuple[int, int]:
        """Train and test episodes when the user does not say."""

    @property
    def max_length(self) -> int | None:
        """The longest an episode can be; None if only collecting can tell."""

    def typical_length(self, seed: int) -> int:
        """About how long episodes are; a pure function of the seed."""

    def episode(self, seed: int) -> Episode: ...


@runtime_checkable
class SideBySide(Protocol):
    """A task that makes many episodes at a time faster than one after the other."""

    def episodes(self, seeds: list[int]) -> Iterator[Episode]: ...


@runtime_checkable
class Streamed(Protocol):
    """A task whose steps are so large (images) that a whole episode is not to be held."""

    def blocks(self, seed: int, size: int) -> Generator[dict[str, np.ndarray], None, bool]:
        """The episode of a seed in blocks of at most `size` steps; returns whether it came to an end of its own."""


@runtime_checkable
class Loading(Protocol):
    """A task that reads files before it makes episodes."""

    def load(self, seed: int, episodes: dict[str, int], note: Callable[[str], None]) -> dict[str, Any]:
        """Get ready for the run with this seed and so many episodes of each split.

        Returns what tells the files from others, for the manifest; a run is only continued with the same.
        """


@runtime_checkable
class Counting(Protocol):
    """A task that loads, and whose episodes depend on how many there are of each split."""

    def check_growth(self, earlier: dict[str, int], episodes: dict[str, int]) -> None:
        """UsageProblem if a run with `earlier` episodes would have had others as the first ones of `episodes`."""


@runtime_checkable
class DataSet(Loading, Protocol):
    """A task whose episodes are the items of a data set: episode i of a split is its item i."""

    def items(self, split: str, first: int, stop: int) -> Iterator[Episode]:
        """Episodes [first, stop) of a split; their `seed` is their number."""
