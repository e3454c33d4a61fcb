"""The processes that train one memory together (torchrun): each has some of the slots, all have the same weights.

Every update is the one that a single process would make with all slots: sums over slots become sums over processes.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import RankLost
from ..ranks import Rank, rank

PATIENCE = timedelta(hours=2)  # while the first process evaluates; one that dies is noticed at once

T = TypeVar("T")


class World:
    """This process among the others; alone, everything here costs nothing."""

    def __init__(self, mine: Rank | None = None) -> None:
        self._rank = mine or Rank(0, 1, 0)

    @property
    def size(self) -> int:
        return self._rank.size

    @property
    def rank(self) -> int:
        return self._rank.number

    @property
    def first(self) -> bool:
        """The one that evaluates, writes and speaks."""
        return self.rank == 0

    def share(self, count: int) -> np.ndarray:
        """This process's part of things numbered from 0: every size-th."""
        return np.arange(self.rank, count, self.size)

    def sum(self, tensor: Tensor) -> Tensor:
        """Over the processes, on the tensor's device, in place."""
        if self.size > 1:
            self._together(lambda: dist.all_reduce(tensor))
        return tensor

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        """Begin to sum over the processes, in place, while other work goes on; the call of what it returns waits."""
        if self.size == 1:
            return lambda: tensor
        work = self._together(lambda: dist.all_reduce(tensor, async_op=True))

        def summed() -> Tensor:
            self._together(work.wait)
            return tensor

        return summed

    def sum_gradients(self, parameters: Iterable[Tensor]) -> None:
        """One exchange for all of them."""
        if self.size == 1:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = self.sum(torch.cat([g.flatten() for g in gradients]))
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def any(self, flag: bool) -> bool:
        """Whether it is so for any process: what all of them then do together."""
        return self.begin_any(flag)()

    def begin_any(self, flag: object) -> Callable[[], bool]:
        """Begin to ask; the call of what it returns waits for the others' answers. Alone, it looks at the flag then."""
        if self.size == 1:
            return lambda: bool(flag)
        summed = self.begin_sum(torch.tensor(int(bool(flag))))
        return lambda: bool(summed())

    def from_first(self, make: Callable[[], T]) -> T:
        """What the first process makes, for all."""
        if self.size == 1:
            return make()
        box = [make() if self.first else None]
        self._together(lambda: dist.broadcast_object_list(box, device=torch.device("cpu")))
        return box[0]  # type: ignore[return-value]

    def gather(self, value: T) -> list[T]:
        """Of all processes, at the first one; elsewhere nothing."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        self._together(lambda: dist.gather_object(value, found if self.first else None))
        return found if self.first else []

    @staticmethod
    def _together(exchange: Callable[[], T]) -> T:
        try:
            return exchange()
        except RuntimeError as error:
            raise RankLost(
                "another process of this training is gone; its own message, if it left one, is above. What was saved "
                "is kept: start the same torchrun command again, without --restart, to continue. "
                f"({str(error).splitlines()[0]})"
            ) from None


ALONE = World()


@contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """Meet the other processes that torchrun started, if there are any."""
    mine = rank()
    if mine.size == 1:
        yield ALONE
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if mine.here == mine.size and sys.platform == "linux":  # halves the time of an exchange
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    World._together(lambda: dist.init_process_group(backend, timeout=PATIENCE))
    try:
        yield World(mine)
    finally:
        dist.destroy_process_group()
