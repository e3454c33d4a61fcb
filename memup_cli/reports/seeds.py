"""Runs that differ only in the seed, side by side: groups with a mean and the range of the seeds."""

import json
from bisect import bisect_left
from typing import Any

# What does not change a curve: where it was computed, and when it was to stop.
ASIDE = {"seed", "shards", "slab_memory", "checkpoint_every", "until"}


def group_runs(runs: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """For every stage with curves: [{label, runs: [numbers], series: {name: {x, mean, low, high, count}}}]."""
    stages = dict.fromkeys(stage for run in runs for stage in run["curves"])
    found = {}
    for stage in stages:
        groups: dict[str, list[int]] = {}
        having = {number: _experiment(run, stage) for number, run in enumerate(runs) if stage in run["curves"]}
        for number, experiment in having.items():
            known = {part: _known(part, list(having.values())) for part in experiment}
            shared = {
                part: {k: v for k, v in values.items() if k in known[part]} for part, values in experiment.items()
            }
            groups.setdefault(json.dumps(shared, sort_keys=True), []).append(number)
        settings = [_flat(json.loads(key)) for key in groups]
        labels = [
            _label(flat, settings, runs, members) for flat, members in zip(settings, groups.values(), strict=True)
        ]
        found[stage] = [
            {"label": label, "runs": members, "series": _series([runs[m]["curves"][stage]["series"] for m in members])}
            for label, members in zip(labels, groups.values(), strict=True)
        ]
    return found


def _experiment(run: dict[str, Any], stage: str) -> dict[str, Any]:
    configs = {entry["name"]: entry["config"] for entry in run["stages"]}
    chain = [name for name in ("collect", "score", "train-memory") if name in configs and stage != name]
    kept = {name: {k: v for k, v in configs[name].items() if k not in ASIDE} for name in [*chain, stage]}
    return {"task": {"name": run["task"]["name"], **run["task"]["options"]}, **kept}


def _known(part: str, experiments: list[dict[str, Any]]) -> set[str]:
    """Options that all runs have: an older version of memup did not know each of today's."""
    return set.intersection(*(set(experiment[part]) for experiment in experiments if part in experiment))


def _flat(experiment: dict[str, Any]) -> dict[str, Any]:
    return {f"{part}.{name}": value for part, values in experiment.items() for name, value in values.items()}


def _label(flat: dict[str, Any], all_of_them: list[dict[str, Any]], runs: list[dict[str, Any]], own: list[int]) -> str:
    """What sets a group apart from the others, in a few words; a single run goes by its name."""
    if len(own) == 1:
        return str(runs[own[0]]["name"])
    names = dict.fromkeys(name for other in all_of_them for name in other)
    apart = [n for n in names if len({json.dumps(other.get(n)) for other in all_of_them}) > 1]
    words = [f"{name.partition('.')[2].replace('_', ' ')} {flat[name]}" for name in apart if name in flat][:3]
    if "task.name" in apart:  # the rest follows from it
        words = [flat["task.name"]]
    return f"{', '.join(words) or runs[own[0]]['task']['name']} ({len(own)} seeds)"


def _series(curves: list[dict[str, dict[str, list[float]]]]) -> dict[str, dict[str, list[float]]]:
    names = dict.fromkeys(name for curve in curves for name in curve)
    return {name: combine([curve[name] for curve in curves if name in curve]) for name in names}


def combine(curves: list[dict[str, list[float]]]) -> dict[str, list[float]]:
    """Mean, smallest and largest at every x of any curve, over the curves that reach from before it to after it."""
    places = sorted({x for curve in curves for x in curve["x"]})
    found: dict[str, list[float]] = {"x": [], "mean": [], "low": [], "high": [], "count": []}
    for x in places:
        values = [value for curve in curves if (value := _at(curve, x)) is not None]
        for key, value in zip(
            found, (x, sum(values) / len(values), min(values), max(values), len(values)), strict=True
        ):
            found[key].append(value)
    return found


def _at(curve: dict[str, list[float]], x: float) -> float | None:
    xs, ys = curve["x"], curve["y"]
    if not xs[0] <= x <= xs[-1]:
        return None
    after = bisect_left(xs, x)
    if xs[after] == x:
        return ys[after]
    share = (x - xs[after - 1]) / (xs[after] - xs[after - 1])
    return ys[after - 1] + share * (ys[after] - ys[after - 1])
