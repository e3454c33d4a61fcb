"""The stages that faults are swept over: a small command each, what its result is, and how far it had come."""

import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stores.files import PARTIAL
from stores.manifest import Manifest
from stores.reader import Shard, shard_exists
from stores.scores import read_source
from tests.cli import files_of
from tests.processes import Outcome


def words(command: str) -> list[str]:
    return command.split()


TMAZE = words("collect tmaze --length 270000 --episodes 2 --test-episodes 1 --commit-every 0 --run run --workers 1")
PENDULUM = words(  # three commit groups and one
    "collect gym --env-id Pendulum-v1 --max-steps 200 --episodes 25 --test-episodes 5 --run run --workers 1"
)
MAZE = words("collect tmaze --length 10 --episodes 16 --test-episodes 4 --run run --workers 1")
SCORE = words("score --run run --updates 60 --hidden 8")  # enough for scores that separate
MEMORY = words(
    "train-memory --run run --rollout 5 --batch 4 --hidden 8 --updates 4 --checkpoint-every 2 --evaluate-every 2"
)
AGENT = words(
    "train-agent --run run --agent ppo --envs 4 --minibatch 32 --hidden 8 --steps 120 --iteration-steps 60 "
    "--checkpoint-every 0"
)
VARYING = {"updates_per_second", "data_wait_share", "peak_rss_bytes", "seconds", "steps_per_second"}


@dataclass(frozen=True)
class Stage:
    name: str  # in the manifest
    before: tuple[list[str], ...]  # commands that it needs
    command: list[str]

    def result(self, run: Path) -> dict[str, Any]:
        """What must come out the same however often the stage was disturbed: files, byte for byte, and metrics."""
        folders = {
            "collect": ["trajectories"],
            "score": ["scores", "detector"],
            "train-memory": ["memory"],
            "train-agent/ppo": ["agent/ppo"],
        }[self.name]
        found: dict[str, Any] = {}
        for folder in folders:
            for name, data in files_of(run / folder).items():
                if not re.search(r"lease\.json$|checkpoint-.*\.pt$", name):  # of the dead; with a clock inside
                    found[f"{folder}/{name}"] = data
        entry = Manifest.load(run).stages[self.name]
        found |= {key: entry.get(key) for key in ("status", "config", "inputs", "outputs", "weights")}
        found["metrics"] = {k: v for k, v in entry.get("metrics", {}).items() if k not in VARYING}
        curve = run / "logs" / self.name.replace("/", "-") / "metrics.jsonl"
        lines = curve.read_text().splitlines() if curve.exists() else []
        found["curve"] = [{k: v for k, v in json.loads(line).items() if k not in VARYING} for line in lines]
        return found

    def committed(self, run: Path) -> dict[str, int]:
        """What a disturbed attempt had committed: files and their inodes, which change if they are made again."""
        if self.name == "collect":
            return _committed_chunks(run)
        if self.name == "score":
            return _published_scores(run)
        pattern = {
            "train-memory": "memory/checkpoint-*.pt",
            "train-agent/ppo": "agent/ppo/checkpoint-*.pt",
        }[self.name]
        return {str(path.relative_to(run)): path.stat().st_ino for path in run.glob(pattern) if path.suffix != PARTIAL}

    def lost(self, run: Path, before: dict[str, int], again: Outcome) -> int:
        """Commits of the disturbed attempt that the next one did not build on: chunks made again, updates repeated."""
        if self.name in ("collect", "score"):
            after = self.committed(run)
            return sum(after.get(name) != inode for name, inode in before.items())
        newest = max([int(re.findall(r"checkpoint-(\d+)", name)[0]) for name in before], default=0)
        if not newest or "up to date" in again.out:
            return 0
        if self.name == "train-memory":
            (found,) = re.findall(r"resuming at update (\d+)", again.err) or ["0"]
            return newest - int(found)
        (steps,) = re.findall(r"resuming at ([\d,]+) steps", again.err) or ["0"]
        curve = [json.loads(x) for x in (run / "logs/train-agent-ppo/metrics.jsonl").read_text().splitlines()]
        reached = {row["steps"]: row["update"] for row in curve}
        return newest - reached.get(int(steps.replace(",", "")), 0)


def _committed_chunks(run: Path) -> dict[str, int]:
    found = {}
    for path in sorted(run.glob("trajectories/*/*.zarr")):
        if shard_exists(path):
            shard = Shard(path)
            assert all(len(shard.rows(g)) for g in shard.available_groups())
            for chunk in path.glob("steps/*/c.*"):
                if chunk.suffix != PARTIAL and int(chunk.name.split(".")[1]) < shard.state.next_chunk:
                    found[str(chunk.relative_to(run))] = chunk.stat().st_ino
    return found


def _published_scores(run: Path) -> dict[str, int]:
    """Chunks that the group of scores lists: the others are there, but do not count yet."""
    found = {}
    for group in sorted(run.glob("scores/*/*/*/zarr.json")):
        for number in read_source(group.parent).get("chunks") or ():
            chunk = group.parent / "score" / f"c.{number}"
            found[str(chunk.relative_to(run))] = chunk.stat().st_ino
    return found


def fresh(places: Path, start: Path) -> Path:
    """A copy of a prepared folder."""
    folder = Path(tempfile.mkdtemp(prefix="point-", dir=places))
    return Path(shutil.copytree(start, folder, dirs_exist_ok=True))


COLLECT_STAGE = Stage("collect", (), TMAZE)
SCORE_STAGE = Stage("score", (PENDULUM,), SCORE)
MEMORY_STAGE = Stage("train-memory", (MAZE, SCORE), MEMORY)
AGENT_STAGE = Stage("train-agent/ppo", (MAZE, SCORE, MEMORY), AGENT)
STAGES = [COLLECT_STAGE, SCORE_STAGE, MEMORY_STAGE, AGENT_STAGE]
