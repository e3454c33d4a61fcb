"""Units of numbers: those of an extraordinary size become ordinary, the others stay as they are."""

import torch

from memup_cli.memory.encoders import row_moments
from memup_cli.memory.standard import Units


def told(rows: torch.Tensor) -> Units:
    found = row_moments(rows.numpy())
    units = Units(rows.shape[1])
    units.tell(*(torch.tensor(values, dtype=torch.float64) for values in found.values()))
    return units


def test_numbers_of_an_extraordinary_size_are_seen_as_how_far_they_go():
    flag = (torch.arange(800) == 5).float()
    codes = torch.arange(800) % 21
    noise = torch.randn(800, generator=torch.Generator().manual_seed(0))
    steady = torch.full((800,), 3.0)
    ordinary = torch.stack([flag, codes, noise, 40 * flag - 40, steady], 1)
    assert torch.equal(told(ordinary)(ordinary), ordinary)
    strange = torch.stack([1e6 * flag, 1e-4 * noise, 1e5 + noise, 1e6 + 0 * noise], 1)
    seen = told(strange)(strange)
    assert abs(float(seen[5, 0]) - 1) < 0.01
    assert abs(float(seen[4, 0])) < 0.01
    assert 0.3 < float(seen[:, 1].std()) < 1
    assert 0.3 < float(seen[:, 2].std()) < 1
    assert torch.equal(seen[:, 3], torch.zeros(800)), "what never varied says nothing"
    assert torch.equal(told(strange).first(2)(strange[:, :2]), seen[:, :2])
