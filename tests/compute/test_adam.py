"""Adam of our own against torch.optim.Adam: the same bits, and each takes up the other's checkpoints."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor

from memup_cli.compute.adam import Adam

SHAPES = [(), (1,), (7,), (33, 17), (1, 64), (5, 3, 2, 2), (300, 40), (0, 4)]
HOW = [
    pytest.param({"fused": True}, id="fused"),
    pytest.param({"fused": False}, id="plain"),
    pytest.param({"fused": True, "eps": 1e-5}, id="fused-eps"),
    pytest.param({"fused": False, "eps": 1e-3}, id="plain-eps"),
]


def tensors(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator).requires_grad_() for shape in SHAPES]
    return [*made, torch.randn(6, 9, generator=generator).t().requires_grad_()]  # not contiguous


def theirs(parameters: list[Tensor], lr: float, how: dict[str, Any]) -> torch.optim.Adam:
    """With fused=None, as before there was a module of our own: what a plain torch.optim.Adam does."""
    return torch.optim.Adam(parameters, lr=lr, **{**how, "fused": how["fused"] or None})


def train(optimisers: list[Any], sides: list[list[Tensor]], first: int, steps: int) -> None:
    """The same gradients for all, of all sizes, some missing now and then; the learning rate changes."""
    for number in range(first, first + steps):
        generator = torch.Generator().manual_seed(number)
        given = [torch.randn(p.shape, generator=generator) * 10.0 ** (number % 9 - 5) for p in sides[0]]
        for optimiser, parameters in zip(optimisers, sides, strict=True):
            set_lr(optimiser, 1e-2 / (1 + number))
            optimiser.zero_grad()
            assert all(p.grad is None for p in parameters)
            for i, (parameter, gradient) in enumerate(zip(parameters, given, strict=True)):
                if i != 2 or number >= 20:  # one begins late
                    parameter.grad = None if (number + i) % 7 == 0 else gradient.clone()
            optimiser.step()


def set_lr(optimiser: Any, lr: float) -> None:
    if isinstance(optimiser, Adam):
        optimiser.lr = lr
    else:
        optimiser.param_groups[0]["lr"] = lr


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and a.device == b.device and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def as_saved(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


@pytest.mark.parametrize("how", HOW)
def test_it_is_torchs_to_the_bit(how):
    mine, other = tensors(), tensors()
    ours, reference = Adam(mine, lr=1e-2, **how), theirs(other, 1e-2, how)
    assert equal(ours.state_dict(), reference.state_dict())
    train([ours, reference], [mine, other], 0, 300)
    assert equal(mine, other)
    assert equal(ours.state_dict(), reference.state_dict())


@pytest.mark.parametrize("how", HOW)
def test_each_goes_on_from_the_others_checkpoint(how):
    mine, other = tensors(), tensors()
    ours, reference = Adam(mine, lr=1e-2, **how), theirs(other, 1e-2, how)
    train([ours, reference], [mine, other], 0, 15)  # one parameter has no state yet
    swapped_mine, swapped_other = copy.deepcopy(other), copy.deepcopy(mine)
    ours_again, reference_again = Adam(swapped_mine, lr=1.0, **how), theirs(swapped_other, 1.0, how)
    ours_again.load_state_dict(as_saved(reference.state_dict()))
    reference_again.load_state_dict(as_saved(ours.state_dict()))
    assert equal(ours_again.state_dict(), reference_again.state_dict())
    every = [ours, reference, ours_again, reference_again]
    train(every, [mine, other, swapped_mine, swapped_other], 15, 50)
    for parameters, optimiser in ((other, reference), (swapped_mine, ours_again), (swapped_other, reference_again)):
        assert equal(mine, parameters)
        assert equal(ours.state_dict(), optimiser.state_dict())


def test_what_was_loaded_is_not_shared():
    mine = tensors()
    ours = Adam(mine, lr=1e-2)
    train([ours], [mine], 0, 3)
    state = ours.state_dict()
    before = copy.deepcopy(state)
    other = tensors()
    second = Adam(other, lr=1e-2)
    second.load_state_dict(state)
    train([second], [other], 3, 3)
    assert equal(ours.state_dict(), before)


@pytest.mark.parametrize("fused", [True, False])
def test_steps_without_any_gradient_change_nothing(fused):
    mine = tensors()
    ours = Adam(mine, lr=1e-2, fused=fused)
    ours.step()
    assert equal(mine, tensors())
    assert ours.state_dict()["state"] == {}


@pytest.mark.parametrize("fused", [True, False])
def test_parameters_of_several_types(fused):
    def mixed() -> list[Tensor]:
        types = torch.float32, torch.float64
        return [p.detach().to(types[i % 2]).requires_grad_() for i, p in enumerate(tensors())]

    mine, other = mixed(), mixed()
    ours, reference = Adam(mine, lr=1e-2, fused=fused), theirs(other, 1e-2, {"fused": fused})
    for number in range(20):
        for parameters, optimiser in ((mine, ours), (other, reference)):
            for parameter in parameters:
                generator = torch.Generator().manual_seed(number)
                parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            optimiser.step()
    assert equal(mine, other)
    assert equal(ours.state_dict(), reference.state_dict())


def test_steps_are_counted_where_they_are_read():
    """On the parameters' device for the fused kernel, and here otherwise: no step waits for a device."""
    meta = [torch.zeros(3, device="meta", requires_grad=True)]
    saved = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(3), "exp_avg_sq": torch.ones(3)}}}
    for fused, device in ((True, "meta"), (False, "cpu")):
        ours = Adam(meta, lr=1e-2, fused=fused)
        ours.load_state_dict({**saved, "param_groups": Adam(meta, lr=1e-2).state_dict()["param_groups"]})
        state = ours.state_dict()["state"][0]
        assert state["step"].device.type == device
        assert state["exp_avg"].device.type == "meta"


@pytest.mark.parametrize("damage", ["fewer", "shape", "amsgrad", "step", "index", "groups"])
def test_the_state_of_something_else_is_refused(damage):
    mine = [torch.ones(3, requires_grad=True), torch.ones(2, 2, requires_grad=True)]
    ours = Adam(mine, lr=1e-2)
    for parameter in mine:
        parameter.grad = torch.ones_like(parameter)
    ours.step()
    before = copy.deepcopy(ours.state_dict())
    saved = copy.deepcopy(before)
    if damage == "fewer":
        saved["param_groups"][0]["params"].pop()
    elif damage == "shape":
        saved["state"][1]["exp_avg_sq"] = torch.ones(2)
    elif damage == "amsgrad":
        saved["param_groups"][0]["amsgrad"] = True
    elif damage == "step":
        saved["state"][1]["step"] = torch.ones(0)
    elif damage == "index":
        saved["state"][2] = saved["state"][1]
    else:
        saved["param_groups"] *= 2
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        ours.load_state_dict(saved)
    assert equal(ours.state_dict(), before)


def test_a_state_that_is_laid_out_otherwise_is_taken_in_order():
    """The fused kernel reads raw memory."""
    mine, other = [torch.ones(4, 6, requires_grad=True)], [torch.ones(4, 6, requires_grad=True)]
    plain = torch.arange(24.0).view(4, 6)
    turned = plain.t().contiguous().t()
    for parameters, moment in ((mine, plain), (other, turned)):
        ours = Adam(parameters, lr=1e-2)
        saved = ours.state_dict()
        saved["state"] = {0: {"step": torch.tensor(1.0), "exp_avg": moment, "exp_avg_sq": moment}}
        ours.load_state_dict(saved)
        parameters[0].grad = torch.ones(4, 6)
        ours.step()
    assert equal(mine, other)
