"""Watches a training loop: its rate, its waits, and the memory it takes."""

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stores.slab import Slab


class Watch:
    """Times the update loop, without evaluations and checkpoints, and weighs what one update saves for backward."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        self._began = self._last = time.perf_counter()
        self._pauses = self._recent_pauses = 0.0
        self.saved_bytes = 0

    def rate(self, updates: int) -> float:
        now = time.perf_counter()
        seconds = now - self._last - self._recent_pauses
        self._last, self._recent_pauses = now, 0.0
        return updates / max(seconds, 1e-9)

    def overall(self, updates: int) -> float:
        return updates / max(time.perf_counter() - self._began - self._pauses, 1e-9)

    def wait_share(self, slab: Slab) -> float:
        return slab.wait_seconds / max(time.perf_counter() - self._began - self._pauses, 1e-9)

    def paused(self) -> "_Pause":
        return _Pause(self._add_pause)

    def _add_pause(self, seconds: float) -> None:
        self._pauses += seconds
        self._recent_pauses += seconds

    def saved_tensors(self) -> Any:
        """Counts, in the first update, the bytes that autograd keeps for the backward pass: each once, no weights."""
        if self.saved_bytes:
            return torch.autograd.set_grad_enabled(True)
        seen = set(self._weights)

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                self.saved_bytes += storage.nbytes()
            return tensor

        return torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)


class _Pause:
    def __init__(self, add: Callable[[float], None]) -> None:
        self._add = add

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._add(time.perf_counter() - self._began)


def give_back() -> None:
    """Return freed memory to the system: what evaluations free would stay, in small pieces, and add up over hours."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)


def peak_rss() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
