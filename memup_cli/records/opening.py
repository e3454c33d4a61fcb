"""Opening a run for a stage: its manifest, the results of earlier stages that it needs, and its splits."""

from pathlib import Path
from typing import Any

from stores.files import refuse_link
from stores.manifest import Manifest
from stores.reader import Trajectories

from ..errors import StageMissing, UsageProblem
from ..tasks.spec import TaskSpec
from .growth import growth_since
from .runs import again, collect_command, find_run, missing_shards, open_split, quoted, refresh_collect


def open_run(run: Path | None) -> Manifest:
    """The run's manifest, its data complete, and no links in the way of what is written."""
    manifest = Manifest.load(find_run(run))
    _refuse_links(manifest.run, 0)
    for name, depth in (("agent", 1), ("baseline", 1), ("logs", 2), ("rounds", 1), ("scores", 3)):
        _refuse_links(manifest.run / name, depth)
    entry = refresh_collect(manifest)
    if entry.get("status") != "complete":
        raise _not_collected(manifest.run, entry)
    manifest.stages["collect"] = entry
    return manifest


def _not_collected(run: Path, entry: dict[str, Any]) -> StageMissing:
    if not entry.get("missing"):
        return StageMissing(f"{run} is not completely collected. Run `memup collect --run {quoted(run)}` first.")
    shards, paths = entry["config"]["shards"], [m["path"] for m in entry["missing"]]
    named = f"{', '.join(paths[:6])}{' and more' if len(paths) > 6 else ''}"
    parts = f"shard {missing_shards(entry)} of {shards} ({named})" if shards > 1 else named
    return StageMissing(
        f"{run} is not completely collected: {entry['progress']['done']:,} of {entry['progress']['total']:,} episodes "
        f"are there. Missing: {parts}. Run this first: {collect_command(run, entry)}"
    )


def _refuse_links(folder: Path, depth: int) -> None:
    for path in folder.iterdir() if folder.is_dir() else ():
        refuse_link(path)
        if depth:
            _refuse_links(path, depth - 1)


def require(manifest: Manifest, stage: str) -> dict[str, Any]:
    """The entry of an earlier stage; StageMissing unless it is complete and its inputs are unchanged."""
    entry = manifest.stages.get(stage, {})
    if entry.get("status") != "complete":
        raise StageMissing(
            f"{manifest.run} has no complete {stage} stage; run `{again(manifest, stage, restart=False)}` first"
        )
    if stale := manifest.stale(stage):
        why = growth_since(manifest, entry.get("inputs", {})) or f"{', '.join(stale)} changed"
        commands = [f"`{again(manifest, each, restart=True)}`" for each in _stale_before(manifest, stage)]
        raise StageMissing(
            f"the {stage} stage of {manifest.run} is stale: {why} since it ran. Run {', then '.join(commands)} first."
        )
    return entry


def _stale_before(manifest: Manifest, stage: str) -> list[str]:
    """The stages that have to run again for a stale one, itself the last; in the order in which they are to run."""
    makers = {name: maker for maker, entry in manifest.stages.items() for name in entry.get("outputs", {})}
    earlier = [makers[name] for name in manifest.stages[stage].get("inputs", {}) if name in makers]
    found = [each for maker in earlier if manifest.stale(maker) for each in _stale_before(manifest, maker)]
    return [*dict.fromkeys(found), stage]


def digests(manifest: Manifest, *names: str) -> dict[str, str]:
    """Digests of outputs of earlier stages, as inputs of this one."""
    outputs = {n: o for entry in manifest.stages.values() for n, o in entry.get("outputs", {}).items()}
    return {name: outputs[name]["digest"] for name in names}


def spec_of(manifest: Manifest) -> TaskSpec:
    """The task's spec as it was recorded: later stages do not need the task's own package."""
    return TaskSpec.from_json(manifest.task["spec"])


def split_of(manifest: Manifest, split: str) -> Trajectories:
    """The episodes to train on, to choose by (validation) or to measure with (test)."""
    return open_split(manifest.run, manifest.stages["collect"]["config"], split)


def stored_of(manifest: Manifest, folder: str) -> Trajectories:
    """All episodes of a folder, those for validation among the training episodes."""
    return Trajectories(manifest.run / "trajectories" / folder, manifest.stages["collect"]["config"]["shards"])


def require_validation(manifest: Manifest) -> None:
    if not len(split_of(manifest, "validation")):
        raise UsageProblem(
            f"{manifest.run} has no episodes for validation; collect at least 2 training episodes: memup collect "
            f"--run {quoted(manifest.run)} --episodes 1000"
        )


def require_test(manifest: Manifest) -> None:
    if not len(split_of(manifest, "test")):
        raise UsageProblem(f"{manifest.run} has no test episodes to evaluate on; collect some with --test-episodes")


def check_window(manifest: Manifest, window: int) -> None:
    """UsageProblem if a window that was asked for is longer than any episode."""
    longest = int(split_of(manifest, "train").lengths.max())
    if window > longest:
        raise UsageProblem(
            f"--window {window}: the longest training episode of {manifest.run} has {longest:,} steps; use at most that"
        )
