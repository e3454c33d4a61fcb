"""Checkpoints: one durable file each, loadable without running code; the last two are kept."""

import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from stores.codec import checksum
from stores.errors import DamagedData, UnsafePath
from stores.files import drop_partials, make_folder, read_file, remove_file, write_durably

from .. import console
from .stage_files import checkpoints, is_whole
from .tensors import FORMAT, check_format

KEPT = 2


def save(folder: Path, update: int, state: dict[str, Any], still_ours: Callable[[], None]) -> Path:
    """Write a checkpoint, unless another attempt has taken the folder over."""
    make_folder(folder)
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    path = folder / file_name(update, buffer.getvalue())
    write_durably(path, buffer.getvalue(), still_ours)
    for old in checkpoints(folder)[:-KEPT]:
        remove_file(old)
    return path


def file_name(update: int, data: bytes) -> str:
    """The name ends in the checksum of the contents: a plain torch file that still tells damage."""
    return f"checkpoint-{update:09d}-{checksum(data):08x}.pt"


def load_latest(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest checkpoint that is whole; a damaged one falls back to the one before it. None: there is none."""
    drop_partials(folder)
    for path in reversed(checkpoints(folder)):
        state = load(path, device)
        if state is not None:
            return state
        console.note(f"{path} is damaged; going back to the checkpoint before it, or to the start")
    return None


def progress(folder: Path, counted: str) -> int:
    """How far the newest checkpoint that is whole goes."""
    state = load_latest(folder, torch.device("cpu"))
    with fitting(folder):
        return int(state[counted]) if state else 0


def load(path: Path, device: torch.device) -> dict[str, Any] | None:
    """Read a checkpoint; None if it is damaged. One that would run code is refused."""
    data = read_file(path)
    if not is_whole(path, data):
        return None
    try:
        state = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        if "weights_only" in str(error).lower() or "weights only" in str(error).lower():
            raise UnsafePath(
                f"refused: {path} is not a weights-only file, so loading it could run code. Delete it, or ask whoever "
                "gave it to you."
            ) from None
        return None
    except (RuntimeError, EOFError, ValueError, KeyError, AttributeError):
        return None
    if not isinstance(state, dict):
        return None
    check_format(state.get("format", 1), path)
    return state


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Around taking up a checkpoint: one of another version, or of somebody's own making, may be anything."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise DamagedData(
            f"the newest checkpoint in {folder} does not fit what this version of memup trains ({error!r:.200}). Use "
            "the version that wrote it, delete it to go on from the one before, or begin again with --restart."
        ) from error


def exists(folder: Path) -> bool:
    return bool(checkpoints(folder))


def clear(folder: Path) -> None:
    for path in checkpoints(folder):
        remove_file(path)
