"""A run that gets more episodes: what of its configuration may change, and what later stages are told of it."""

from typing import Any

from stores.manifest import Manifest

from .runs import refresh_collect

SIZES = {"train": "episodes", "test": "test_episodes"}


def sizes(config: dict[str, Any]) -> dict[str, int]:
    return {split: config[size] for split, size in SIZES.items()}


def is_more(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a split is to have more episodes than it has or was to get, and none fewer."""
    pairs = [(before[size], now[size]) for size in SIZES.values()]
    return any(a < b for a, b in pairs) and all(a <= b for a, b in pairs)


def fixed(config: dict[str, Any], grows: bool) -> dict[str, Any]:
    """What of a configuration must be as it was."""
    free = {*SIZES.values(), "validation_episodes"} if grows else set()
    return {name: value for name, value in config.items() if name not in free}


def grown_from(manifest: Manifest) -> dict[str, int]:
    """How many episodes there were for each digest of a split: of its inputs a stage records only that."""
    entry = refresh_collect(manifest)
    counts = sizes(entry["config"])
    return {**entry.get("grown_from", {}), **{o["digest"]: counts[split] for split, o in entry["outputs"].items()}}


def growth_since(manifest: Manifest, inputs: dict[str, str]) -> str:
    """By how much the run grew since a stage read these inputs; empty if it did not."""
    collected = manifest.stages["collect"]
    before = {split: collected.get("grown_from", {}).get(inputs.get(split)) for split in SIZES}
    units = {"train": "episodes", "test": "test episodes"}
    parts = [
        f"from {before[split]:,} to {count:,} {units[split]}"
        for split, count in sizes(collected["config"]).items()
        if before[split] is not None and before[split] < count
    ]
    return f"the run grew {' and '.join(parts)}" if parts else ""
