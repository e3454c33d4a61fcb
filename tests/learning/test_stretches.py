"""Of each stretch one rollout is trained: with the gradient of all of them, on average."""

import numpy as np
import pytest
import torch

from memup_cli.learning.rarity import Rarity
from memup_cli.learning.stretches import Walked, draw, one_of_a_stretch
from memup_cli.learning.update import WEIGHT, next_batch, rollout_loss
from memup_cli.learning.weights import build_model
from memup_cli.memory.cells import boundaries
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.selection.candidates import TargetTables, gather_candidates, query_fields
from memup_cli.selection.choosing import chooser, preparing, stored_scores
from memup_cli.streaming.slabs import open_slab

ROLLOUT, STRETCH, BATCH = 5, 8, 16


def test_the_weights_make_up_for_the_chances():
    priority = np.array([[1.0, 0.02, 0.5, 0.0], [0.02, 0.02, 0.02, 0.02]])
    total = np.zeros((2, 4))
    for update in range(4000):
        chosen, weight = draw(priority, (3, update), np.arange(2), 2)
        total[[0, 1], chosen] += weight
    np.testing.assert_allclose(total / 4000, [[0.25, 0.25, 0.25, 0], [0.25] * 4], atol=0.06)


def test_which_rollout_is_drawn_does_not_depend_on_how_slots_are_shared_out():
    priority = np.random.default_rng(0).random((6, 9))
    whole, _ = draw(priority, (1, 2), np.arange(6), 6)
    for rank in range(2):
        part, _ = draw(priority[rank::2], (1, 2), np.arange(rank, 6, 2), 6)
        np.testing.assert_array_equal(part, whole[rank::2])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_states_at_boundaries_are_those_of_walking_step_by_step(scored, cell):
    manifest = open_run(scored)
    spec = spec_of(manifest)
    model = build_model(spec, TrainMemoryOptions(cell=cell, hidden=8).model_dump(), 40)
    x = torch.randn(3, 12, model.inputs.size)
    with torch.no_grad():
        before, after = boundaries(model.memory, x, model.memory.initial(3), 4)
        _, state = model.memory(x[:, :8], model.memory.initial(3))
        _, end = model.memory(x, model.memory.initial(3))
    for parts, expected, last, whole in zip(before, state, after, end, strict=True):
        assert not parts[:, 0].any()
        torch.testing.assert_close(parts[:, 2], expected)
        torch.testing.assert_close(last, whole)


@pytest.mark.parametrize("priority", ["novelty", "change"])
def test_the_expected_gradient_is_that_of_all_rollouts(scored, priority):
    """Weights and states are held fixed; each draw is one update's gradient."""
    options = TrainMemoryOptions(
        rollout=ROLLOUT, stretch=STRETCH, batch=BATCH, hidden=8, random_points=0, rollout_sampling="priority"
    )
    manifest = open_run(scored)
    spec, train = spec_of(manifest), split_of(manifest, "train")
    torch.manual_seed(0)
    model = build_model(spec, options.model_dump(), 40)
    tables = TargetTables(BATCH, options.targets, spec, query_fields(spec, "point", 1, 1))
    names = tuple(f.name for f in spec.fields if f.name in spec.memory_input)
    rarity = Rarity(train, spec, ROLLOUT) if priority == "novelty" else None
    state = model.memory.initial(BATCH)

    def gradient(walked: Walked, begin) -> np.ndarray:
        batch = next_batch(walked, slab, tables, options, 0, 0)
        if walked.weight is not None:
            batch[WEIGHT] = walked.weight
        loss, _ = rollout_loss(model, {n: torch.from_numpy(np.ascontiguousarray(v)) for n, v in batch.items()}, begin)
        found = torch.autograd.grad(loss, list(model.parameters()))
        return torch.cat([g.flatten() for g in found]).numpy()

    with open_slab(
        train,
        spec,
        batch=BATCH,
        rollout=options.stride,
        gamma=0.0,
        seed=0,
        update=0,
        memory=64 << 20,
        with_targets=False,
        prepare=preparing(
            chooser(stored_scores(scored, "quantile"), 1, options.temperature, 0),
            lambda top, *where: gather_candidates(top, spec, 0.0, "point", 1, *where),
        ),
        on_fresh=tables.put,
    ) as slab:
        drawn, every = [], []
        for update in range(600):
            walked, begin, _ = one_of_a_stretch(slab, model, state, options, rarity, names, (7, update))
            drawn.append(gradient(walked, begin))
        # All rollouts, one after the other: those that exist count the same.
        window, valid = slab.window(), slab.valid()
        with torch.no_grad():
            inputs = {name: torch.from_numpy(window[name]) for name in model.inputs.names}
            begins, _ = boundaries(model.memory, model.inputs(inputs), state, ROLLOUT)
        for i in range(STRETCH):
            steps = np.minimum(i * ROLLOUT + np.arange(ROLLOUT), valid[:, None] - 1)
            arrays = {n: v[np.arange(BATCH)[:, None], steps] for n, v in window.items()}
            exists = (valid > i * ROLLOUT).astype(np.float32)
            walked = Walked(
                arrays,
                np.minimum(slab.offset + i * ROLLOUT, slab.length - 1),
                np.clip(valid - i * ROLLOUT, 1, ROLLOUT),
                np.zeros(BATCH, bool),
                exists,
            )
            every.append(gradient(walked, tuple(parts[:, i] for parts in begins)))
    exact = np.mean(every, axis=0)
    found = np.mean(drawn, axis=0)
    noise = np.std(drawn, axis=0) / len(drawn) ** 0.5
    assert np.linalg.norm(found - exact) < 3 * np.linalg.norm(noise)
    assert np.linalg.norm(found - exact) < 0.2 * np.linalg.norm(exact)
