"""manifest.json: what was done, with what, from what. The one file that links the stages of a run.

Written atomically, the generation before it kept beside it as manifest.previous.json. Paths are relative to the run.
A checksum over its contents tells a damaged or hand-edited manifest from a good one.
"""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import DamagedData, StoreError
from .files import inside, make_folder, read_file, read_json, refuse_link, to_json, write_durably
from .layout import FORMAT, check_format, json_checksum

NAME, PREVIOUS = "manifest.json", "manifest.previous.json"
STATUSES = ("running", "interrupted", "complete", "failed")


class Manifest:
    """The manifest of one run, read once; save() writes the next generation."""

    def __init__(self, run: Path, data: dict[str, Any]) -> None:
        self.run, self.data = run, data

    @staticmethod
    def exists(run: Path) -> bool:
        return (run / NAME).exists() or (run / NAME).is_symlink()

    @staticmethod
    def new(run: Path, task: dict[str, Any]) -> "Manifest":
        data = {"format": FORMAT, "run": secrets.token_hex(8), "generation": 0, "task": task, "stages": {}}
        return Manifest(run, data)

    @staticmethod
    def load(run: Path) -> "Manifest":
        try:
            return Manifest(run, _read(run, NAME))
        except DamagedData as error:
            hint = "There is no earlier generation to go back to; collect the run again with --restart."
            try:
                earlier = _read(run, PREVIOUS)["generation"]
                hint = f"Generation {earlier} is intact in {PREVIOUS}: copy it over {NAME} to go on from there."
            except StoreError:
                pass
            raise type(error)(f"{error}. {hint}") from None

    @property
    def stages(self) -> dict[str, dict[str, Any]]:
        stages: dict[str, dict[str, Any]] = self.data["stages"]
        return stages

    @property
    def task(self) -> dict[str, Any]:
        task: dict[str, Any] = self.data["task"]
        return task

    def save(self) -> None:
        make_folder(self.run)
        current = self.run / NAME
        refuse_link(current)
        if current.exists():
            write_durably(self.run / PREVIOUS, read_file(current))
        self.data["generation"] += 1
        self.data.pop("checksum", None)
        self.data["checksum"] = json_checksum(self.data)
        write_durably(current, to_json(self.data))

    def stale(self, stage: str) -> list[str]:
        """The inputs of a stage that have changed since it ran, or whose own inputs have."""
        recorded = self.stages.get(stage, {}).get("inputs", {})
        makers = {name: maker for maker, entry in self.stages.items() for name in entry.get("outputs", {})}
        found = []
        for name, digest in recorded.items():
            maker = makers.get(name)
            if maker is None or self.stages[maker]["outputs"][name]["digest"] != digest or self.stale(maker):
                found.append(name)
        return found


def _read(run: Path, name: str) -> dict[str, Any]:
    path = run / name
    refuse_link(run)
    data = read_json(path)
    if "format" not in data:
        raise DamagedData(f"{path} is not a memup manifest")
    check_format(data["format"], str(path))
    for field, value in _paths(data, name):
        inside(run, str(value), field)
    claimed = data.pop("checksum", None)
    if claimed != json_checksum(data):
        raise DamagedData(f"{path} is damaged or was changed by hand: its checksum does not match")
    return data


def _paths(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Every entry called path, with the way to it."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "path":
                yield f"{where}: {key}", item
            else:
                yield from _paths(item, f"{where}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _paths(item, f"{where}[{i}]")
