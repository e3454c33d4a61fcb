"""The collect stage: one attempt completes its part of every split and records it in the manifest."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from stores import lease as leases
from stores.errors import DamagedData, Fenced, FormatMismatch, StoreError, StoreIO
from stores.files import allowed, drop_partials, remove_tree
from stores.layout import Field, Identity, Layout, plan
from stores.manifest import Manifest, turn
from stores.reader import read_identity, shard_exists
from stores.writer import ShardWriter

from ... import console
from ...errors import BadInput, UsageProblem
from ...interrupts import StopFlag
from ...options.common import changed
from ...records.growth import fixed, grown_from, is_more, sizes
from ...records.runs import STORED, attempt, now, quoted, refresh_collect, shard_path, shard_ranges
from ...tasks.checks import told
from ...tasks.spec import Counting, Loading, Task, TaskSpec
from .generation import GroupMaker, collect_shard


@dataclass(frozen=True)
class Collection:
    """A fully resolved collect command."""

    task_name: str
    task: Task
    task_options: dict[str, Any]
    run: Path
    config: dict[str, Any]  # episodes, test_episodes, seed, shards: what the data depend on
    part: int
    workers: int
    commit_every: float
    restart: bool
    quiet: bool
    places: dict[str, Any] = field(default_factory=dict)  # task options that say only where files lie

    @property
    def described(self) -> dict[str, Any]:
        return {"name": self.task_name, "options": self.task_options, "spec": self.task.spec.to_json()}


def preview(collection: Collection) -> str:
    """What collect() would find; raises what it would raise about other options."""
    if not Manifest.exists(collection.run):
        return "new"
    manifest = _open(collection)
    if collection.restart:
        return "discard what is there and begin again"
    if _grows(manifest, collection):
        return "extend what is there"
    return "up to date" if _is_complete(manifest) else "continue"


def collect(collection: Collection) -> dict[str, Any]:
    """Complete this part; returns the summary to print. Raises Stopped after a signal, all work committed."""
    began = time.monotonic()
    manifest = _open(collection)
    grows = _grows(manifest, collection)
    if not (collection.restart or grows) and _is_complete(manifest):
        return _summary(manifest, "up to date", 0, began)
    with told(collection.task_name, "typical_length"):
        typical = int(collection.task.typical_length(collection.config["seed"]))
    layout = plan(
        collection.task.spec.fields,
        maximum=collection.task.max_length,
        typical=typical,
        stepped=not collection.task.vectorised,
    )
    data = _load(collection, manifest)
    if collection.restart:
        _refuse_living(collection.run, "*")
    if grows:
        _refuse_living(collection.run, f"{collection.part:04d}")
    if collection.config["shards"] == 1 and collection.run.is_dir():
        drop_partials(collection.run)
    steps = 0
    stop = StopFlag()
    with stop:  # from the first record to the last: a signal never leaves one that says running
        if grows:
            data["grown_from"] = grown_from(manifest)
        _record(manifest, collection, "running", {"started": now(), "attempt": attempt(), **data})
        if collection.restart:
            _discard(collection)
        replaces = bool(manifest.stages["collect"].get("replaces"))
        try:
            with GroupMaker(collection.task, collection.workers, stop) as maker:
                for split in STORED:
                    if not stop:
                        steps += _collect_split(collection, _identity(collection, split, layout), maker, stop, replaces)
        except Fenced:
            raise  # the manifest is the other attempt's now
        except BaseException as error:
            _record_failure(manifest, collection, error)
            raise
        _record(manifest, collection, "interrupted" if stop else "complete", {"finished": now()})
    if stop and manifest.stages["collect"]["status"] != "complete":  # what is done is done, however late it came
        done = manifest.stages["collect"]["progress"]
        where = f"{done['done']:,} of {done['total']:,} episodes are saved"
        raise stop.error(where, f"memup collect --run {quoted(collection.run)}{_shard_flag(collection)}")
    return _summary(manifest, "collected", steps, began)


def _identity(collection: Collection, split: str, layout: Layout) -> Identity:
    shards = collection.config["shards"]
    first, last = shard_ranges(_episodes(collection)[split], shards)[collection.part]
    return Identity(
        task=collection.task_name,
        options=collection.task_options,
        seed=collection.config["seed"],
        split=split,
        shard=collection.part,
        shards=shards,
        first=first,
        episodes=last - first,
        layout=layout,
    )


def _load(collection: Collection, manifest: Manifest) -> dict[str, Any]:
    """Read what a task needs before anything is written; what the manifest records of it."""
    if not isinstance(collection.task, Loading):
        return {}
    note = partial(console.note, quiet=collection.quiet)
    with told(collection.task_name, "load"):
        found = collection.task.load(collection.config["seed"], _episodes(collection), note)
    if isinstance(collection.task, Counting) and _grows(manifest, collection):
        collection.task.check_growth(sizes(manifest.stages["collect"]["config"]), sizes(collection.config))
    recorded = manifest.stages.get("collect", {}).get("data", found)
    if not collection.restart and not _holds(found, recorded):
        raise BadInput(
            f"{collection.run} was begun with other data than there are now. Give it those again, or use --restart to "
            "discard it and collect again, or another --run."
        )
    return {"data": found, "places": collection.places}


def _holds(found: Any, recorded: Any) -> bool:
    """Whether all that was recorded is still so; there may be more now, such as a split that there was not."""
    if isinstance(found, dict) and isinstance(recorded, dict):
        return all(name in found and _holds(found[name], value) for name, value in recorded.items())
    return bool(found == recorded)


def _shard_flag(collection: Collection) -> str:
    shards = collection.config["shards"]
    return f" --shard {collection.part}/{shards}" if shards > 1 else ""


def _episodes(collection: Collection) -> dict[str, int]:
    return dict(zip(STORED, (collection.config["episodes"], collection.config["test_episodes"]), strict=True))


def _collect_split(
    collection: Collection, identity: Identity, maker: GroupMaker, stop: StopFlag, replaces: bool
) -> int:
    path = shard_path(collection.run, identity.split, identity.shard)
    with _advice(collection.run):
        identity = _make_room(path, identity, replaces)
    steps_done, began = 0, time.monotonic()

    def started(writer: ShardWriter) -> None:
        if writer.earlier:
            console.note(f"{identity.split}: taking over from {writer.earlier.describe()}", collection.quiet)
        if 0 < writer.committed < identity.episodes:
            resuming = f"{identity.split}: resuming at {writer.committed:,} of {identity.episodes:,} episodes"
            console.note(resuming, collection.quiet)
        bar.advance(writer.committed - writer.made_again)

    def progress(episodes: int, steps: int) -> None:
        nonlocal steps_done
        steps_done += steps
        rate = steps_done / max(time.monotonic() - began, 1e-9)
        bar.advance(episodes, f"{rate / 1e6:.2f}M steps/s" if rate > 1e5 else f"{rate:,.0f} steps/s")

    with (
        console.Progress(identity.split, "episode", identity.episodes, quiet=collection.quiet) as bar,
        _advice(collection.run),
    ):
        return collect_shard(
            path,
            identity,
            maker,
            commit_every=collection.commit_every,
            stop=stop,
            progress=progress,
            started=started,
        )


def _make_room(path: Path, identity: Identity, replaces: bool) -> Identity:
    """What the shard is to hold, cut as it is already; one that has to begin anew is removed."""
    if not shard_exists(path):
        return identity
    found = read_identity(path)
    if found.grows_to(identity):
        return replace(identity, layout=found.layout)
    same = replace(identity, first=found.first, episodes=found.episodes, layout=found.layout) == found
    moved = same and found.first < identity.first  # in a run that grew, the shards before this one take more
    if replaces or moved:
        leases.refuse_living(path)
        remove_tree(path)
    return identity


@contextmanager
def _advice(run: Path) -> Iterator[None]:
    """A damaged shard stops collecting; say what sets it aside."""
    try:
        yield
    except FormatMismatch:
        raise
    except DamagedData as error:
        raise DamagedData(f"{error}. To set it aside: memup verify --run {quoted(run)} --repair") from None


def _open(collection: Collection) -> Manifest:
    """The run's manifest; refuses a run that was collected with other options, unless told to restart."""
    run = collection.run
    if not Manifest.exists(run):
        if run.is_dir() and not all(_left_by_a_killed_attempt(p) for p in run.iterdir()):
            raise UsageProblem(f"{run} is not empty and not a run; choose a new folder with --run")
        return Manifest.new(run, collection.described)
    if collection.restart:
        try:
            manifest = Manifest.load(run)
        except StoreError:
            manifest = Manifest.new(run, collection.described)
        recorded = manifest.stages.get("collect", {}).get("config")
        if recorded != collection.config or manifest.task != collection.described:
            manifest.data.update(task=collection.described, stages={"collect": {"replaces": True}})
        return manifest
    manifest = Manifest.load(run)
    recorded = manifest.stages.get("collect", {}).get("config", {})
    grows = bool(recorded) and is_more(recorded, collection.config)
    differences = changed(
        {"task": manifest.task["name"], **manifest.task["options"], **fixed(recorded, grows)},
        {"task": collection.task_name, **collection.task_options, **fixed(collection.config, grows)},
    )
    if differences and recorded:
        raise UsageProblem(
            f"{run} was collected with other options: {'; '.join(differences)}. Use --restart to discard it and "
            "collect again, or another --run."
        )
    if recorded and (odd := _other_fields(TaskSpec.from_json(manifest.task["spec"]), collection.task.spec)):
        raise UsageProblem(
            f"{run} was collected when {collection.task_name} gave other episodes: {odd}. Nothing was changed. Give it "
            "what it was begun with, or use --restart to discard it and collect again, or another --run."
        )
    return manifest


def _other_fields(before: TaskSpec, now: TaskSpec) -> str:
    """What of a step is not as it was."""
    fields = [{f.name: _shown(f, spec.counts(f.name)) for f in spec.fields} for spec in (before, now)]
    names = sorted({*fields[0], *fields[1]})
    shown = [[of.get(name, "missing") for of in fields] for name in names]
    return "; ".join(f"{name} was {a} and is now {b}" for name, (a, b) in zip(names, shown, strict=True) if a != b)


def _shown(field: Field, counts: tuple[int, ...]) -> str:
    numbers = f"{field.dtype} {'x'.join(map(str, field.shape)) or 'number'}"
    each = counts[:1] if len(set(counts)) == 1 else counts
    return f"{numbers} of {', '.join(map(str, each))} classes" if counts else numbers


def _grows(manifest: Manifest, collection: Collection) -> bool:
    recorded: dict[str, Any] = manifest.stages.get("collect", {}).get("config", {})
    return bool(recorded) and not collection.restart and is_more(recorded, collection.config)


def _left_by_a_killed_attempt(path: Path) -> bool:
    return path.name == "trajectories" or path.name.startswith("manifest.")


def _is_complete(manifest: Manifest) -> bool:
    """Recorded as complete, and still so on disk."""
    recorded = manifest.stages.get("collect", {}).get("status")
    return recorded == "complete" and refresh_collect(manifest)["status"] == "complete"


def _refuse_living(run: Path, shards: str) -> None:
    for path in run.glob(f"trajectories/*/{shards}.zarr"):
        leases.refuse_living(path)


def _discard(collection: Collection) -> None:
    """--restart: this part's shards go, and those that no part will write again."""
    for split in STORED:
        for path in sorted((collection.run / "trajectories" / split).glob("*.zarr")):
            number = int(path.stem) if path.stem.isdecimal() else -1
            if number == collection.part or number >= collection.config["shards"]:
                remove_tree(path)


def _record(manifest: Manifest, collection: Collection, status: str, more: dict[str, Any]) -> None:
    """Write the collect entry as the shards are now.

    Parts of a job array do this at the same time. Each derives the entry from the shards on disk, and looks again
    after writing, so whoever writes last leaves the truth. One that hung while others wrote begins again.
    """
    replacing = status == "running" and collection.restart
    for left in reversed(range(10)):
        with turn(collection.run):
            if not replacing and (status != "running" or Manifest.exists(collection.run)):
                manifest.data = Manifest.load(collection.run).data
            earlier = manifest.stages.get("collect", {})
            config = collection.config
            if not replacing and earlier.get("config") and is_more(config, earlier["config"]):
                config = earlier["config"]  # another part asked for more while this one was at work
            manifest.stages["collect"] = {**earlier, "config": config, "status": status, **more}
            manifest.stages["collect"] = entry = refresh_collect(manifest)
            if status == "running":
                entry["status"] = status
            read = manifest.data["generation"]
            try:
                manifest.save(allowed if replacing else partial(_check_generation, manifest.run, read))
            except (Fenced, StoreIO) as error:  # a new attempt also clears temporary files away
                manifest.data["generation"] = read
                if left and (isinstance(error, Fenced) or isinstance(error.__cause__, FileNotFoundError)):
                    continue
                raise
        if status == "running" or refresh_collect(manifest) == entry:
            return


def _check_generation(run: Path, read: int) -> None:
    """Raise if somebody wrote the manifest since it was read."""
    found = Manifest.load(run).data["generation"] if Manifest.exists(run) else 0
    if found != read:
        raise Fenced(f"other attempts keep recording in {run}; run the same command again, nothing is lost")


def _record_failure(manifest: Manifest, collection: Collection, error: BaseException) -> None:
    """Say in the manifest what happened, if the disk still lets us; the error itself goes on to the user."""
    try:
        _record(manifest, collection, "failed", {"finished": now(), "problem": str(error)})
    except (StoreError, OSError):
        console.note("the failure could not be recorded in the manifest", collection.quiet)


def _summary(manifest: Manifest, outcome: str, steps: int, began: float) -> dict[str, Any]:
    entry = manifest.stages["collect"]
    stored = sum(
        os.stat(os.path.join(folder, name)).st_size
        for folder, _, names in os.walk(manifest.run / "trajectories")
        for name in names
    )
    return {
        "run": str(manifest.run),
        "outcome": outcome,
        "status": entry["status"],
        **entry["progress"],
        "missing": entry["missing"],
        "outputs": entry["outputs"],
        "again": [stage for stage in manifest.stages if manifest.stale(stage)],
        "steps": steps,
        "seconds": time.monotonic() - began,
        "bytes": stored,
    }
