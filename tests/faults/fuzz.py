"""Damages copies of small finished runs, one file at a time, and runs every command that reads a run on each.

Whatever was damaged, a command either refuses with a documented exit code, or does exactly what it does on the whole
run; nothing ends in a traceback, hangs, or runs out of memory. To look at one mutation again:

    python -m tests.faults.fuzz FOLDER NUMBER [COUNT]
"""

import contextlib
import io
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

from memup_cli.app import main
from memup_cli.records import runs
from memup_cli.stages import scoring  # noqa: F401  loaded once, not in every child
from stores import layout
from stores.errors import StoreError
from stores.manifest import Manifest
from stores.reader import Trajectories
from stores.scores import ScoreReader, score_path
from tests.cli import files_of
from tests.faults.mutations import kind_of, mutate

DEADLINE = 120  # seconds; all commands on one mutation together take about one
MEMORY = 8 << 30  # address space beyond what is there already
DOCUMENTED = {0, 3, 65, 74, 75, 77}
SIZES = ["tmaze", "--length", "40", "--episodes", "12", "--test-episodes", "12"]
TRAIN = ["train-memory", "--rollout", "10", "--batch", "4", "--hidden", "8", "--updates", "3"]
TRAIN += ["--checkpoint-every", "1", "--evaluate-every", "3", "--evaluate-episodes", "2"]
SCORE = ["score", "--updates", "60", "--hidden", "8"]
# Those that repair what is damaged come last.
COMMANDS = {
    "verify": ["verify", "--json"],
    "status": ["status", "--json"],
    "inspect": ["inspect", "--json", "--episode", "5"],
    "inspect test": ["inspect", "--json", "--split", "test"],
    "evaluate": ["evaluate", "memory", "--json"],
    "score again": SCORE,
    "train again": TRAIN,
    "train": [*TRAIN, "--restart"],
    "score": [*SCORE, "--restart"],
}


def call(*words: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of a memup command, in this process."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["memup", *words, "--run", "run"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("main() returned")


def build(folder: Path) -> None:
    """Finished runs to damage: `short` has several episodes to a chunk, `long` several chunks to an episode, and the
    stages of `halfway` were killed before their end."""
    for name, chunk, group in (("short", 512, 1024), ("long", 64, 64)):
        layout.CHUNK_BYTES, layout.GROUP_BYTES, layout.MIN_CHUNK_STEPS = chunk, group, 16
        (folder / name).mkdir()
        with contextlib.chdir(folder / name):
            for words in (["collect", *SIZES], SCORE, TRAIN, COMMANDS["evaluate"]):
                code, _, err = call(*words)
                assert code == 0, err
    shutil.copytree(folder / "short", folder / "halfway")
    manifest = Manifest.load(folder / "halfway" / "run")
    for stage in ("score", "train-memory"):
        manifest.stages[stage].update(status="running", outputs={})
    manifest.save()
    sorted(manifest.run.glob("scores/*/train/*/score/c.*"))[-1].unlink()


def up_to_date(out: str) -> bool:
    """A command that did nothing; what it would have done is not looked at."""
    return "up to date" in out


def results(run: Path, command: str, out: str) -> Any:
    """What a command that ended well has shown or made, without what changes from run to run."""
    if command in ("verify", "status"):
        return {}
    if command.startswith(("inspect", "evaluate")):
        return {name: value for name, value in json.loads(out).items() if name not in ("fields", "bytes_per_step")}
    made = files_of(run / "memory") if command.startswith("train") else files_of(run / "scores")
    return {name: data.hex() for name, data in made.items() if name.endswith(".safetensors") or "/c." in name}


def arrays(run: Path) -> dict[str, list[Any]]:
    """All that the public readers give, part by part; a part that they refuse is left out."""
    found = {}
    for split in runs.SPLITS:
        with contextlib.suppress(StoreError):
            opened = Trajectories(run / "trajectories" / split, 1)
            found[split] = list(opened)
        with contextlib.suppress(StoreError):
            opened = Trajectories(run / "trajectories" / split, 1)
            found[f"{split} lengths"] = [opened.lengths]
            found[f"{split} by number"] = [opened.episode(i) for i in range(len(opened))]
        with contextlib.suppress(StoreError):
            opened = Trajectories(run / "trajectories" / split, 1)
            scores = {id(s): ScoreReader(score_path(run, "quantile", s), s) for s in opened.shards}
            rows = [(shard, row) for shard, group in opened.groups() for row in shard.rows(group)]
            found[f"{split} scores"] = [scores[id(shard)].episode(row) for shard, row in rows]
    return found


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(same(a, b) for a, b in zip(left, right, strict=True))
    return bool(np.array_equal(left, right))


def examine(number: int, base: Path, expected: dict[str, Any], original: dict[str, list[Any]]) -> dict[str, Any]:
    """Damage a copy of a run in this folder, then run everything on it."""
    shutil.copytree(base / "run", "run")
    name, change = mutate(Path("run"), number)
    found: dict[str, Any] = {"number": number, "base": base.name, "file": name, "kind": kind_of(name), "change": change}
    wrong: list[str] = []
    for part, values in arrays(Path("run")).items():
        if not same(values, original[part]):
            wrong.append(f"the reader took changed data of {part}")
    codes: dict[str, int] = {}
    promised = base.name != "halfway" and found["kind"] not in ("checkpoint", "other")  # what verify looks at
    for command, words in COMMANDS.items():
        if command == ("train", "score")[number // 3 % 2]:
            continue  # one of the two long ones for each
        code, out, err = call(*words)
        codes[command] = code
        if code not in DOCUMENTED or "Traceback" in err:
            wrong.append(f"{command}: exit {code}: {err[-3000:]}")
        elif (
            code == 0 and not up_to_date(out) and results(Path("run"), command, out) not in accepted(expected[command])
        ):
            wrong.append(f"{command} accepted changed data")
        elif code and not (err.strip() or out.strip()):
            wrong.append(f"{command}: exit {code} without a word")
        elif code != expected[command]["code"] and codes["verify"] == 0 and promised:
            wrong.append(f"verify found nothing, but {command} ends with exit {code}: {err[-500:]}")
    refused = any(code not in (0, expected[command]["code"]) for command, code in codes.items())
    return {**found, "codes": codes, "refused": refused, "wrong": wrong}


def accepted(entry: dict[str, Any]) -> list[Any]:
    """What a command may give: of a run that is half done, also what it gives when it is done."""
    return [entry["results"], entry.get("finished", entry["results"])]


def reference(base: Path) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """What commands and readers give on a whole copy of a run."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(base / "run", "run")
        original, expected = arrays(Path("run")), {}
        for command, words in COMMANDS.items():
            code, out, err = call(*words)
            if code and base.name != "halfway":
                raise AssertionError(f"{command} on a whole run: {err}")
            expected[command] = {"code": code, "results": results(Path("run"), command, out) if code == 0 else None}
        return expected, original


def in_child(number: int, *more: Any) -> dict[str, Any]:
    """examine() in a process of its own, so that nothing is left of it, and a crash or a hang is seen."""
    read, write = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if not child:
            status = 1
            try:
                os.chdir(folder)
                signal.alarm(DEADLINE)
                here = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                resource.setrlimit(resource.RLIMIT_AS, (here + MEMORY, here + MEMORY))
                with open(write, "w") as pipe:
                    json.dump(examine(number, *more), pipe)
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(write)
        with open(read) as pipe:
            said = pipe.read()
        _, status = os.waitpid(child, 0)
    if status or not said:
        problem = f"killed by signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {status}"
        return {
            "number": number,
            "kind": "?",
            "file": "?",
            "change": "?",
            "codes": {},
            "refused": False,
            "wrong": [problem],
        }
    found: dict[str, Any] = json.loads(said)
    return found


def fuzz(folder: Path, first: int, count: int) -> None:
    """Prints one JSON object a mutation."""
    os.fsync = lambda fd: None  # type: ignore[assignment]  # no power cuts here, and thousands of commits
    torch.set_num_threads(1)
    bases = [folder / name for name in ("short", "long", "halfway")]
    known = [reference(base) for base in bases]
    finished, halfway = known[0][0], known[2][0]
    for command, entry in halfway.items():
        # Where a mutation brings the manifest of the finished run back, it gives what it gives there.
        entry["finished"] = finished[command]["results"]
    for number in range(first, first + count):
        which = number % len(bases)
        print(json.dumps(in_child(number, bases[which], *known[which])), flush=True)


if __name__ == "__main__":
    place, *numbers = Path(sys.argv[1]).resolve(), *map(int, sys.argv[2:])
    if not place.exists():
        place.mkdir(parents=True)
        build(place)
    if numbers:
        fuzz(place, *[*numbers, 1][:2])
