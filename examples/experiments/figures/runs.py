"""What the runs below a folder say about themselves, in manifest.json, evaluation/*.json and logs/."""

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Run:
    folder: Path
    manifest: dict[str, Any]

    @property
    def task(self) -> str:
        return self.manifest["task"]["name"]

    @property
    def options(self) -> dict[str, Any]:
        """Of the task, such as its length."""
        return self.manifest["task"]["options"]

    def stage(self, name: str) -> dict[str, Any] | None:
        """Config and metrics of a finished stage."""
        entry = self.manifest["stages"].get(name, {})
        return entry if entry.get("status") == "complete" else None

    def stages(self, kind: str) -> dict[str, dict[str, Any]]:
        """The finished stages of a kind that a run can have several of, by name: train-agent/ppo is ppo."""
        names = (name for name in self.manifest["stages"] if name.startswith(f"{kind}/"))
        return {name.partition("/")[2]: entry for name in sorted(names) if (entry := self.stage(name))}

    def evaluation(self, name: str) -> dict[str, Any] | None:
        path = self.folder / "evaluation" / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def log(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / "logs" / name / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_runs(folder: Path) -> list[Run]:
    return [Run(path.parent, json.loads(path.read_text())) for path in sorted(folder.glob("*/manifest.json"))]


def trained(runs: Iterable[Run], key: Callable[[Run, dict[str, Any]], Key]) -> dict[Key, list[dict[str, Any]]]:
    """train-memory of the runs that have finished it, those of each key (its seeds) together."""
    found = defaultdict(list)
    for run in runs:
        if entry := run.stage("train-memory"):
            found[key(run, entry["config"])].append(entry)
    return dict(found)
