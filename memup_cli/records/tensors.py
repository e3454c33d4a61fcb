"""Weights as safetensors, with the version of their format: what 0.1.0 wrote, without one, is read, too."""

import json

import torch
from safetensors.torch import load, save

from stores.errors import FormatMismatch

FORMAT = 2  # of weights and checkpoints; 0.1.0 wrote the first, which does not say so
OURS = "memup"  # where a header says it: with two entries safetensors would write the same weights in different ways


def to_bytes(weights: dict[str, torch.Tensor], **more: str) -> bytes:
    """A weights file; `more` goes into its header."""
    told = json.dumps({"format": FORMAT, **more}, sort_keys=True)
    data: bytes = save({n: v.detach().cpu().contiguous() for n, v in weights.items()}, {OURS: told})
    return data


def from_bytes(data: bytes, where: object) -> dict[str, torch.Tensor]:
    """What a weights file holds; `where` is how an error calls it."""
    check_format(header(data).get("format", 1), where)
    found: dict[str, torch.Tensor] = load(data)
    return found


def header(data: bytes) -> dict[str, object]:
    """What a weights file says of itself; empty if it cannot be read."""
    try:
        found = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        found = json.loads(found[OURS]) if OURS in found else found
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def check_format(found: object, where: object) -> None:
    """FormatMismatch if a later version of memup wrote it."""
    text = str(found)
    number = int(text) if text.isdecimal() else FORMAT
    if number > FORMAT:
        raise FormatMismatch(
            f"{where} has format {number}, of a later version of memup; this one reads up to format {FORMAT}. Use a "
            "newer memup, or train again with --restart."
        )
