"""Returns, previous actions and the target tables that feed an update."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memup_cli.errors import BadInput
from memup_cli.predictor.points import prediction_points
from memup_cli.selection.candidates import Candidates, TargetTables, compacted, gather_candidates, query_fields
from memup_cli.selection.choosing import chooser
from memup_cli.selection.gumbel import suffix_top
from memup_cli.streaming.reading import EpisodeReader
from memup_cli.streaming.targets import TARGET, Returns, discounted_returns
from memup_cli.tasks.copying import Copy, CopyOptions
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from memup_cli.tasks.spec import TaskSpec
from stores.schedule import VisitOrder
from tests.learning.small import SPEC, stored


@given(
    st.lists(st.floats(-100, 100), min_size=1, max_size=400),
    st.sampled_from([0.0, 0.3, 0.8, 0.97, 0.999, 1.0]),
)
def test_returns_equal_the_definition(rewards, gamma):
    expected, following = [], 0.0
    for reward in reversed(rewards):
        following = reward + gamma * following
        expected.append(following)
    found = discounted_returns(np.array(rewards, np.float32).astype(np.float64), gamma)
    np.testing.assert_allclose(found, expected[::-1], rtol=1e-5, atol=1e-4)


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=400),
    st.sampled_from([0.0, 0.001, 0.3, 0.8, 0.97, 0.999, 1.0]),
    st.integers(1, 500),
    st.lists(st.integers(0, 400), max_size=5),
)
def test_returns_in_pieces_are_the_same_to_the_last_bit(rewards, gamma, piece, cuts):
    values = np.array(rewards, np.float32)
    returns = Returns(lambda start, stop: values[start:stop], len(values), gamma, piece)
    edges = sorted({0, *(cut for cut in cuts if cut < len(values)), len(values)})
    found = np.concatenate([returns(start, stop) for start, stop in itertools.pairwise(edges)])
    assert found.tobytes() == discounted_returns(values, gamma).tobytes()


def whole(spec: TaskSpec, arrays: dict[str, np.ndarray], gamma: float) -> EpisodeReader:
    """An episode that is there as a whole."""
    length = len(next(iter(arrays.values())))
    return EpisodeReader(spec, gamma, length, lambda name, start, stop: arrays[name][start:stop])


@pytest.mark.parametrize("rewards", [[3e38, 3e38, 1], [1, -3e38, -3e38, 0]])
def test_an_episode_with_one_return_that_is_not_finite_is_refused(rewards):
    """The last ones are: nothing follows them that could be too much."""
    spec = TMaze(TMazeOptions()).spec
    with pytest.raises(BadInput, match="return of an episode is not finite"):
        whole(spec, {"reward": np.array(rewards, np.float32)}, 1.0)(TARGET, 0, len(rewards))


def test_the_target_of_a_class_task_is_its_field():
    task = Copy(CopyOptions(length=30))
    arrays = task.episode(1).arrays
    np.testing.assert_array_equal(whole(task.spec, arrays, 0.5)(TARGET, 0, 30), arrays["target"])


def test_actions_come_one_step_late_and_none_is_no_class():
    spec = TMaze(TMazeOptions()).spec
    actions = np.array([1, 0, 1, 1], np.uint8)
    read = whole(spec, {"action": actions}, 0.0)
    assert read("previous_action", 0, 4).tolist() == [2, 1, 0, 1]
    assert read("previous_action", 2, 4).tolist() == [0, 1]
    assert read("previous_action", 0, 1).tolist() == [2]


@pytest.mark.parametrize("block", [7, 1000])
def test_a_look_up_gives_the_rows_of_the_selected_steps(block):
    spec = TMaze(TMazeOptions()).spec
    rng = np.random.default_rng(0)
    tables = TargetTables(3, 2, spec, query_fields(spec, "point", 1, 1))
    episodes, tops = [], []
    for slot, length in enumerate((40, 90, 300)):
        episode = TMaze(TMazeOptions(length=length)).episode(slot).arrays
        steps = len(episode["reward"])
        top = suffix_top(rng.normal(size=steps).astype(np.float32), 2)
        read = lambda name, a, b, episode=episode: episode[name][a:b]  # noqa: E731
        found = gather_candidates(top, spec, 0.0, "point", 1, block, steps, read)
        tables.put(slot, found)
        episodes.append(episode)
        tops.append(top)
    points = np.array([[0, 39], [17, 89], [3, 299]])
    query, y, exists = tables.look_up(points)
    for slot, episode in enumerate(episodes):
        for p, t in enumerate(points[slot]):
            for k, step in enumerate(tops[slot].at(np.array(t))):
                assert exists[slot, p, k] == (step >= 0)
                if step >= 0:
                    assert step >= t
                    assert y[slot, p, k] == episode["reward"][step]
                    np.testing.assert_array_equal(query["observation"][slot, p, k], episode["observation"][step])
                    assert query["action"][slot, p, k] == episode["action"][step]


def test_many_changes_are_looked_up_too():
    spec = Copy(CopyOptions()).spec
    tables = TargetTables(2, 1, spec, query_fields(spec, "point", 1, 1))
    top = suffix_top(np.arange(1000, 0, -1).astype(np.float32), 1)  # every step is the best of its suffix
    rows = {"input": np.zeros(1000, np.uint8)}
    found = Candidates(top, np.arange(1000), rows, np.arange(1000).astype(np.uint8))
    tables.put(0, found)
    tables.put(1, found)
    _, y, exists = tables.look_up(np.array([[5], [200]]))
    assert exists.all()
    assert y[:, 0, 0].tolist() == [5, 200]


def test_a_slot_finds_nothing_of_its_episode_before():
    """That one had more changes: a thousand, and the next only every tenth of its steps."""
    tables = TargetTables(1, 1, SPEC, query_fields(SPEC, "point", 1, 1))
    for length, every in ((1000, 1), (3000, 10)):
        falling = np.arange(length, 0, -1, dtype=np.float32)
        top, steps = compacted(suffix_top(np.where(np.arange(1, length + 1) % every, -np.inf, falling), 1))
        assert len(steps) == length // every
        y = steps.astype(np.float32)
        tables.put(0, Candidates(top, steps, {"q": -y}, y))
    query, y, exists = tables.look_up(np.array([[0, 995, 2500, 2999]]))
    assert exists.all()
    assert y[0, :, 0].tolist() == [9, 999, 2509, 2999]
    np.testing.assert_array_equal(query["q"], -y)


def test_tables_of_two_processes_find_the_same_in_one():
    """One has an episode with eight targets, the other one with three hundred: there is more room for both."""
    fields, parts = query_fields(SPEC, "point", 1, 1), []
    for wanted in (range(0, 80, 10), range(300)):
        values = np.full(wanted[-1] + 1, -np.inf, np.float32)
        values[wanted] = np.arange(len(wanted), 0, -1)
        top, steps = compacted(suffix_top(values, 1))
        assert steps.tolist() == list(wanted)
        y = steps.astype(np.float32)
        parts.append(TargetTables(1, 1, SPEC, fields))
        parts[-1].put(0, Candidates(top, steps, {"q": -y}, y))
    tables = TargetTables(2, 1, SPEC, fields)
    tables.load(TargetTables.merged([part.state() for part in parts]))
    query, y, exists = tables.look_up(np.array([[0, 65, 70], [0, 65, 299]]))
    assert exists.all()
    assert y[..., 0].tolist() == [[0, 70, 70], [0, 65, 299]]
    np.testing.assert_array_equal(query["q"], -y)


def test_a_rollout_is_asked_at_the_first_target_in_it_and_at_its_end_if_there_is_none():
    """Of ten steps 3 and 8 are targets: also of the rollout that begins there, and not of one that begins behind."""
    tables = TargetTables(1, 1, SPEC, query_fields(SPEC, "point", 1, 1))
    values = np.full(10, -np.inf, np.float32)
    values[[3, 8]] = 2, 1
    top, steps = compacted(suffix_top(values, 1))
    assert steps.tolist() == [3, 8]
    y = steps.astype(np.float32)
    tables.put(0, Candidates(top, steps, {"q": -y}, y))
    expected = {0: 2, 1: 2, 2: 1, 3: 0, 4: 2, 7: 1, 8: 0, 9: 0}
    found = {t: int(tables.arrivals(np.array([t]), np.array([min(3, 10 - t)]))[0]) for t in expected}
    assert found == expected


def test_prediction_points_stay_within_the_rollout():
    valid = np.array([20, 3, 1])
    for update in range(50):
        points = prediction_points(
            valid, 20, every=5, random_points=2, key=(0, update), own=np.arange(len(valid)), total=len(valid)
        )
        assert points.shape == (3, 6)
        assert (points >= 0).all()
        assert (points < valid[:, None]).all()
        assert points[:, 0].tolist() == [19, 2, 0]
        assert points[0, 3:].tolist() == [4, 9, 14]
    assert prediction_points(np.array([1, 1]), 1, 0, 3, (0, 0), np.arange(2), 2).shape == (2, 1)


def test_near_targets_are_near_and_far_alike(tmp_path):
    """From the first of 1,000 equal steps: a third of the reaches are below ten steps, whatever is drawn by chance."""
    made = {name: np.zeros(1000, np.float32) for name in ("x", "q", "y")}
    visits = VisitOrder(stored(tmp_path, [made]), 0)
    choose = chooser(lambda visit: np.zeros(visit.length, np.float32), 1, 0.02, 0, near=True)
    drawn = np.array([choose(next(visits)).at(np.array([0]))[0, 0] for _ in range(400)])
    assert 0.2 < (drawn < 10).mean() < 0.6
    assert (drawn > 100).mean() > 0.1
