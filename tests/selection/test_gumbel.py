"""Selection is exact: the same sets as brute force, drawn with the right probabilities."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.records.opening import open_run, split_of
from memup_cli.selection.choosing import Exploring, LongScores, chooser, stored_scores, uniform_scores
from memup_cli.selection.gumbel import perturb, select, suffix_top
from memup_cli.selection.surprise import choice
from stores.errors import Incomplete
from stores.manifest import Manifest
from stores.schedule import Visit, VisitOrder
from stores.scores import ScoreReader, score_path
from tests.learning.small import SPEC, stored


@given(st.lists(st.integers(-99, 99), min_size=1, max_size=100, unique=True), st.integers(1, 5))
def test_every_suffix_gets_its_k_largest(values, k):
    values = np.array(values, np.float32)
    top = suffix_top(values, k)
    for t in range(len(values)):
        expected = (t + np.argsort(-values[t:]))[:k].tolist()
        found = top.at(np.array(t)).tolist()
        assert found == expected + [-1] * (k - len(expected))


@pytest.mark.parametrize("k", [1, 10])
@pytest.mark.parametrize("length", [50, 700, 20_000])
def test_the_choice_is_the_k_largest_of_what_follows_in_long_and_short_episodes(length, k):
    scores = np.zeros(length, np.float32)
    scores[length // 3 :: length // 8] = 0.1  # here and there, so that no part of the episode has all the best
    top = select(scores, k, 0.02, np.random.default_rng(length))
    values = perturb(scores, 0.02, np.random.default_rng(length))
    for t in np.random.default_rng(0).integers(0, length - k, 100):
        assert top.at(t).tolist() == (t + np.argsort(-values[t:])[:k]).tolist()


def exact_probabilities(weights: np.ndarray, k: int) -> dict[tuple[int, ...], float]:
    """Drawing k without replacement, each time in proportion to the weights of those left."""
    chances: dict[tuple[int, ...], float] = {}
    for order in itertools.permutations(range(len(weights)), k):
        left, chance = weights.sum(), 1.0
        for i in order:
            chance *= weights[i] / left
            left -= weights[i]
        chances[tuple(sorted(order))] = chances.get(tuple(sorted(order)), 0.0) + chance
    return chances


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("t", [0, 3])
def test_the_sets_have_the_right_probabilities(k, t):
    scores, temperature, draws = np.array([0.05, 0.0, 0.02, 0.04, 0.01, 0.03, 0.0]), 0.02, 20_000
    rng = np.random.default_rng(0)
    counts: dict[tuple[int, ...], int] = {}
    brute: dict[tuple[int, ...], int] = {}
    for _ in range(draws):
        chosen = tuple(sorted(select(scores, k, temperature, rng).at(np.array(t)).tolist()))
        counts[chosen] = counts.get(chosen, 0) + 1
        values = perturb(scores, temperature, rng)[t:]
        by_force = tuple(sorted((t + np.argsort(-values)[:k]).tolist()))
        brute[by_force] = brute.get(by_force, 0) + 1
    expected = exact_probabilities(np.exp(scores[t:] / temperature), k)
    for found in (counts, brute):
        assert all(min(chosen) >= t for chosen in found)
        chi_square = sum(
            (found.get(tuple(i + t for i in s), 0) - draws * p) ** 2 / (draws * p) for s, p in expected.items()
        )
        freedom = len(expected) - 1
        # Wilson-Hilferty: five standard deviations above the mean; a wrong distribution is hundreds above
        limit = freedom * (1 - 2 / (9 * freedom) + 5 * (2 / (9 * freedom)) ** 0.5) ** 3
        assert chi_square < limit


def test_a_clear_surprise_is_always_chosen():
    scores = np.zeros(5000)
    scores[4321] = 1.0
    top = select(scores, 1, 0.02, np.random.default_rng(1))
    assert (top.at(np.arange(4322)) == 4321).all()
    assert (top.at(np.arange(4322, 5000)) >= np.arange(4322, 5000)[:, None]).all()
    assert len(top.changes) < 60


def test_a_share_of_visits_explores():
    """Utility says step 3, surprise step 7: one visit in five follows surprise, each with all its targets."""
    scores = [np.eye(10)[step] for step in (3, 7)]
    choose = chooser(lambda _: scores[0], 1, 0.02, 0, Exploring(lambda _: scores[1], 0.2, 0.02, 0.1))
    visits = [Visit(number, None, 0, 0) for number in range(1000)]
    found = np.array([choose(visit).at(np.array(0))[0] for visit in visits])
    assert set(found.tolist()) == {3, 7}
    assert 0.15 < (found == 7).mean() < 0.25
    assert [choose(visit).at(np.array(0))[0] for visit in visits] == found.tolist(), "a pure function of the visit"


@pytest.mark.parametrize("t", [0, 2])
def test_a_reach_makes_near_steps_likelier_by_their_distance(t):
    scores, reach, draws = np.array([0.0, 0.02, 0.0, 0.04, 0.02]), 2.0, 5000
    rng = np.random.default_rng(0)
    chosen = [int(select(scores, 1, 0.02, rng, reach).at(np.array(t))[0]) for _ in range(draws)]
    weights = np.exp(scores[t:] / 0.02 - np.arange(len(scores) - t) / reach)
    expected = weights / weights.sum()
    found = np.bincount(chosen, minlength=len(scores))[t:] / draws
    np.testing.assert_allclose(found, expected, atol=5 * (0.25 / draws) ** 0.5)  # five standard deviations


def test_a_reach_keeps_its_precision_in_a_very_long_episode():
    """The next of many equal surprises is the one that is chosen, at its end as at its start."""
    length, every = 3_000_000, 1000
    scores = np.zeros(length, np.float32)
    scores[every - 1 :: every] = 3
    top = select(scores, 1, 0.02, np.random.default_rng(0), 50.0)
    t = np.array([0, 1500, length - 2500, length - 10])
    assert top.at(t)[:, 0].tolist() == ((t // every + 1) * every - 1).tolist()


def test_where_nothing_useful_is_left_there_is_no_target():
    scores = np.eye(10)[3] + np.eye(10)[5] / 2
    exploring = Exploring(lambda _: np.ones(10), 0.0, 0.02, 0.1)
    top = chooser(lambda _: scores, 2, 0.02, 0, exploring)(Visit(0, None, 0, 0))
    assert top.at(np.arange(10)).tolist() == [[3, 5]] * 4 + [[5, -1]] * 2 + [[-1, -1]] * 4


def test_what_is_no_surprise_may_fill_up_what_is_useful_but_noise_may_not():
    useful, surprise = np.eye(10)[3], np.eye(10)[3] + np.eye(10)[7]
    choose = chooser(lambda _: useful, 2, 0.02, 0, Exploring(lambda _: surprise, 0.0, 0.02, 0.1))
    found = np.concatenate([choose(Visit(number, None, 0, 0)).at(np.arange(10)) for number in range(50)])
    assert (found[::10] == 3).any(1).all()
    assert 7 not in found
    assert set(found[found >= 0].tolist()) == set(range(10)) - {7}


@pytest.mark.parametrize("separates", [True, False])
def test_scores_that_tell_nothing_are_not_even_read(tmp_path, separates):
    """All steps are alike then: nothing is chosen by a detector's scores that do not tell steps from others."""
    train, score = stored(tmp_path), {"metrics": {"separates": separates, "usual_score": 0.1, "spread": 0.5}}
    manifest = Manifest(tmp_path, {"stages": {"score": score}})
    choose = choice(manifest, SPEC, TrainMemoryOptions(), "quantile", 3)
    visit = next(VisitOrder(train, 0))
    if separates:
        with pytest.raises(Incomplete, match="run `memup score` first"):
            choose(visit)
    else:
        expected = chooser(uniform_scores, 1, 1.0, 3)(visit)
        assert choose(visit).at(np.arange(visit.length)).tolist() == expected.at(np.arange(visit.length)).tolist()


def test_the_targets_of_a_long_episode_are_those_of_all_its_scores_in_ram(memup):
    run = memup.folder / "run"
    memup("collect", "tmaze", "--length", 600_000, "--episodes", 4, "--test-episodes", 1, "--run", run)
    memup("score", "--run", run, "--updates", 20)
    shard = split_of(open_run(run), "train").shards[0]
    visit = Visit(0, shard, 1, 0)
    in_ram = ScoreReader(score_path(run, "quantile", shard), shard).episode(shard.rows(1)[0])
    found = stored_scores(run, "quantile")(visit)
    assert isinstance(found, LongScores)
    assert len(found) == len(in_ram) >= 600_000
    assert found.max() == in_ram.max()
    steps = np.random.default_rng(0).integers(0, len(in_ram), (40, 3))
    np.testing.assert_array_equal(found[steps], in_ram[steps])
    chosen = [
        chooser(scores, 3, 0.02, 0, Exploring(scores, 0.0, 0.02, 0.1))(visit)
        for scores in (lambda _: in_ram, stored_scores(run, "quantile"))
    ]
    np.testing.assert_array_equal(chosen[0].changes, chosen[1].changes)
    np.testing.assert_array_equal(chosen[0].best, chosen[1].best)
