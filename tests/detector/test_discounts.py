"""Which gamma is chosen, of what was found with each."""

from pathlib import Path

import pytest

from memup_cli.detector.discounts import GAMMAS, choose_gamma
from memup_cli.errors import UsageProblem
from memup_cli.selection.rules import discount
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from stores.manifest import Manifest


def found(uncertain: bool, explained: float, useful: float = 1.0, significance: float = 9.0) -> dict:
    return {"uncertain": uncertain, "explained": explained, "useful": useful, "significance": significance}


CASES = {
    "the smallest, if the past explains some of it": ([found(True, 0.3), None, None], 0.0),
    "the smallest that is uncertain, if none explains nearly all":
        ([found(True, 0.01), found(True, 0.2), found(True, 0.6)], 0.0),
    "a larger one that explains nearly all": ([found(True, 0.01), found(True, 0.9), None], 0.9),
    "not one that is not uncertain": ([found(False, 0.9), found(True, 0.3), None], 0.9),
    "not by chance": ([found(True, 0.0), found(True, 0.9, significance=0.5), found(True, 0.0)], 0.0),
    "of nothing uncertain, the largest": ([found(False, 0.0)] * 3, 0.99),
}  # fmt: skip


@pytest.mark.parametrize("which", CASES)
def test_the_gamma_that_is_chosen(which):
    tried, expected = CASES[which]
    told = dict(zip(GAMMAS, tried, strict=True))
    chosen, rows = choose_gamma(lambda gamma: told[gamma])  # None would mean stopped: those are not to be tried
    assert chosen == expected
    assert [row["gamma"] for row in rows] == [gamma for gamma, each in told.items() if each is not None]


def test_a_choice_that_was_stopped_is_none():
    assert choose_gamma(lambda gamma: None if gamma else found(True, 0.0)) is None


@pytest.mark.parametrize("scored", [True, False])
def test_the_gamma_of_the_scores_is_taken_unless_another_is_given(scored):
    """Another one is only accepted where no targets are chosen by the scores."""
    entry = {"status": "complete", "config": {"gamma": None}, "metrics": {"gamma": 0.5}}
    manifest, spec = Manifest(Path("run"), {"stages": {"score": entry}}), TMaze(TMazeOptions()).spec
    assert discount(manifest, spec, None, scored) == discount(manifest, spec, 0.5, scored) == 0.5
    if scored:
        with pytest.raises(UsageProblem, match=r"made with gamma 0\.5"):
            discount(manifest, spec, 0.25, scored)
    else:
        assert discount(manifest, spec, 0.25, scored) == 0.25
    assert discount(Manifest(Path("run"), {"stages": {}}), spec, None, False) == spec.gamma
