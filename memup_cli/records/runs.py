"""Finding runs, opening their manifests, and recording what a stage did."""

import functools
import hashlib
import itertools
import os
import platform
import re
import shlex
import socket
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from stores import lease as leases
from stores.errors import DamagedData, Incomplete, StoreError
from stores.files import inside, read_file
from stores.lease import job_id
from stores.manifest import Manifest
from stores.reader import Shard, Trajectories, shard_exists
from stores.remote import is_url, open_place

from ..errors import StageMissing, UsageProblem
from ..invocation import command_words
from ..options.old_names import renewed, renewed_words

HOME = Path("runs")
STORED = ("train", "test")  # folders of episodes
SPLITS = ("train", "validation", "test")  # validation: the last of the episodes stored for training
_PACKAGES = ("memup", "numpy", "zarr", "numcodecs", "gymnasium", "torch")


def find_run(run: Path | None) -> Path:
    """The run a later stage means: the one named, or the only one below runs/."""
    if run is not None:
        run = follow(run)
        if not Manifest.exists(run):
            raise StageMissing(f"{run} is not a run: it has no manifest.json. Start with `memup collect`.")
        return run
    found = sorted(p.parent for p in HOME.glob("*/manifest.json"))
    if len(found) == 1:
        return follow(found[0])
    if not found:
        raise StageMissing("there is no run below runs/. Start with `memup collect`, or name one with --run.")
    raise UsageProblem(f"there are several runs; name one with --run: {', '.join(map(str, found))}")


def find_readable(run: Path | None) -> Path:
    """The run that a command means which only reads: it may also lie at a URL."""
    if run is None or not is_url(run):
        return find_run(run)
    place = open_place(run)
    if not Manifest.exists(place):
        raise StageMissing(f"{place} is not a run: it has no manifest.json. Check the address.")
    return place


def follow(run: Path) -> Path:
    """A run folder that the user names may be a link (to a scratch disk, say); links inside a run are refused."""
    if is_url(run):
        raise UsageProblem(
            f"--run {open_place(run)}: this command writes to its run, which must be a local or shared folder. Runs at "
            "a URL can only be read: by `memup status`, `inspect` and `verify`, and in Python by open_trajectories()."
        )
    return run.resolve() if run.is_symlink() else run


def quoted(run: Path | str) -> str:
    return shlex.quote(str(run))


def recorded_config(manifest: Manifest, stage: str) -> dict[str, Any]:
    """The configuration that a stage was begun with, in today's names; empty if it never was."""
    return renewed(manifest.stages.get(stage, {}).get("config", {}))


def again(manifest: Manifest, stage: str, restart: bool) -> str:
    """The command that runs a stage again as it was run last, wherever the run lies now; else a plain one."""
    recorded = manifest.stages.get(stage, {}).get("attempt", {}).get("command", "")
    name, _, which = stage.partition("/")
    try:
        words = shlex.split(recorded)
    except ValueError:  # changed by hand
        words = []
    if words[:2] != ["memup", name]:
        model, _, truncate = which.partition("-tr")
        flags = ["--agent", which] if name == "train-agent" else ["--model", model]
        words = ["memup", name, *(flags if which else []), *(["--truncate", truncate] if truncate else [])]
    kept: list[str] = []
    for before, word in itertools.pairwise(["", *words]):
        if "--run" not in (before, word) and not re.match(r"--run=|--(restart|json|quiet|dry-run)$", word):
            kept.append(word)
    kept = list(renewed_words(name, kept))
    return shlex.join([*kept, "--run", str(manifest.run), *(["--restart"] if restart else [])])


def attempt() -> dict[str, Any]:
    """Where and with what a stage is run, for its manifest entry."""
    return {
        "host": socket.gethostname(),
        "job": job_id(),
        "pid": os.getpid(),
        "command": shlex.join(command_words()),
        "versions": _versions(),
    }


@functools.cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def shard_path(run: Path, split: str, shard: int) -> Path:
    return run / "trajectories" / split / f"{shard:04d}.zarr"


def shard_ranges(episodes: int, shards: int) -> list[tuple[int, int]]:
    """Episodes [first, stop) of each shard: contiguous, as equal as can be."""
    edges = [episodes * i // shards for i in range(shards + 1)]
    return list(itertools.pairwise(edges))


def validation_count(config: dict[str, Any]) -> int:
    """How many of the training episodes of a collect stage are kept for validation."""
    given: int | None = config.get("validation_episodes")
    if given is not None:
        return given
    episodes: int = config["episodes"]
    return min(max(episodes // 10, 10), 1000, episodes // 2)


def open_split(run: Path, config: dict[str, Any], split: str) -> Trajectories:
    """One of SPLITS, as a collect stage with this config left it."""
    if split == "test":
        return Trajectories(run / "trajectories" / split, config["shards"])
    edge = config["episodes"] - validation_count(config)
    part = range(edge) if split == "train" else range(edge, config["episodes"])
    return Trajectories(run / "trajectories" / "train", config["shards"], part)


def collect_progress(manifest: Manifest, config: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Episodes on disk, and what each unfinished shard lacks. The shards themselves are the truth."""
    run, task, options = manifest.run, manifest.task["name"], manifest.task["options"]
    done, missing = 0, []
    for split, episodes in (("train", config["episodes"]), ("test", config["test_episodes"])):
        for shard, (first, stop) in enumerate(shard_ranges(episodes, config["shards"])):
            path = shard_path(run, split, shard)
            entry = {
                "path": str(path.relative_to(run)),
                "shard": f"{shard}/{config['shards']}",
                "split": split,
            }
            have, problem = 0, "not collected"
            if shard_exists(path):
                try:
                    opened = Shard(path)
                    found = opened.identity
                    same = found.options == options and found.task == task and found.seed == config["seed"]
                    place = (found.split, found.shard, found.first)
                    if same and place == (split, shard, first) and found.episodes <= stop - first:
                        have = opened.state.available(opened.layout)
                        problem = "unfinished" if have < stop - first else ""
                    else:
                        problem = "from another configuration"
                except DamagedData as error:
                    problem = f"damaged: {error}"
            done += have
            if have < stop - first or problem.startswith("damaged"):
                missing.append({**entry, "done": have, "total": stop - first, "problem": problem})
    return done, missing


def missing_shards(entry: dict[str, Any]) -> str:
    """The numbers of unfinished shards in a collect entry, as a job array takes them: 0,4-7."""
    numbers = sorted({int(m["shard"].partition("/")[0]) for m in entry["missing"]})
    neighbours = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ranges = [[number for _, number in group] for _, group in neighbours]
    return ",".join(f"{r[0]}-{r[-1]}" if len(r) > 1 else str(r[0]) for r in ranges)


def collect_command(run: Path | str, entry: dict[str, Any]) -> str:
    """The command that collects what is missing; of several shards, each."""
    shards = entry["config"]["shards"]
    if shards == 1:
        return f"memup collect --run {quoted(run)}"
    missing = missing_shards(entry)
    if missing.isdecimal():
        return f"memup collect --run {quoted(run)} --shard {missing}/{shards}"
    return f"memup collect --run {quoted(run)} --shard I/{shards}, for I in {missing}"


def split_digest(run: Path, split: str, shards: int) -> str:
    """Digest of a split's episodes, whatever shards they lie in: sha256 over their lengths, seeds and checksums."""
    digest = hashlib.sha256()
    for shard in range(shards):
        opened = Shard(shard_path(run, split, shard))
        if opened.state.available(opened.layout) < opened.identity.episodes:
            raise Incomplete(f"{opened.path} is not complete")
        for group in opened.available_groups():
            digest.update(opened.rows(group)[:, 1:].tobytes())
    return digest.hexdigest()


def _somebody_writes(run: Path) -> bool:
    """Whether any shard has an owner that lives, or may live on another host."""
    owners = [leases.read(path.parent) for path in run.glob(f"trajectories/*/*.zarr/{leases.NAME}")]
    return any(o.host != socket.gethostname() or leases.is_alive(o) for o in owners if o)


def stage_folder(stage: str) -> str:
    """Where a stage keeps its result, and its owner's lease while it runs."""
    name, _, which = stage.partition("/")
    known = {"score": "detector", "train-memory": "memory"}
    known |= {"train-baseline": f"baseline/{which}", "train-agent": f"agent/{which}"}
    return known.get(name, "evaluation")


def altered_weights(manifest: Manifest, stage: str) -> list[Path]:
    """Weights that a stage left, and of the memory an agent acts on, that are gone or not what was recorded."""
    entry = manifest.stages[stage]
    wanted = [(stage_folder(stage), which, digest) for which, digest in entry.get("weights", {}).items()]
    if stage.startswith("train-agent/"):
        wanted += [(output["path"], "policy", output["digest"]) for output in entry.get("outputs", {}).values()]
        acts_on, which = entry.get("acts_on"), entry["config"].get("checkpoint")
        trained = manifest.stages.get("train-memory", {}).get("weights", {}).get(which)
        # A memory that was trained further since is another one: then the agent is stale, and nothing is damaged.
        if acts_on and (acts_on["path"] != stage_folder("train-memory") or acts_on["digest"] == trained):
            wanted.append((acts_on["path"], which, acts_on["digest"]))
    files = [(inside(manifest.run, folder, "path") / f"{name}.safetensors", digest) for folder, name, digest in wanted]
    return [path for path, d in files if not path.exists() or hashlib.sha256(read_file(path)).hexdigest() != d]


def refresh_stage(manifest: Manifest, stage: str) -> dict[str, Any]:
    """A later stage's entry; one whose attempt was killed could not say so itself."""
    entry = dict(manifest.stages[stage])
    owner = leases.read(manifest.run / stage_folder(stage))
    gone = owner is None or (owner.host == socket.gethostname() and not leases.is_alive(owner))
    if entry["status"] == "running" and gone:
        entry["status"] = "interrupted"
    return entry


def refresh_collect(manifest: Manifest) -> dict[str, Any]:
    """The collect entry as the shards are now; parallel shards finish in any order, so it is derived, not kept."""
    entry = dict(manifest.stages.get("collect") or {})
    if not entry:
        return {}
    done, missing = collect_progress(manifest, entry["config"])
    entry["progress"] = {
        "done": done,
        "total": entry["config"]["episodes"] + entry["config"]["test_episodes"],
    }
    entry["missing"] = missing
    if missing:
        if _somebody_writes(manifest.run):
            entry["status"] = "running"
        elif entry["status"] != "failed":
            entry["status"] = "interrupted"  # a killed attempt could not say so itself
        entry["outputs"] = {}
    elif entry["status"] != "complete" or not entry.get("outputs"):
        entry["status"] = "complete"
        entry["outputs"] = {}
        for split in ("train", "test"):
            try:
                digest = split_digest(manifest.run, split, entry["config"]["shards"])
            except StoreError as error:
                entry.update(status="failed", problem=str(error))
                break
            entry["outputs"][split] = {"path": f"trajectories/{split}", "digest": digest}
    return entry
