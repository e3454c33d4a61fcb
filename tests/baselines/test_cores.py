"""Recurrent cores of the baselines: blocks equal steps, zero is a fresh start, and each core's own promise."""

import numpy as np
import pytest
import torch

from memup_cli.baselines.cores import AMRLCore, GTrXLCore, LSTMCore, aggregate_over_time
from memup_cli.memory.cells import reset

F, SIZE, STEPS = 3, 8, 12
CORES = {
    "lstm": lambda: LSTMCore(F, SIZE),
    "amrl-max": lambda: AMRLCore(F, SIZE, "max"),
    "amrl-sum": lambda: AMRLCore(F, SIZE, "sum"),
    "amrl-avg": lambda: AMRLCore(F, SIZE, "avg"),
    "amrl-odd": lambda: AMRLCore(F, SIZE - 1, "max"),
    "gtrxl-span1": lambda: GTrXLCore(F, SIZE, span=1),
    "gtrxl-span4": lambda: GTrXLCore(F, SIZE, span=4),
    "gtrxl-span64": lambda: GTrXLCore(F, SIZE, layers=3, heads=4),
}
AGGREGATES = ["max", "sum", "avg"]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture(params=CORES)
def core(request):
    """In float64, so that a wrong step cannot hide in the tolerance, and a part made in float32 shows."""
    core = CORES[request.param]().double()
    randomise(core)
    return core


def randomise(core):
    """Everything, since biases that start at zero would hide a wrong distance or an unmasked row of zeros."""
    for parameter in core.parameters():
        torch.nn.init.normal_(parameter, std=0.5)


def inputs(batch=2, steps=STEPS):
    return torch.randn(batch, steps, F, dtype=torch.float64)


def in_blocks(core, x, block, state=None):
    state = core.initial(len(x)) if state is None else state
    outputs = []
    for part in x.split(block, 1):
        m, state = core(part, state)
        outputs.append(m)
    return torch.cat(outputs, 1), state


@pytest.mark.parametrize("block", [1, 3, 4, 5])
def test_blocks_equal_one_pass(core, block):
    x = inputs()
    whole, after_whole = core(x, core.initial(2))
    split, after_split = in_blocks(core, x, block)
    assert whole.shape == (2, STEPS, core.size)
    torch.testing.assert_close(split, whole)
    torch.testing.assert_close(after_split, after_whole)


def test_a_reset_row_is_a_fresh_row_and_the_other_goes_on(core):
    before, x = inputs(), inputs()
    _, state = core(before, core.initial(2))
    m, _ = core(x, reset(state, torch.tensor([True, False])))
    torch.testing.assert_close(m[0], core(x, core.initial(2))[0][0])
    torch.testing.assert_close(m[1], core(x, state)[0][1])


def test_rows_of_different_age_do_not_mix(core):
    """A slot that starts its episode in the middle of its neighbour's equals one that runs alone."""
    x = inputs()
    _, state = in_blocks(core, x[:, :2], 1)
    m, _ = in_blocks(core, x[:, 2:], 3, reset(state, torch.tensor([False, True])))
    alone, _ = in_blocks(core, x[1:, 2:], 1)
    torch.testing.assert_close(m[1:], alone)


def test_state_parts_are_flat_and_follow_the_parameters(core):
    _, after = core(inputs(), core.initial(2))
    for start, end in zip(core.initial(2), after, strict=True):
        assert start.shape == end.shape
        assert start.ndim == 2
        assert start.dtype == end.dtype == torch.float64
        assert not start.any()


@pytest.mark.parametrize("name", CORES)
def test_the_device_comes_from_the_parameters(name):
    core = CORES[name]().to("meta")  # an operation with a CPU tensor would fail
    m, state = core(torch.empty(2, STEPS, F, device="meta"), core.initial(2))
    assert {part.device.type for part in (m, *state)} == {"meta"}


def test_every_parameter_is_trained(core):
    core(inputs(), core.initial(2))[0].square().sum().backward()
    still = {name for name, parameter in core.named_parameters() if parameter.grad is None or not parameter.grad.any()}
    if isinstance(core, GTrXLCore) and core.span == 1:  # a choice among one step: no weight to learn
        still = {name for name in still if not name.endswith(("query.weight", "distance_bias"))}
    assert still == set()


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_amrl_equals_the_definition(aggregate):
    core = AMRLCore(F, SIZE, aggregate).double()
    x = inputs()
    found, _ = in_blocks(core, x, 5)
    out = core.lstm(x, core.lstm.initial(2))[0].detach().numpy()
    define = {"max": np.max, "sum": np.sum, "avg": np.mean}[aggregate]
    for t in range(STEPS):
        expected = np.concatenate([define(out[:, : t + 1, :4], axis=1), out[:, t, 4:]], -1)
        np.testing.assert_allclose(found[:, t].detach().numpy(), expected)


def test_the_maximum_of_negative_values_is_negative():
    a = -1 - torch.rand(2, 5, 3)
    empty, one = torch.zeros(2, 3), torch.zeros(2, 1)
    torch.testing.assert_close(aggregate_over_time(a, empty, one, "max"), a.cummax(1).values)
    assert not aggregate_over_time(a, empty, one + 1, "max").any()  # a zero that was seen


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_the_gradient_reaches_every_step_with_weight_one(aggregate):
    a = torch.randn(2, 6, 3, requires_grad=True)
    past = torch.randn(2, 3, requires_grad=True)
    m = aggregate_over_time(a, past, torch.full((2, 1), 4.0), aggregate)
    grad_a, grad_past = torch.autograd.grad(m[:, 3].sum(), (a, past))
    torch.testing.assert_close(grad_a[:, :4], torch.ones(2, 4, 3))
    assert not grad_a[:, 4:].any()
    torch.testing.assert_close(grad_past, torch.ones(2, 3))


def changed_steps(core, at):
    """Which outputs move when the input of step `at` does, run in blocks of 5."""
    x = inputs(batch=1)
    moved = x.clone()
    moved[:, at] += 1
    before, after = (in_blocks(core, v, 5)[0] for v in (x, moved))
    return (before - after).abs().amax((0, 2)).gt(1e-9).nonzero().flatten().tolist()


@pytest.mark.parametrize(("layers", "reach"), [(1, 4), (2, 7)])
def test_gtrxl_is_causal_and_sees_exactly_its_span(layers, reach):
    core = GTrXLCore(F, SIZE, layers=layers, span=4).double()
    randomise(core)
    assert changed_steps(core, at=2) == list(range(2, 2 + reach))


def test_gtrxl_equals_attention_written_out():
    """One head, one layer, one step at a time: softmax(q k / sqrt(d) + bias[distance]) over the last span steps."""
    core = GTrXLCore(F, SIZE, layers=1, heads=1, span=3).double()
    randomise(core)
    x = inputs(batch=1)
    found, _ = in_blocks(core, x, 5)
    layer = core.layers[0]
    embedded = core.embedding(x)[0]
    normed = layer.attention_norm(embedded)
    keys, values = layer.key_value(normed).chunk(2, -1)
    for t in range(STEPS):
        first = max(0, t - 2)
        bias = layer.distance_bias[0, : t - first + 1].flip(0)
        weights = torch.softmax(keys[first : t + 1] @ layer.query(normed[t]) / SIZE**0.5 + bias, 0)
        attended = layer.attention_out(weights @ values[first : t + 1])
        y = layer.attention_gate(embedded[t], attended.relu())
        expected = layer.forward_gate(y, layer.feed_forward(layer.forward_norm(y)).relu())
        torch.testing.assert_close(found[0, t], expected)


def test_gtrxl_memory_carries_no_gradient():
    core = GTrXLCore(F, SIZE, span=4)
    x = torch.randn(2, STEPS, F, requires_grad=True)
    _, state = core(x[:, :6], core.initial(2))
    m, _ = core(x[:, 6:], state)
    (gradient,) = torch.autograd.grad(m.sum(), x)
    assert not gradient[:, :6].any()
    assert gradient[:, 6:].any()


def test_gtrxl_refuses_heads_that_do_not_divide_its_size():
    with pytest.raises(ValueError, match="8 does not divide into 3"):
        GTrXLCore(F, 8, heads=3)
