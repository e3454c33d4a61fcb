"""manifest.json: what was done, with what, from what. The one file that links the stages of a run.

Written atomically, the generation before it kept beside it as manifest.previous.json. Paths are relative to the run.
A checksum over its contents tells a damaged or hand-edited manifest from a good one.
"""

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .errors import DamagedData, StoreError, UnsafePath
from .files import allowed, inside, io_errors, make_folder, read_file, read_json, refuse_link, to_json, write_durably
from .layout import FORMAT, check_format, json_checksum

NAME, PREVIOUS = "manifest.json", "manifest.previous.json"
STATUSES = ("running", "interrupted", "complete", "failed")
PATIENCE = 2.0  # seconds to wait for another stage that writes the manifest


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

    def save(self, check: Callable[[], None] = allowed) -> None:
        """Write the next generation, unless check raises."""
        check()
        make_folder(self.run)
        current = self.run / NAME
        refuse_link(current)
        if current.exists():
            write_durably(self.run / PREVIOUS, read_file(current))
        self.data["generation"] += 1
        self.data.pop("checksum", None)
        self.data["checksum"] = json_checksum(self.data)
        write_durably(current, to_json(self.data), check)

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


@contextlib.contextmanager
def turn(run: Path) -> Iterator[None]:
    """Hold off other stages of a run from reading the manifest, changing it and writing it until we have.

    The lock is on manifest.json itself, so whoever got it looks whether that is still the same file. Where the file
    system has no locks, or their holder hangs, we go on without: then the last writer wins.
    """
    path, deadline = run / NAME, time.monotonic() + PATIENCE
    with contextlib.ExitStack() as held:
        while path.exists() and time.monotonic() < deadline:
            with io_errors(path):
                fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                ours = os.path.samestat(os.fstat(fd), os.stat(path))
            except BlockingIOError:
                ours = False
            except OSError:
                os.close(fd)
                break
            if ours:
                held.callback(os.close, fd)
                break
            os.close(fd)
            time.sleep(0.01)
        yield


def _read(run: Path, name: str) -> dict[str, Any]:
    path = run / name
    refuse_link(run)
    data = read_json(path)
    if "format" not in data:
        raise DamagedData(f"{path} is not a memup manifest")
    check_format(data["format"], str(path))
    for field, value in _paths(data, name):
        inside(run, str(value), field)
    _check_stages(data, name)
    claimed = data.pop("checksum", None)
    if claimed != json_checksum(data):
        raise DamagedData(f"{path} is damaged or was changed by hand: its checksum does not match")
    return data


def _check_stages(data: dict[str, Any], name: str) -> None:
    """Names that become parts of paths must be plain; DamagedData if this does not even look like stages."""
    stages = data.get("stages")
    if not isinstance(stages, dict) or not isinstance(data.get("task"), dict):
        raise DamagedData(f"{name} is damaged: it does not say what was done")
    for stage, entry in stages.items():
        config = entry.get("config", {}) if isinstance(entry, dict) else None
        if not isinstance(config, dict) or not isinstance(entry.get("weights", {}), dict):
            raise DamagedData(f"{name} is damaged: stages.{stage} is not an entry")
        words = {f"stages.{stage}.config.{key}": config.get(key) or "" for key in ("detector", "checkpoint")}
        words |= {f"stages.{stage}.weights": weights for weights in entry.get("weights", {})}
        for field, word in {"stages": stage.replace("/", "", 1), **words}.items():
            if not re.fullmatch(r"[A-Za-z0-9_-]*", str(word)):
                raise UnsafePath(
                    f"{name}: {field} names {str(word)!r}, which is not a plain name; nothing was read or written. The "
                    "file was changed by hand or comes from somebody you should ask."
                )


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
