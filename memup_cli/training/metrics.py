"""Training curves: one JSON object per line in logs/<stage>/metrics.jsonl, and TensorBoard events beside it."""

import json
from pathlib import Path
from typing import Any

from stores.files import make_folder, write_durably


class Metrics:
    """Appends to the logs of a stage; what an interrupted attempt logged beyond its checkpoint is dropped."""

    def __init__(self, folder: Path, update: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        make_folder(folder)
        path = folder / "metrics.jsonl"
        kept = b""
        if path.exists() and update:
            lines = path.read_bytes().splitlines(keepends=True)
            kept = b"".join(line for line in lines if line.endswith(b"\n") and json.loads(line)["update"] <= update)
        write_durably(path, kept)
        if not update:
            for old in folder.glob("events.*"):
                old.unlink()
        self._file = path.open("a")
        self._board = SummaryWriter(str(folder), purge_step=update or None)

    def __enter__(self) -> "Metrics":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._board.close()

    def write(self, update: int, **values: Any) -> None:
        self._file.write(json.dumps({"update": update, **values}) + "\n")
        self._file.flush()
        for name, value in values.items():
            self._board.add_scalar(name, value, update)
