"""Linear recurrences h_t = a_t h_{t-1} + b_t over thousands of steps, without a Python loop per step."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 8  # steps of a block, taken one after the other in all blocks side by side
WALK = 4 * BLOCK  # steps up to which blocks do not pay


def scan_(a: Tensor, b: Tensor, before: Tensor) -> Tensor:
    """h_t = a_t h_{t-1} + b_t for a, b (B, T, H) from h_0 = before (B, H), in place of b; a is used up.

    The time axis is cut into blocks. Each is walked through from zero, with the product of its a so far. The same
    recurrence over the blocks' ends, a BLOCK-th as long, gives the state that enters each; product times state is
    added. With 0 <= a <= 1 nothing is divided and nothing grows: a product that underflows belongs to what is forgotten
    anyway. So float32 is as precise as step by step, however long the sequence; differences of logarithms are not.
    """
    length = b.shape[1]
    if length <= WALK:
        b[:, 0].addcmul_(a[:, 0], before)
        for t in range(1, length):
            b[:, t].addcmul_(a[:, t], b[:, t - 1])
        return b
    whole = length - length % BLOCK
    products, h = (part[:, :whole].unflatten(1, (-1, BLOCK)) for part in (a, b))  # (B, n, s, H)
    for t in range(1, BLOCK):
        h[:, :, t].addcmul_(products[:, :, t], h[:, :, t - 1])
        products[:, :, t].mul_(products[:, :, t - 1])
    ends = scan_(products[:, :, -1].clone(), h[:, :, -1].clone(), before)  # (B, n, H)
    h.addcmul_(products, torch.cat([before.unsqueeze(1), ends[:, :-1]], 1).unsqueeze(2))
    if whole < length:
        scan_(a[:, whole:], b[:, whole:], ends[:, -1])
    return b


class LinearRecurrence(torch.autograd.Function):
    """scan_() with its gradient, the same recurrence backwards. Only a and h are kept for it."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, before: Tensor) -> Tensor:
        h = scan_(a.clone(), b.clone(), before)
        ctx.save_for_backward(a, h, before)
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, h, before = ctx.saved_tensors
        later = F.pad(a[:, 1:], (0, 0, 0, 1)).flip(
            1
        )  # what a step's state is multiplied by in the next; nothing at the end
        through = scan_(later, grad.flip(1), torch.zeros_like(before)).flip(1)  # dL/dh_t by all later steps
        past = torch.cat([before.unsqueeze(1), h[:, :-1]], 1)
        return through * past, through, through[:, 0] * a[:, 0]
