"""Which features of a LeRobot data set are observed, and which number of a step is to be predicted."""

import re
from dataclasses import dataclass

import numpy as np

from ...errors import UsageProblem
from .labels import MOST_CLASSES
from .lerobot_files import EPISODE, FRAME, Feature, Frames, LeRobotFiles
from .sequences import Sequences

REWARDS = ("next.reward", "reward")
COUNTERS = ("timestamp", FRAME, EPISODE, "index")  # which every data set has, and nobody looks for


@dataclass(frozen=True)
class Columns:
    numeric: dict[str, Feature]
    observed: list[Feature]  # numbers, or one image
    target: tuple[str, int]  # a feature, and which of its numbers


def choose_columns(files: LeRobotFiles, target: str | None, observe: str | None) -> Columns:
    """UsageProblem names what there is."""
    numeric = {name: feature for name, feature in files.features.items() if feature.is_numbers and feature.size}
    chosen = _target(files, numeric, target)
    return Columns(numeric, _observed(files, numeric, chosen[0], observe), chosen)


def _target(files: LeRobotFiles, numeric: dict[str, Feature], given: str | None) -> tuple[str, int]:
    whose, known = f"the data set {files.folder.name}", _shown(numeric)
    if given is None:
        for name in REWARDS:
            if name in numeric and numeric[name].size == 1:
                return name, 0
        raise UsageProblem(
            f"{whose} has no rewards (no feature {' or '.join(REWARDS)}). Say with --target which number of a step is "
            f"to be predicted; there are: {known}."
        )
    found = re.fullmatch(r"(.+?)(?:\[(\d+)\])?", given)
    name, column = (found[1], found[2]) if found else (given, None)
    if name not in numeric:
        raise UsageProblem(f"--target {given}: {whose} has no such number. There are: {known}.")
    size = numeric[name].size
    if column is None and size > 1:
        raise UsageProblem(f"--target {given}: that is {size} numbers. Name one: {name}[0] to {name}[{size - 1}].")
    if int(column or 0) >= size:
        raise UsageProblem(f"--target {given}: the last one is {name}[{size - 1}], as they are counted from 0")
    return name, int(column or 0)


def _observed(files: LeRobotFiles, numeric: dict[str, Feature], target: str, given: str | None) -> list[Feature]:
    images = {name: f for name, f in files.features.items() if f.kind == "image" and len(f.shape) == 3}
    known = ", ".join([*(name for name in numeric if name != target), *images]) or "none"
    if given is None:
        own = [f for name, f in numeric.items() if name.startswith("observation") and name != target]
        if not own and len(images) != 1:
            raise UsageProblem(
                f"the data set {files.folder.name} has no numbers that are called observation... but the target. Name "
                f"what is to be seen with --observe; there are: {known}."
            )
        return own or list(images.values())
    usable, names = {**numeric, **images}, [name.strip() for name in given.split(",")]
    for name in names:
        if name == target:
            raise UsageProblem(f"--observe {given}: {name} is the target, which no step may show; leave it out")
        if name not in usable:
            video = name in files.features and files.features[name].kind == "video"
            what = "a video, and those are not decoded" if video else "no feature that holds numbers"
            raise UsageProblem(f"--observe {given}: {name!r} is {what}. There are: {known}.")
    if len(names) > 1 and not images.keys().isdisjoint(names):
        raise UsageProblem(f"--observe {given}: an image can only be observed alone; name nothing else")
    return [usable[name] for name in dict.fromkeys(names)]


def _shown(numeric: dict[str, Feature]) -> str:
    shown = [feature for name, feature in numeric.items() if name not in COUNTERS]
    return ", ".join(f"{f.name}[0] to [{f.size - 1}]" if f.size > 1 else f.name for f in shown) or "none"


def action_classes(files: LeRobotFiles, feature: Feature) -> int:
    """How many there are, of actions that are one whole number from 0 on; 0 of others."""
    if not feature.is_whole or feature.size > 1:
        return 0
    reading, most = Frames(files, [feature.name]), 0
    for number in range(len(files.lengths)):
        values = reading.episode(number)[feature.name]
        most = max(most, int(values.max()))
        if values.min() < 0 or most >= MOST_CLASSES:
            return 0
    return most + 1


def target_of_steps(files: LeRobotFiles, name: str, column: int) -> Sequences:
    """One number of each step, as targets of sequences."""
    reading, starts = Frames(files, [name]), np.concatenate([[0], np.cumsum(files.lengths)])

    def targets(start: int, stop: int) -> np.ndarray:
        first, last = (int(n) for n in np.searchsorted(starts, [start, stop - 1], "right") - 1)
        parts = [reading.episode(number)[name] for number in range(first, last + 1)]
        values = np.concatenate([part.reshape(len(part), -1)[:, column] for part in parts]).astype(np.float64)
        values[~np.isfinite(values)] = np.inf  # what is not finite must not pass for a missing label
        return values[start - starts[first] : stop - starts[first]]

    return Sequences(starts, (), False, targets, targets, each=False)
