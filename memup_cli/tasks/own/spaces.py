"""Spaces as the store takes them: arrays of numbers or of class numbers, and beside them images."""

import copy
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stores.layout import Field

from ...errors import UsageProblem
from ..spec import LATE, is_seen

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.spaces import Space

OBSERVATION = "observation"


@dataclass(frozen=True)
class Part:
    """A space within a space of several, and how to find its values."""

    path: tuple[str | int, ...]
    space: "Space[Any]"

    @property
    def name(self) -> str:
        return "/".join(map(str, self.path))

    def of(self, values: Any) -> np.ndarray:
        for key in self.path:
            values = values[key]
        return np.asarray(values)


@dataclass(frozen=True)
class Shown:
    """What is stored of some parts: a Box or Discrete space as it is, of others all numbers in one vector."""

    space: "Space[Any]"  # Box or Discrete
    parts: tuple[Part, ...]
    flattened: bool

    def rows(self, values: Any) -> np.ndarray:
        """Of many steps, as Minari holds them: arrays with a leading time axis, in dicts or tuples."""
        if not self.flattened:
            return self.parts[0].of(values)
        return np.concatenate([_numbers(part.space, part.of(values)) for part in self.parts], axis=1)  # (T, n)

    def row(self, observation: Any) -> Any:
        """Of one observation, as an environment gives it."""
        return self.rows(observation)[0] if self.flattened else self.parts[0].of(observation)

    @property
    def start(self) -> Any:
        """The number of the first class."""
        return getattr(self.space, "start", 0)


@dataclass(frozen=True)
class View:
    """What is stored of observations, by field: `observation`, and beside it each part that is an image."""

    shown: dict[str, Shown]
    left_out: tuple[str, ...]  # parts that are not numbers

    def rows(self, values: Any) -> dict[str, np.ndarray]:
        """Many steps, classes from 0."""
        return {name: shown.rows(values) - shown.start for name, shown in self.shown.items()}

    def row(self, observation: Any) -> Any:
        """One observation, as an environment gives it; of several fields a dict."""
        if len(self.shown) > 1:
            return {name: shown.row(observation) for name, shown in self.shown.items()}
        return next(iter(self.shown.values())).row(observation)

    @property
    def spaces(self) -> "dict[str, Space[Any]]":
        return {name: shown.space for name, shown in self.shown.items()}

    @property
    def space(self) -> "Space[Any]":
        """Of what row() gives."""
        from gymnasium.spaces import Dict

        return Dict(self.spaces) if len(self.shown) > 1 else next(iter(self.spaces.values()))

    @property
    def is_plain(self) -> bool:
        return [part.path for shown in self.shown.values() for part in shown.parts] == [()] and not any(
            shown.flattened for shown in self.shown.values()
        )

    @property
    def named(self) -> tuple[tuple[str, int], ...]:
        """The parts of `observation` that have a name, and how many columns of a row each is."""
        if OBSERVATION not in self.shown:
            return ()
        shown = self.shown[OBSERVATION]
        size = _size if shown.flattened else lambda space: math.prod(space.shape)
        return tuple((part.name, size(part.space)) for part in shown.parts if part.path)

    def describe(self) -> str:
        told = []
        for field, shown in self.shown.items():
            names = ", ".join(part.name for part in shown.parts if part.path) or "the observation"
            told.append(names + (f", as {shown.space.shape[0]} numbers" if shown.flattened else ""))  # type: ignore[index]
            if field != OBSERVATION:
                told[-1] += f", as images in the field {field}"
        left_out = f"; left out, being no numbers: {', '.join(self.left_out)}" if self.left_out else ""
        return f"observations are {'; '.join(told)}{left_out}"


def view_of(space: "Space[Any]", observe: str | None, whose: str) -> View:
    """How observations of a space are stored; `observe` names the parts of a Dict to keep, with commas between."""
    from gymnasium import spaces

    numeric = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    parts = _parts(space)
    if observe is not None:
        parts = _chosen(parts, [name.strip() for name in observe.split(",")], whose)
    kept = tuple(part for part in parts if isinstance(part.space, numeric))
    left_out = tuple(part.name for part in parts if not isinstance(part.space, numeric))
    if not kept:
        raise UsageProblem(
            f"{whose} has observations of the kind {type(space).__name__}; memup stores Box, Discrete, MultiDiscrete "
            "and MultiBinary ones, and Dicts and Tuples of them. Turn them into numbers with a Gymnasium wrapper."
        )
    if len(kept) == 1:
        return View({OBSERVATION: _together(kept)}, left_out)
    images = [part for part in kept if is_seen(_image_field(part.space))]
    others = tuple(part for part in kept if part not in images)
    shown = {OBSERVATION: _together(others)} if others else {}
    for part in images:
        shown[_field_name(part.name, shown)] = Shown(part.space, (part,), False)
    return View(shown, left_out)


def _together(parts: tuple[Part, ...]) -> Shown:
    from gymnasium import spaces

    if len(parts) == 1 and isinstance(parts[0].space, spaces.Box | spaces.Discrete):
        return Shown(parts[0].space, parts, False)
    size = sum(_size(part.space) for part in parts)
    return Shown(spaces.Box(-np.inf, np.inf, (size,), np.float32), parts, True)


def _image_field(space: "Space[Any]") -> Field:
    """The field that a part would be; of what is no Box, a number."""
    from gymnasium.spaces import Box

    return field_of("image", space, "") if isinstance(space, Box) else Field("image", "uint8")


def _field_name(part: str, taken: Iterable[str]) -> str:
    """Of an image: that of its part, if it can be the name of a field and is none yet."""
    name = re.sub(r"\W", "_", part)
    if not name.isidentifier() or name in (OBSERVATION, "action", "reward", *LATE):
        name = f"image_{name}"
    while name in taken:
        name += "_"
    return name


def _parts(space: "Space[Any]", path: tuple[str | int, ...] = ()) -> list[Part]:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return [part for key, inner in space.spaces.items() for part in _parts(inner, (*path, key))]
    if isinstance(space, spaces.Tuple):
        return [part for i, inner in enumerate(space.spaces) for part in _parts(inner, (*path, i))]
    return [Part(path, space)]


def _chosen(parts: list[Part], names: list[str], whose: str) -> list[Part]:
    known = {str(part.path[0]): None for part in parts if part.path}
    if wrong := [name for name in names if name not in known]:
        there = f"there are {', '.join(known)}" if known else "they have no parts"
        raise UsageProblem(f"--observe {','.join(names)}: the observations of {whose} have no {wrong[0]!r}; {there}")
    return [part for name in names for part in parts if str(part.path[0]) == name]


def _counts(space: Any) -> np.ndarray | None:
    """How many classes each number of a space has, one-hot in a vector; None if they are no classes, or flags."""
    found = getattr(space, "nvec", None)
    if found is None and hasattr(space, "start"):
        found = space.n
    return None if found is None else np.atleast_1d(found).reshape(-1)


def counts_of(space: Any) -> tuple[int, ...]:
    """How many classes each number of a space has, in the order of its flat rows; none of a Box."""
    from gymnasium.spaces import MultiBinary

    if isinstance(space, MultiBinary):
        return (2,) * math.prod(space.shape)
    found = _counts(space)
    return () if found is None else tuple(found.tolist())


def _size(space: Any) -> int:
    counts = _counts(space)
    return math.prod(space.shape) if counts is None else int(counts.sum())


def _numbers(space: Any, values: np.ndarray) -> np.ndarray:
    """Values (T, *shape), or those of one step, as numbers (T, n); classes become one-hot."""
    counts = _counts(space)
    if counts is None:
        return values.reshape(-1, _size(space)).astype(np.float32)
    classes = values.reshape(-1, len(counts)).astype(np.int64) - np.asarray(space.start).reshape(-1)
    if (classes < 0).any() or (classes >= counts).any():
        raise ValueError(f"an observation is not in its space {space}")
    places = classes + np.concatenate([[0], np.cumsum(counts)[:-1]])
    hot = np.zeros((len(classes), int(counts.sum())), np.float32)
    np.put_along_axis(hot, places, 1, axis=1)
    return hot


def field_of(name: str, space: Any, whose: str) -> Field:
    """The store's field of a Box, Discrete, MultiDiscrete or MultiBinary space."""
    from gymnasium.spaces import Box

    if counts := counts_of(space):
        most = max(counts)
        kind = next(k for k in ("uint8", "uint16", "uint32", "int64") if most <= 2 ** (8 * np.dtype(k).itemsize))
        return Field(name, kind, tuple(space.shape))
    if isinstance(space, Box):
        return Field(name, np.dtype(space.dtype).name, tuple(space.shape))
    raise UsageProblem(
        f"{whose} has {name}s of the kind {type(space).__name__}; memup stores Box, Discrete, MultiDiscrete and "
        "MultiBinary ones. Flatten them with a Gymnasium wrapper."
    )


def class_counts(**found: Any) -> dict[str, Any]:
    """Which fields hold class numbers, and how many there are: the spec's `classes`, and its `components`."""
    counts = {name: counts_of(space) for name, space in found.items()}
    return {
        "classes": {name: n[0] for name, n in counts.items() if n and not found[name].shape},
        "components": {name: n for name, n in counts.items() if n and found[name].shape},
    }


def registered(env_id: str, max_steps: int, settings: dict[str, Any]) -> "EnvSpec":
    """What `gymnasium.make` takes for an environment that is registered, by memup or by the package of a task."""
    import gymnasium

    from ... import envs  # noqa: F401  registers them

    found = copy.deepcopy(gymnasium.spec(env_id))
    found.max_episode_steps, found.kwargs = max_steps, settings
    return found
