"""The scan is the recurrence step by step, with its gradients, however long it is and whatever the gates do."""

import pytest
import torch
from torch import Tensor

from memup_cli.memory.scan import BLOCK, WALK, LinearRecurrence, scan_

LENGTHS = [1, 2, WALK, WALK + 1, WALK + BLOCK, 5 * BLOCK + 3, 700]


def steps(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    found = []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        found.append(h)
    return torch.stack(found, 1)


def drawn(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(length)
    a = torch.sigmoid(3 * torch.randn(2, length, 5, dtype=dtype))
    return a, torch.randn(2, length, 5, dtype=dtype), torch.randn(2, 5, dtype=dtype)


@pytest.mark.parametrize("length", LENGTHS)
def test_it_equals_the_recurrence_with_its_gradients(length):
    given = [part.requires_grad_() for part in drawn(length)]
    weight = torch.randn(2, length, 5, dtype=torch.float64)
    found, expected = LinearRecurrence.apply(*given), steps(*given)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((h * weight).sum(), given) for h in (found, expected)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("length", [3, WALK + BLOCK + 1])
def test_gradients_equal_finite_differences(length):
    given = tuple(part[:1, :, :2].requires_grad_() for part in drawn(length)[:2])
    before = torch.randn(1, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(LinearRecurrence.apply, (*given, before))


@pytest.mark.parametrize("keep", [0.0, 1e-30, 0.5, 1 - 1e-4, 1 - 2**-24, 1.0])
def test_a_million_steps_of_float32_are_as_precise_as_step_by_step(keep):
    """Shut, open and every long horizon; products of a underflow in most, and with 1.0 nothing is ever forgotten."""
    torch.manual_seed(0)
    length = 1_000_000
    a = torch.full((1, length, 1), keep)
    b = (1 - a) * torch.randn(1, length, 1) if keep < 1 else torch.randn(1, length, 1) / length
    before = torch.ones(1, 1)
    exact = scan_(a.double(), b.double(), before.double())
    found = scan_(a.clone(), b.clone(), before)
    assert torch.isfinite(found).all()
    assert (found - exact).abs().max() < 1e-4


def test_gates_that_change_abruptly_forget_and_keep():
    a = torch.ones(1, 10_000, 1)
    a[:, 5000] = 0
    b = torch.zeros(1, 10_000, 1)
    b[:, 5000] = 7
    h = scan_(a, b, torch.full((1, 1), 3.0)).flatten()
    assert (h[:5000] == 3).all()
    assert (h[5000:] == 7).all()
