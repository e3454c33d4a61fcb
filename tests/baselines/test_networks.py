"""The cores of the supervised baselines: what they compute, and that nothing looks ahead."""

import pytest
import torch
from torch import Tensor

from memup_cli.baselines.networks import ShiftedSum, _positions
from memup_cli.registries import BASELINES


def naive(u: Tensor, h: Tensor) -> Tensor:
    """h_t = ReLU(roll(h_{t-1}, 1) + u_t), one step after the other."""
    steps = []
    for t in range(u.shape[1]):
        h = torch.relu(h.roll(1, -1) + u[:, t])
        steps.append(h)
    return torch.stack(steps, 1)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 16, 29, 120])
@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_shifted_sum_is_the_naive_loop_with_its_gradients(length, blocks):
    torch.manual_seed(length)
    u = torch.randn(3, length, 5, dtype=torch.float64, requires_grad=True)
    before = torch.rand(3, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, length, 5, dtype=torch.float64)
    expected, found = naive(u, before), ShiftedSum.apply(u, before, -(-length // blocks))
    torch.testing.assert_close(found, expected)
    for a, b in zip(*(torch.autograd.grad((h * weight).sum(), (u, before)) for h in (found, expected)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("size", [141, 20_000])
@pytest.mark.parametrize("drift", [-0.5, 0.0, 0.5])
def test_shifted_sum_keeps_its_precision_over_a_long_sequence(drift, size):
    torch.manual_seed(0)
    u = torch.randn(2, 20_000, 16) + drift
    before = torch.zeros(2, 16)
    exact = naive(u.double(), before.double())
    rounding = (naive(u, before) - exact).abs().max()
    assert (ShiftedSum.apply(u, before, size) - exact).abs().max() < 3 * rounding


def core(name: str, inputs: int = 3) -> torch.nn.Module:
    torch.manual_seed(1)
    found: torch.nn.Module = BASELINES.load(name)(inputs, 8, 2, 2, 10)
    return found


@pytest.mark.parametrize("name", ["lstm", "mingru", "srnn", "gtrxl"])
def test_recurrent_cores_go_on_from_a_carried_state(name):
    model, x = core(name), torch.randn(4, 23, 3)
    whole, _ = model(x, model.initial(4))
    first, state = model(x[:, :9], model.initial(4))
    second, _ = model(x[:, 9:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)


@pytest.mark.parametrize("name", BASELINES.built_in)
def test_no_core_sees_the_future(name):
    model, x = core(name), torch.randn(2, 20, 3)
    changed = x.clone()
    changed[:, 12:] += 1
    before, after = (model(values, model.initial(2))[0] for values in (x, changed))
    torch.testing.assert_close(before[:, :12], after[:, :12])
    assert not torch.allclose(before[:, 12:], after[:, 12:])


def test_positions_tell_all_steps_apart():
    rows = _positions(3000, 32, torch.device("cpu"))
    assert rows.shape == (3000, 32)
    assert len(torch.unique(rows, dim=0)) == 3000
