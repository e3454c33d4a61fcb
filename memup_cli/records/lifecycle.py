"""What all stages after collect share: what they need, whether there is work, and what they record."""

import hashlib
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from stores import lease as leases
from stores.errors import DamagedData, StoreError
from stores.files import allowed, drop_partials, make_folder, refuse_link
from stores.manifest import Manifest, turn
from stores.reader import Trajectories

from .. import console
from ..errors import StageMissing, UsageProblem
from ..interrupts import StopFlag
from ..invocation import command_words
from ..options.common import changed
from ..ranks import rank
from ..tasks.spec import TaskSpec
from .extending import is_extension
from .growth import growth_since
from .runs import (
    again,
    altered_weights,
    attempt,
    collect_command,
    find_run,
    missing_shards,
    now,
    open_split,
    quoted,
    recorded_config,
    refresh_collect,
)


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


def is_up_to_date(
    manifest: Manifest,
    stage: str,
    config: dict[str, Any],
    inputs: dict[str, str],
    restart: bool,
    begun: bool,
    counted: str = "",
) -> bool:
    """Whether there is nothing to do. Once something is saved, a change of options or inputs needs a restart.

    There may be more of what is counted: updates or steps.
    """
    entry = manifest.stages.get(stage)
    if restart or not entry or not (begun or entry["status"] == "complete"):
        return False
    extended = bool(counted) and is_extension(manifest, stage, config, counted)
    recorded_as = recorded_config(manifest, stage)
    differences = changed(recorded_as, config)
    if differences and not extended:
        fewer = counted and recorded_as.get(counted, 0) > config[counted]
        why = f" There can be more {counted}, but none can be taken back." if fewer else ""
        raise UsageProblem(
            f"{stage} was run on {manifest.run} with other options: {'; '.join(differences)}.{why} Use --restart to "
            "discard its result, or another --run."
        )
    recorded = entry.get("inputs", {})
    if {name: recorded.get(name) for name in inputs} != inputs:  # 0.1.0 also had the test episodes
        if grew := growth_since(manifest, recorded):
            raise StageMissing(
                f"{grew} since {stage} was run on {manifest.run}. Run `{again(manifest, stage, restart=True)}` to run "
                "it again on those there are now."
            )
        names = [n for n in inputs if recorded.get(n) != inputs[n]]
        raise StageMissing(
            f"{stage} was run on {manifest.run} with other inputs ({', '.join(names)} changed since). Use --restart to "
            "run it again on those there are now."
        )
    # The other stages make damaged weights again by themselves.
    trained = entry["status"] == "complete" and stage == "train-memory"
    if trained and (altered := altered_weights(manifest, stage)):
        raise DamagedData(
            f"{altered[0]} is missing, damaged or not what was trained. Run "
            f"`{again(manifest, stage, restart=True)}` to train it again."
        )
    return bool(entry["status"] == "complete") and not extended


def record(manifest: Manifest, stage: str, status: str, still_ours: Callable[[], None] = allowed, **more: Any) -> None:
    """Write the stage's entry, unless another attempt took over: what is given replaces what was there before.

    A stage that records more than once that it is running gives when it `started`.
    """
    with turn(manifest.run):
        manifest.data = Manifest.load(manifest.run).data
        clock = {"started" if status == "running" else "finished": now()}
        earlier = manifest.stages.get(stage, {})
        manifest.stages[stage] = {**earlier, **clock, **more, "status": status, "attempt": attempt()}
        manifest.save(still_ours)


def conclude(
    note: Callable[..., None], metrics: dict[str, Any], progress: dict[str, int], path: str, stop: StopFlag
) -> None:
    """Record how a training ended, its weights taken out of the metrics; raises if it is to be continued."""
    progress["done"] = metrics["updates"]
    if metrics.pop("stopped"):
        note("interrupted", progress=progress)
        raise stop.error(f"checkpoint saved at update {metrics['updates']:,}", continue_command())
    weights = {which: metrics.pop(which) for which in ("best", "last")}
    outputs = {path: {"path": path, "digest": weights["last"]}}
    note("complete", progress=progress, metrics=metrics, outputs=outputs, weights=weights)


@contextmanager
def owned(folder: Path, quiet: bool) -> Iterator[Callable[[], None]]:
    """Own a stage's output folder; yields a check that raises if another attempt has taken it over since.

    Every commit of the stage makes that check right before the rename that counts.
    """
    make_folder(folder)
    lease, earlier = leases.take(folder)
    if earlier:
        console.note(f"taking over from {earlier.describe()}", quiet)

    def still_ours() -> None:
        leases.check(folder, lease)

    try:
        drop_partials(folder)
        yield still_ours
    except (StoreError, OSError):
        still_ours()  # whoever took over drops our temporary files: tell that from a failing disk
        raise
    finally:
        leases.release(folder, lease)


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


def prepare_device(name: str, threads: int) -> torch.device:
    """The device to compute on; auto takes CUDA if there is any.

    One CPU thread is fastest for networks as small as these, and leaves the others to the loader.
    """
    torch.set_num_threads(threads)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageProblem(f"there is no device {name!r}; use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda":
        device = torch.device("cuda", rank().local if device.index is None else device.index)
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise UsageProblem(
                f"--device {name}: this machine has {count or 'no'} CUDA device{'s' if count > 1 else ''} that torch "
                "can use. Use --device cpu, or a torch build with CUDA on a machine with a GPU."
            )
    return device


def weights_digest(module: torch.nn.Module) -> str:
    return tensors_digest(module.state_dict())


def tensors_digest(weights: dict[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def continue_command() -> str:
    """This command without --restart, which would discard what was saved."""
    return shlex.join(word for word in command_words() if word != "--restart")


def note_resume(stage: str, where: str, quiet: bool) -> None:
    console.note(f"{stage}: resuming at {where}", quiet)
