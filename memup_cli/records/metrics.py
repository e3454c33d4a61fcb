"""Training curves: one JSON object per line in logs/<stage>/metrics.jsonl, and TensorBoard events beside it."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stores.files import begin_again, drop_partials, io_errors, make_folder, remove_file, write_all


class Metrics:
    """Appends to the logs of a stage; what an interrupted attempt logged beyond its checkpoint is dropped.

    Each attempt has files of its own: what one writes that was taken over meanwhile goes nowhere.
    """

    def __init__(self, folder: Path, update: int, still_ours: Callable[[], None]) -> None:
        from .event_files import EventFile

        make_folder(folder)
        drop_partials(folder)
        self._path = folder / "metrics.jsonl"
        dropped = [] if update else list(folder.glob("events.*"))

        def keep(log: bytes) -> bytes:
            return b"".join(line for line in log.splitlines(keepends=True) if update and _update_of(line) <= update)

        self._fd = begin_again(self._path, keep, still_ours)
        with io_errors(folder):
            for old in dropped:
                remove_file(old)
            self._events = EventFile(folder, update or None)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        with io_errors(self._path):
            try:
                os.close(self._fd)
            finally:
                self._events.close()

    def write(self, update: int, **values: Any) -> None:
        line = (json.dumps({"update": update, **values}) + "\n").encode()
        with io_errors(self._path, len(line)):
            write_all(self._fd, line)
            self._events.add(update, values)

    def sync(self) -> None:
        """Before a checkpoint: the curve up to it is not logged again."""
        with io_errors(self._path):
            os.fsync(self._fd)


def _update_of(line: bytes) -> float:
    """The update that a line is about; infinity if it is torn or damaged."""
    try:
        return float(json.loads(line)["update"]) if line.endswith(b"\n") else math.inf
    except (ValueError, KeyError, TypeError):
        return math.inf
