"""Training curves: one JSON object per line in logs/<stage>/metrics.jsonl, and TensorBoard events beside it."""

import json
import math
import os
from pathlib import Path
from typing import Any

from stores.files import drop_partials, io_errors, make_folder, read_file, write_all, write_durably


class Metrics:
    """Appends to the logs of a stage; what an interrupted attempt logged beyond its checkpoint is dropped."""

    def __init__(self, folder: Path, update: int) -> None:
        from .events import Events

        make_folder(folder)
        drop_partials(folder)
        self._path = path = folder / "metrics.jsonl"
        kept = b""
        if path.exists() and update:
            lines = read_file(path).splitlines(keepends=True)
            kept = b"".join(line for line in lines if _update_of(line) <= update)
        write_durably(path, kept)
        with io_errors(folder):
            if not update:
                for old in folder.glob("events.*"):
                    old.unlink()
            self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW)
            self._events = Events(folder, update or None)

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
