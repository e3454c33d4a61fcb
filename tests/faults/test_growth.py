"""A run that gets more episodes, disturbed: what it had stays readable, and it ends as one begun with as many."""

import random
import shutil
from pathlib import Path

import pytest

from stores.errors import Incomplete
from stores.integrity import Check, check_shard
from stores.manifest import Manifest
from stores.reader import Shard, Trajectories
from tests.cli import files_of
from tests.faults.stages import fresh, words
from tests.faults.test_sweeps import EVERYWHERE, FAULTS, leftovers
from tests.processes import Forks

TMAZE = words("collect tmaze --length 200000 --commit-every 0 --run run --workers 1")  # five to a commit group
BEFORE, AFTER = words("--episodes 7 --test-episodes 1"), words("--episodes 12 --test-episodes 3")
SPLITS = {"train": (7, 12), "test": (1, 3)}


@pytest.fixture(scope="module")
def small(places, forks) -> Path:
    return begun(places, forks, "small", BEFORE)


@pytest.fixture(scope="module")
def expected(places, forks) -> dict[str, bytes]:
    return files_of(begun(places, forks, "large", AFTER) / "run" / "trajectories")


def begun(places: Path, forks: Forks, name: str, sizes: list[str]) -> Path:
    (places / name).mkdir()
    assert forks(places / name, TMAZE + sizes).code == 0
    return places / name


def assert_readable(run: Path) -> None:
    """All that there was before, or more, and nobody takes it for complete that is not."""
    for split, counts in SPLITS.items():
        path = run / "trajectories" / split / "0000.zarr"
        assert check_shard(path, Check(), lambda episodes: None) == []
        assert Shard(path).state.committed >= counts[0]
        try:
            assert len(Trajectories(path.parent, 1)) in counts
        except Incomplete:
            assert Shard(path).state.committed < counts[1]


def sweep(forks: Forks, places: Path, small: Path, expected: dict[str, bytes], action: str, points: list[int]) -> None:
    for at in points:
        folder = fresh(places, small)
        done = forks.with_fault(folder, TMAZE + AFTER, at, action)
        assert done.code in FAULTS[action], f"{action} at {at}: exit {done.code} {done.err}"
        assert "Traceback" not in done.err
        assert_readable(folder / "run")
        again = forks(folder, TMAZE + AFTER)
        assert again.code == 0, f"{action} at {at}: {again.err}"
        found = files_of(folder / "run" / "trajectories")
        assert {n: d for n, d in found.items() if not n.endswith("lease.json")} == expected, f"{action} at {at}"
        assert Manifest.load(folder / "run").stages["collect"]["status"] == "complete"
        assert leftovers(folder / "run") == []
        shutil.rmtree(folder)


@pytest.mark.parametrize("action", FAULTS)
def test_a_fault_at_some_call_of_growing_loses_nothing(forks, places, small, expected, tally, action):
    calls = forks.count_calls(fresh(places, small), TMAZE + AFTER)
    points = random.Random(action).sample(range(1, calls + 1), 3)
    sweep(forks, places, small, expected, action, points)
    tally("collect", points=len(points), faults=len(points))


@pytest.mark.sweep
@pytest.mark.parametrize("action", EVERYWHERE)
def test_a_fault_at_every_call_of_growing_loses_nothing(forks, places, small, expected, tally, action):
    points = list(range(1, forks.count_calls(fresh(places, small), TMAZE + AFTER) + 1))
    sweep(forks, places, small, expected, action, points)
    tally("collect", points=len(points), faults=len(points))
