"""What a tracker is told of a run: options, curves and final figures, from its manifest, logs and evaluations.

Everything here is made anew from the run folder each time. So an export can be repeated, and finds what it wrote by the
run's own id.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from stores.errors import DamagedData
from stores.manifest import Manifest

from ..errors import StageMissing
from ..records.runs import quoted
from ..records.stage_files import logged
from ..reports.gather import gather_run, is_number

PROJECT = "memup"  # what trackers put runs in, if the user does not say otherwise in the tracker's own variable
AMOUNTS = ("episodes", "test_episodes", "validation_episodes", "updates", "steps")  # may grow: figures, not parameters
AXES = ("update", "steps")  # of a curve; never a curve
NAME = re.compile(r"\w[\w.-]{0,99}", re.ASCII)  # of an option or a figure: some trackers make it the name of a file
LONGEST = 500  # characters of a parameter, as far as every tracker goes
FURTHEST = 2**62  # what a tracker takes for a step


@dataclass(frozen=True)
class Line:
    """What a log says of an update or, for agents, of a number of steps: numbers by their full names."""

    stage: str
    axis: str
    step: int
    values: dict[str, float]


@dataclass(frozen=True)
class TrackedRun:
    folder: Path
    key: str  # the run's own id, the same wherever its folder lies
    name: str
    task: str
    began: datetime | None
    running: bool
    params: dict[str, Any]
    lines: list[Line]
    figures: dict[str, float]
    problems: list[str]

    @property
    def points(self) -> dict[tuple[str, int], float]:
        """All curves: {(name, step): value}."""
        return {(name, line.step): value for line in self.lines for name, value in line.values.items()}


def tracked(folder: Path) -> TrackedRun:
    """A run as trackers see it; StageMissing if there is nothing yet that they could show."""
    key, found = str(Manifest.load(folder).data.get("run")), gather_run(folder)
    if not re.fullmatch(r"[0-9a-f]{8,64}", key):
        raise DamagedData(f"{folder / 'manifest.json'} does not say the run's id: it was changed by hand")
    problems = list(found["problems"])
    lines, odd = _lines(folder, [stage["name"] for stage in found["stages"] if stage["name"].startswith("train-")])
    problems += [f"{stage['name']} is stale, so its figures are left out" for stage in _evaluations(found, stale=True)]
    figures = _evaluated(found)
    if not lines and not figures:
        raise StageMissing(
            f"{folder} has no training curves and no evaluation to export. Run `memup train-memory --run "
            f"{quoted(folder)}` first."
        )
    task = {"task": found["task"]["name"], **found["task"]["options"]}
    options = {stage["name"]: stage["config"] for stage in found["stages"] if not stage["name"].startswith("evaluate")}
    options["collect"] = {**task, **options.get("collect", {})}
    given = {(stage, name): value for stage, each in options.items() for name, value in each.items()}
    odd += [f"{stage}/{name}" for stage, name in given if not NAME.fullmatch(name)]
    if odd:
        problems.append(f"left out, because their names are not plain: {', '.join(map(repr, sorted(set(odd))[:5]))}")
    plain = {(stage, name): value for (stage, name), value in given.items() if NAME.fullmatch(name)}
    amounts = {f"{s}/{n}": float(v) for (s, n), v in plain.items() if n in AMOUNTS and is_number(v)}
    return TrackedRun(
        folder=folder,
        key=key,
        name=found["name"],
        task=found["task"]["name"],
        began=_began(found),
        running=any(stage["status"] == "running" for stage in found["stages"]),
        params={f"{s}/{n}": _short(v) for (s, n), v in plain.items() if n not in AMOUNTS and v is not None},
        lines=lines,
        figures={**amounts, **figures},
        problems=problems,
    )


def is_figure(name: str) -> bool:
    """Whether a name is that of a figure, of which the last counts, and not of a curve."""
    return name.startswith("evaluate") or name.rpartition("/")[2] in AMOUNTS


def _lines(folder: Path, stages: Iterable[str]) -> tuple[list[Line], list[str]]:
    """All logs, stage by stage, all lines of a step as one; and names that cannot be exported."""
    lines: dict[tuple[str, int], Line] = {}
    odd = []
    for stage in stages:
        axis = "steps" if stage.startswith("train-agent") else "update"
        for row in logged(folder, stage)[0]:
            step = row.get(axis)
            if not isinstance(step, int) or not 0 <= step < FURTHEST:
                continue
            odd += [f"{stage}/{name}" for name in row if not NAME.fullmatch(name)]
            values = {n: float(v) for n, v in row.items() if n not in AXES and NAME.fullmatch(n) and is_number(v)}
            if values:
                line = lines.setdefault((stage, step), Line(stage, axis, step, {}))
                line.values.update({f"{stage}/{n}": v for n, v in values.items()})
    return list(lines.values()), odd


def _evaluations(found: dict[str, Any], stale: bool) -> list[dict[str, Any]]:
    done = [s for s in found["stages"] if s["name"].startswith("evaluate")]
    return [s for s in done if bool(s["stale"]) == stale and (stale or s["status"] == "complete")]


def _evaluated(found: dict[str, Any]) -> dict[str, float]:
    """The figures of all evaluations that are of what is trained now."""
    figures: dict[str, float] = {}
    for stage in _evaluations(found, stale=False):
        figures |= _flat(stage["name"], stage["metrics"])
        if stage["name"] == "evaluate" and found["memory"]:
            beside = {name: found["memory"].get(name) for name in ("memoryless", "constant")}
            figures |= _flat(stage["name"], beside)
    return figures


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    """Numbers by their full names; an interval as its two ends."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if NAME.fullmatch(name):
                yield from _flat(f"{prefix}/{name}", inner)
    elif isinstance(value, list) and len(value) == 2:
        yield from (pair for end, v in zip(("low", "high"), value, strict=True) for pair in _flat(f"{prefix}_{end}", v))
    elif is_number(value):
        yield prefix, float(value)


def _short(value: Any) -> Any:
    return value if is_number(value) else str(value)[:LONGEST]


def _began(found: dict[str, Any]) -> datetime | None:
    times = [stage["started"] for stage in found["stages"] if stage["started"]]
    try:
        return min(map(datetime.fromisoformat, times), default=None)
    except (TypeError, ValueError):
        return None
