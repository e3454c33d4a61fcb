"""Averages of weights."""

import copy

import torch

from memup_cli.compute.average import move_towards


def test_an_average_follows_and_remembers_no_operations():
    model = torch.nn.Linear(3, 2)
    average = copy.deepcopy(model).requires_grad_(False)
    start = average.weight.clone()
    with torch.no_grad():
        model.weight.add_(1)
    for _ in range(3):
        move_towards(average, model, 0.5)
    torch.testing.assert_close(average.weight, start + 0.875)
    assert not any(p.requires_grad for p in average.parameters())  # else every update would stay in memory
