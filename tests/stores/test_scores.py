"""Scores of a shard: written in pieces of any size, and not there before they are published."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stores.layout import LENGTH, START, Field, Layout
from stores.reader import Shard
from stores.scores import ScoreReader, ScoreWriter, missing_groups
from tests.cli import files_of
from tests.stores.test_roundtrip import make_episodes, write

LAYOUT = Layout((Field("x", "int8"),), 8, 2)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """Two groups: one that fills its chunks, and one that does not."""
    write(tmp_path / "0000.zarr", LAYOUT, make_episodes(LAYOUT.fields, [30, 10, 13], 0))
    return Shard(tmp_path / "0000.zarr")


def steps_of(shard: Shard, group: int) -> int:
    return int(shard.rows(group)[:, LENGTH].sum())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 40), max_size=6))
def test_pieces_of_any_size_give_the_same_bytes(shard, tmp_path, cuts):
    made = []
    for name, where in (("whole", []), ("pieces", sorted(cuts))):
        writer = ScoreWriter(tmp_path / name, shard, {"detector": "d"})
        for group in shard.available_groups():
            scores = np.linspace(group, group + 1, steps_of(shard, group), dtype=np.float32)
            writer.add(group, np.split(scores, where))
        writer.publish()
        made.append(files_of(tmp_path / name))
    assert made[0] == made[1]
    reader = ScoreReader(tmp_path / "pieces", shard)
    start = int(shard.rows(1)[0, START])
    np.testing.assert_array_equal(reader.read(start, start + 13), np.linspace(1, 2, 13, dtype=np.float32))


def test_a_group_that_fails_half_way_is_missing(shard, tmp_path):
    def broken():
        yield np.ones(20, np.float32)
        raise ValueError("the rest cannot be scored")

    writer = ScoreWriter(tmp_path / "scores", shard, {"detector": "d"})
    writer.add(1, [np.ones(steps_of(shard, 1), np.float32)])
    writer.publish()
    with pytest.raises(ValueError, match="the rest"):
        writer.add(0, broken())
    writer.discard()
    assert missing_groups(tmp_path / "scores", shard) == [0]
    assert ScoreWriter(tmp_path / "scores", shard, {"detector": "d"}).missing_groups() == [0]
    assert not list((tmp_path / "scores").rglob("*.partial"))
