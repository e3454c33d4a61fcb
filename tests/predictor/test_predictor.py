"""Predictors of numbers that learn how sure they can be."""

import torch

from memup_cli.learning.weights import build_model
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.tasks.adding import Add, AddOptions


def test_a_learned_spread_tells_what_cannot_be_known_from_what_can():
    """Targets are 1 or -1; which, the state tells exactly in one half of the cases and not at all in the other."""
    torch.manual_seed(0)
    options = TrainMemoryOptions(hidden=2, context="point", predictor_hidden=32, spread="learned")
    model = build_model(Add(AddOptions(length=10)).spec, options.model_dump(), 10)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    known = torch.arange(256) % 2
    c = torch.zeros(256, model.context.size)
    for _ in range(600):
        y = torch.randint(2, (256,)) * 2.0 - 1
        loss = model.training_losses(torch.stack([known, known * y], 1), c, y).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    states = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, -1.0]])
    torch.testing.assert_close(model.predict(states, c[:3]), torch.tensor([0.0, 1.0, -1.0]), atol=0.2, rtol=0)
    spread = model.predictor(states, c[:3])[:, 1].exp().sqrt()
    assert 0.7 < spread[0] < 1.4
    assert spread[1:].max() < 0.2
