"""Checkpoints: one durable file each, loadable without running code; the last two are kept."""

import io
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from stores.errors import UnsafePath
from stores.files import drop_partials, make_folder, read_file, write_durably

KEPT = 2


def save(folder: Path, update: int, state: dict[str, Any]) -> Path:
    make_folder(folder)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    path = folder / f"checkpoint-{update:09d}.pt"
    write_durably(path, buffer.getvalue())
    for old in _found(folder)[:-KEPT]:
        old.unlink(missing_ok=True)
    return path


def load_latest(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest checkpoint that can be read; a torn one falls back to the one before it. None: there is none."""
    drop_partials(folder)
    for path in reversed(_found(folder)):
        state = load(path, device)
        if state is not None:
            return state
    return None


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint; None if it is damaged. One that would run code is refused."""
    try:
        state = torch.load(io.BytesIO(read_file(path)), map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        if "weights_only" in str(error).lower() or "weights only" in str(error).lower():
            raise UnsafePath(
                f"refused: {path} is not a weights-only file, so loading it could run code. Delete it, or ask whoever "
                "gave it to you."
            ) from None
        return None
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError):
        return None
    return state if isinstance(state, dict) else None


def exists(folder: Path) -> bool:
    return bool(_found(folder))


def clear(folder: Path) -> None:
    for path in _found(folder):
        path.unlink(missing_ok=True)


def _found(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if re.fullmatch(r"checkpoint-\d{9}\.pt", p.name))
