"""numpy -> device. On CUDA through pinned buffers and a stream of its own, so that copies overlap with computing."""

import numpy as np
import torch
from torch import Tensor


class Stager:
    """Moves the arrays of one update to the device. Tensors on the CPU share memory with the arrays."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._cuda else None
        self._pinned: list[dict[str, Tensor]] = [{}, {}]
        self._copied: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
        tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        if not self._cuda:
            return tensors
        assert self._stream is not None
        self._turn ^= 1  # two sets of buffers: one may still be on its way
        if (event := self._copied[self._turn]) is not None:
            event.synchronize()
        buffers = self._pinned[self._turn]
        with torch.cuda.stream(self._stream):
            moved = {}
            for name, tensor in tensors.items():
                if name not in buffers or buffers[name].shape != tensor.shape:
                    buffers[name] = torch.empty_like(tensor).pin_memory()
                buffers[name].copy_(tensor)
                moved[name] = buffers[name].to(self._device, non_blocking=True)
            self._copied[self._turn] = torch.cuda.Event()
            self._copied[self._turn].record(self._stream)  # type: ignore[union-attr]
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        for tensor in moved.values():
            tensor.record_stream(current)
        return moved
