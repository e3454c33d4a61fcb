"""Memory cells: a call of many steps is many calls of one step, with and without gradients, and agents act the same."""

import pytest
import torch

from memup_cli.memory.cell_checks import wrong_cell
from memup_cli.memory.cells import Shape, build_cell
from memup_cli.registries import CELLS

SHAPES = [Shape(6), Shape(6, layers=2, embedding=4), Shape(6, layers=3, dropout=0.5, input_scale=2.0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["lstm", "gru", "mingru"])
@pytest.mark.parametrize("length", [7, 90])
def test_blocks_sweeps_and_single_steps_agree(name, shape, length):
    torch.manual_seed(0)
    cell = build_cell(name, 3, shape, 50).double().eval()
    x = torch.randn(2, length, 3, dtype=torch.float64)
    whole, after = cell(x, cell.initial(2))
    assert whole.requires_grad
    with torch.no_grad():
        swept, state = cell(x, cell.initial(2))
        first, middle = cell(x[:, :5], cell.initial(2))
        second, end = cell(x[:, 5:], middle)
        step, acting, seen = cell.prepared(), cell.initial(2), []
        for t in range(length):
            m, acting = step(x[:, t], acting)
            seen.append(m)
    for found in (swept, torch.cat([first, second], 1), torch.stack(seen, 1)):
        torch.testing.assert_close(found, whole.detach())
    for found in (state, end, acting):
        torch.testing.assert_close(found, tuple(part.detach() for part in after))


def test_a_long_sweep_in_pieces_is_the_recurrence():
    """More steps than are computed at a time, in float32."""
    torch.manual_seed(0)
    cell = build_cell("mingru", 3, Shape(512), 1000)
    x = torch.randn(1, 1100, 3)
    with torch.no_grad():
        swept, _ = cell(x, cell.initial(1))
        step, state, seen = cell.prepared(), cell.initial(1), []
        for t in range(x.shape[1]):
            m, state = step(x[:, t], state)
            seen.append(m)
    torch.testing.assert_close(swept, torch.stack(seen, 1), atol=1e-5, rtol=1e-4)


def test_the_units_of_a_linear_memory_keep_for_one_step_up_to_the_horizon():
    torch.manual_seed(0)
    cell = build_cell("mingru", 3, Shape(512), 1000)
    with torch.no_grad():
        h, _ = cell(torch.zeros(1, 1000, 3), (torch.full((1, 512), 100.0),))
    kept = (h[0, :, :] > 50).sum(0)  # steps until half is gone
    assert kept.min() < 50
    assert 300 < kept.max() < 1000


def test_novelty_gates_do_not_pile_up_the_usual_input_and_still_write_another():
    """After 5,000 blanks an LSTM that keeps for 50,000 steps holds what it held; an ordinary one holds blanks."""
    torch.manual_seed(0)
    blank, digit = torch.eye(4)[:2]
    share = torch.tensor([0.999, 0.001, 0.0, 0.0])  # of the steps
    piled, written = {}, {}
    for closed in (False, True):
        cell = build_cell("lstm", 4, Shape(64, standard=closed, closed=closed), 50_000)
        if closed:
            cell.standard.tell(share, (share * (1 - share)).sqrt(), torch.full((4,), 1000.0))
        with torch.no_grad():
            _, before = cell(digit.expand(1, 5, 4), cell.initial(1))
            _, after = cell(blank.expand(1, 5000, 4), before)
        written[closed] = float(before[1].norm())
        piled[closed] = float((after[1] - before[1]).norm())
    assert piled[False] > 20 * written[False], "this is what they are for"
    assert piled[True] < written[True]
    assert written[True] > written[False]


@pytest.mark.parametrize("name", CELLS.built_in)
def test_built_in_cells_are_what_a_cell_is(name):
    assert wrong_cell(CELLS.load(name)) is None
