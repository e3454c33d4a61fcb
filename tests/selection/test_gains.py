"""The running gain: kinds of events that the memory explains are told from noise, and preferred."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from memup_cli.memory.encoders import FieldEncoder
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.predictor.predictor import prediction_losses
from memup_cli.selection.candidates import Candidates, TargetTables, compacted, gather_candidates, query_fields
from memup_cli.selection.gains import SPARE, WARM_UP, Gains
from memup_cli.selection.gumbel import suffix_top
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions

SPEC = TMaze(TMazeOptions()).spec
QUERY = FieldEncoder(SPEC, SPEC.query)
EXPLAINED, NOISE = 1, 2  # kinds of events: what the maze shows at its junction, and at a distractor
MODEL = SimpleNamespace(
    kind="return",
    unit=1.0,
    usual=0.0,
    predict=lambda m, c: c[..., 0],
    losses=lambda p, y: prediction_losses("return", p, y),
)


def rows(kinds: np.ndarray, context: str) -> dict[str, np.ndarray]:
    fields = query_fields(SPEC, context, 3, 1)
    found = {f.name: np.zeros((*kinds.shape, *f.shape), f.numpy) for f in fields}
    found["observation"][..., 1] = kinds if context == "point" else kinds[..., None]
    return found


def learned(options: TrainMemoryOptions, updates: int = WARM_UP) -> Gains:
    """From a memory that knows y of one kind, and for the other guesses the mean."""
    torch.manual_seed(0)  # otherwise its weights depend on the tests that ran before
    gains, rng = Gains(SPEC, options, 0, torch.device("cpu"), QUERY), np.random.default_rng(0)
    for _ in range(updates):
        kinds = rng.choice([EXPLAINED, NOISE], (32, 1, options.targets))
        y = rng.choice([-4, 4], kinds.shape).astype(np.float32)
        known = torch.from_numpy(np.where(kinds == EXPLAINED, y, 0)).unsqueeze(-1)
        batch = {f"query.{name}": values for name, values in rows(kinds, options.context).items()}
        if options.context == "window":
            batch = {name: values.reshape(-1, *values.shape[3:]) for name, values in batch.items()}
            batch["which"] = np.arange(kinds.size)
        batch |= {"y": y, "exists": np.ones(kinds.shape, bool)}
        gains.learn(MODEL, torch.zeros(32, 1, 1, 1), known, {n: torch.from_numpy(v) for n, v in batch.items()})
    return gains


def an_episode(targets: int, context: str = "point") -> Candidates:
    """Every other step is noise; stored scores do not tell which."""
    kinds = np.array([EXPLAINED, NOISE] * 20)
    top = suffix_top(np.random.default_rng(1).normal(size=len(kinds)).astype(np.float32), SPARE * targets)
    top, steps = compacted(top)
    query = {name: values[steps] for name, values in rows(kinds, context).items()}
    return Candidates(top, steps, query, np.arange(len(kinds), dtype=np.float32)[steps])


@pytest.mark.parametrize("context", ["point", "window"])
def test_what_the_memory_explains_is_ranked_before_noise(context):
    found = an_episode(2, context)
    best = learned(TrainMemoryOptions(context=context, window=3, targets=2)).rank(found, np.random.default_rng(2))
    np.testing.assert_array_equal(np.sort(best, 1), np.sort(found.top.best, 1))
    explained = np.append(found.steps % 2 == 0, False)[best]
    assert explained[:, 0].sum() >= 0.9 * explained.any(1).sum()
    assert explained[:, 0].sum() > np.append(found.steps % 2 == 0, False)[found.top.best][:, 0].sum()


@pytest.mark.parametrize("targets", [1, 3])
def test_without_a_gain_the_targets_are_those_of_the_stored_scores(targets):
    """The first K of the candidates: what selecting K would have given, at every point."""
    gains = Gains(SPEC, TrainMemoryOptions(targets=targets), 0, torch.device("cpu"), QUERY)
    values = np.random.default_rng(3).normal(size=60).astype(np.float32)
    read = lambda name, a, b: {"observation": observation, "action": action, "reward": reward}[name][a:b]  # noqa: E731
    observation, reward = np.random.default_rng(4).normal(size=(60, 3)).astype(np.float32), values
    action = np.zeros(60, np.uint8)
    tables = [TargetTables(1, targets, SPEC, query_fields(SPEC, "point", 1, 1)) for _ in range(2)]
    few, many = (
        gather_candidates(suffix_top(values, k), SPEC, 0.0, "point", 1, 60, 60, read)
        for k in (targets, SPARE * targets)
    )
    narrowed = gains.narrowed(many)
    np.testing.assert_array_equal(narrowed.steps, few.steps)
    for table, found in zip(tables, (few, narrowed), strict=True):
        table.put(0, found)
    one, other = (table.look_up(np.arange(60)[None]) for table in tables)
    np.testing.assert_array_equal(one[1][one[2]], other[1][other[2]])
    np.testing.assert_array_equal(one[2], other[2])


def test_some_visits_go_by_the_gain_and_a_restored_one_goes_on_the_same():
    options = TrainMemoryOptions(select="utility")
    gains, found = learned(options), an_episode(1)
    tables = [TargetTables(1, 1, SPEC, query_fields(SPEC, "point", 1, 1)) for _ in range(2)]
    for _ in range(3):
        tables[0].put(0, gains.narrowed(found))
    restored = Gains(SPEC, options, 0, torch.device("cpu"), QUERY)
    restored.load(gains.state(tables[0]), tables[1], lambda values: values)
    drawn = [g.narrowed(found).steps.tolist() for _ in range(20) for g in (gains, restored)]
    assert drawn[::2] == drawn[1::2]
    as_scored = Gains(SPEC, options, 0, torch.device("cpu"), QUERY).narrowed(found).steps.tolist()
    assert 3 < drawn[::2].count(as_scored) < 17, "the others go by the stored scores"
    assert all(np.array_equal(a, b) for a, b in zip(*(t.look_up(np.zeros((1, 1)))[1:] for t in tables), strict=True))
