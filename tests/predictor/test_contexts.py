"""Contexts of target steps: the same from tables, along an episode, and in evaluation."""

import numpy as np
import pytest
import torch

from memup_cli.learning.weights import build_model
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.predictor.window import SEEN
from memup_cli.selection.candidates import gather_candidates
from memup_cli.selection.gumbel import suffix_top
from memup_cli.streaming.rows import distinct
from memup_cli.tasks.adding import Add, AddOptions
from memup_cli.tasks.copying import Copy, CopyOptions


def model_for(spec, **options):
    torch.manual_seed(0)
    return build_model(spec, TrainMemoryOptions(hidden=8, context_hidden=8, **options).model_dump(), 50)


@pytest.mark.parametrize("block", [7, 1000])
def test_windows_of_targets_are_the_steps_up_to_them(block):
    task = Add(AddOptions(length=60))
    episode = task.episode(3).arrays
    top = suffix_top(np.random.default_rng(0).normal(size=60).astype(np.float32), 3)
    found = gather_candidates(top, task.spec, 0.0, "window", 9, block, 60, lambda name, a, b: episode[name][a:b])
    assert {0, 59} & set(found.steps.tolist())
    for place, step in enumerate(found.steps):
        seen = found.query[SEEN][place]
        assert seen == min(9, step + 1)
        np.testing.assert_array_equal(
            found.query["input"][place, 9 - seen :], episode["input"][step + 1 - seen : step + 1]
        )
        assert found.y[place] == episode["target"][step]


def test_padding_does_not_change_a_window():
    spec = Copy(CopyOptions()).spec
    model = model_for(spec, context="window", window=6)
    one = {"input": torch.tensor([[0, 0, 0, 4, 5, 6]]), SEEN: torch.tensor([3])}
    other = {"input": torch.tensor([[9, 8, 7, 4, 5, 6]]), SEEN: torch.tensor([3])}
    torch.testing.assert_close(model.context(one), model.context(other))
    whole = {"input": other["input"], SEEN: torch.tensor([6])}
    assert not torch.allclose(model.context(whole), model.context(other))


FROM_THE_START = {
    "carried": (Copy(CopyOptions(length=40)), {"context": "carried", "layers": 2, "embedding": 5}),
    "totals of classes": (Copy(CopyOptions(length=40)), {"context": "totals"}),
    "totals of numbers": (Add(AddOptions(length=40)), {"context": "totals"}),
}


@pytest.mark.parametrize("kind", FROM_THE_START)
def test_a_context_from_the_start_goes_on_where_it_was(kind):
    task, options = FROM_THE_START[kind]
    model = model_for(task.spec, **options)
    episode = task.episode(1).arrays["input"]
    steps = torch.from_numpy(episode)[None]
    whole, _ = model.context.along({"input": steps}, model.context.initial(1))
    state, parts = model.context.initial(1), []
    for first in range(0, 40, 7):
        c, state = model.context.along({"input": steps[:, first : first + 7]}, state)
        parts.append(c)
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    if options["context"] == "totals":
        rows = np.eye(10)[episode] if episode.ndim == 1 else episode
        np.testing.assert_allclose(state[0][0].detach().numpy(), rows.sum(0), rtol=1e-5)


def test_equal_rows_are_found_once():
    rng = np.random.default_rng(0)
    query = {"a": rng.integers(0, 2, (4, 5, 3)).astype(np.uint8), "b": rng.integers(0, 2, (4, 5)).astype(np.float32)}
    rows, which = distinct(query, 2)
    assert len(rows["a"]) <= 16
    for name, values in query.items():
        np.testing.assert_array_equal(rows[name][which].reshape(values.shape), values)


@pytest.mark.parametrize("block", [7, 1000])
def test_totals_of_targets_are_those_along_the_episode(block):
    task = Add(AddOptions(length=60))
    episode = task.episode(3).arrays
    top = suffix_top(np.random.default_rng(0).normal(size=60).astype(np.float32), 3)
    found = gather_candidates(top, task.spec, 0.0, "totals", 9, block, 60, lambda name, a, b: episode[name][a:b])
    model = model_for(task.spec, context="totals")
    whole, _ = model.context.along({"input": torch.from_numpy(episode["input"])[None]}, model.context.initial(1))
    at = model.context({name: torch.from_numpy(values) for name, values in found.query.items()})
    torch.testing.assert_close(at, whole[0, torch.from_numpy(found.steps)])
