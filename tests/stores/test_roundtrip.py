"""What is written is what is read, through the direct reader, the slab and plain zarr."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stores.errors import DamagedData, Incomplete
from stores.groups import Episode, GroupStream, encode_group
from stores.layout import MAX_GROUP_EPISODES, Field, Identity, Layout, plan
from stores.reader import DirectChunks, Shard, Trajectories, ZarrChunks
from stores.writer import ShardWriter

DTYPES = ["int8", "uint8", "int16", "uint16", "int32", "int64", "float32", "float64", "bool"]


def make_episodes(fields: tuple[Field, ...], lengths: list[int], seed: int) -> list[Episode]:
    rng = np.random.default_rng(seed)
    return [
        Episode(
            {f.name: rng.integers(0, 2, (n, *f.shape)).astype(f.dtype) for f in fields}, seed=i, terminated=i % 2 == 0
        )
        for i, n in enumerate(lengths)
    ]


def write(path: Path, layout: Layout, episodes: list[Episode], commit_each: bool = False) -> None:
    identity = Identity("test", {}, 0, "train", 0, 1, 0, len(episodes), layout)
    with ShardWriter(path, identity) as writer:
        for group in writer.missing_groups():
            first, stop = layout.group_bounds(group, len(episodes))
            writer.add(group, encode_group(layout, episodes[first:stop]))
            if commit_each:
                writer.commit()
        writer.commit()


fields_strategy = st.lists(
    st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(1, 4), max_size=3).map(tuple)), min_size=1, max_size=3
).map(lambda kinds: tuple(Field(f"f{i}", dtype, shape) for i, (dtype, shape) in enumerate(kinds)))


def in_blocks(episode: Episode, size: int):
    length = len(next(iter(episode.arrays.values())))
    for first in range(0, length, size):
        yield {name: values[first : first + size] for name, values in episode.arrays.items()}
    return episode.terminated


@settings(max_examples=40, deadline=None)
@given(
    fields=fields_strategy,
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    chunk=st.integers(1, 9).map(lambda n: n * 8),
    block=st.integers(1, 100),
)
def test_a_group_that_is_streamed_has_the_same_bytes(fields, lengths, chunk, block):
    layout = Layout(fields, chunk, len(lengths))
    episodes = make_episodes(fields, lengths, seed=1)
    stream = GroupStream(layout)
    for episode in episodes:
        stream.add(episode.seed, in_blocks(episode, block))
    streamed, whole = stream.finish(), encode_group(layout, episodes)
    np.testing.assert_array_equal(streamed.rows, whole.rows)
    assert (streamed.chunks, streamed.steps) == (whole.chunks, whole.steps)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    fields=fields_strategy,
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=12),
    chunk=st.integers(1, 40),
    group=st.integers(1, 5),
    commit_each=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_ragged_episodes_survive_the_round_trip(fields, lengths, chunk, group, commit_each, seed):
    layout = Layout(fields, chunk, group)
    episodes = make_episodes(fields, lengths, seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "0000.zarr", layout, episodes, commit_each)
        trajectories = Trajectories(folder, 1)
        assert trajectories.lengths.tolist() == lengths
        plain = zarr.open_group(str(folder / "0000.zarr"), mode="r", use_consolidated=False)
        rows = plain["episodes/row"][:]
        for i, (read, written) in enumerate(zip(trajectories, episodes, strict=True)):
            for field in fields:
                np.testing.assert_array_equal(read[field.name], written.arrays[field.name])
                np.testing.assert_array_equal(trajectories.episode(i)[field.name], written.arrays[field.name])
                by_zarr = plain[f"steps/{field.name}"][rows[i, 0] : rows[i, 0] + rows[i, 1]]
                np.testing.assert_array_equal(by_zarr, written.arrays[field.name])
                assert by_zarr.dtype == np.dtype(field.dtype)


@settings(max_examples=200, deadline=None)
@given(
    fields=fields_strategy,
    maximum=st.integers(1, 3_000_000) | st.none(),
    typical=st.integers(1, 10_000),
    stepped=st.booleans(),
)
def test_every_plan_fits_its_episodes(fields, maximum, typical, stepped):
    layout = plan(fields, maximum=maximum, typical=typical, stepped=stepped)
    assert layout.chunk_steps % 8 == 0
    assert 1 <= layout.group_episodes <= MAX_GROUP_EPISODES
    if maximum and not stepped and layout.group_episodes > 1:
        assert layout.group_episodes * maximum <= layout.chunk_steps


def test_commit_pace_does_not_change_a_byte(tmp_path):
    fields = (Field("x", "int8", (3,)), Field("y", "float32"))
    layout, episodes = Layout(fields, 32, 2), make_episodes((*fields,), [30, 31, 5, 70, 1, 2, 64], 7)
    write(tmp_path / "a.zarr", layout, episodes, commit_each=True)
    write(tmp_path / "b.zarr", layout, episodes, commit_each=False)
    a, b = ({p.name: p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in ("a.zarr", "b.zarr"))
    assert a == b


def test_arrays_rewritten_with_other_codecs_are_read_through_zarr(tmp_path):
    fields = (Field("x", "float32", (2,)), Field("y", "uint8"))
    layout, episodes = Layout(fields, 16, 2), make_episodes(fields, [20, 9, 33], 1)
    write(tmp_path / "0000.zarr", layout, episodes)
    group = zarr.open_group(str(tmp_path / "0000.zarr"), mode="r+", use_consolidated=False)
    values = group["steps/x"][:]
    group.create_array("steps/x", data=values, chunks=(8, 2), shards=(24, 2), overwrite=True)
    shard = Shard(tmp_path / "0000.zarr")
    assert isinstance(shard.chunks["x"], ZarrChunks)
    assert isinstance(shard.chunks["y"], DirectChunks)
    for read, written in zip(Trajectories(tmp_path, 1), episodes, strict=True):
        np.testing.assert_array_equal(read["x"], written.arrays["x"])


def test_an_unfinished_shard_is_not_opened_as_a_split(tmp_path):
    fields = (Field("x", "uint8"),)
    layout, episodes = Layout(fields, 16, 1), make_episodes(fields, [5, 6, 7], 1)
    identity = Identity("test", {}, 0, "train", 0, 1, 0, 3, layout)
    with ShardWriter(tmp_path / "0000.zarr", identity) as writer:
        writer.add(0, encode_group(layout, episodes[:1]))
        writer.commit()
    assert Shard(tmp_path / "0000.zarr").state.committed == 1
    with pytest.raises(Incomplete, match="0000"):
        Trajectories(tmp_path, 1)


def test_a_shard_does_not_grow_with_other_episodes_than_it_has(tmp_path):
    """Of the same seeds and lengths: only what is in them tells."""
    layout, path = Layout((Field("x", "uint8", (4,)),), 8, 5), tmp_path / "train" / "0000.zarr"
    made, other = (make_episodes(layout.fields, [5, 9, 3, 7], seed) for seed in (0, 1))
    write(path, layout, made[:3])
    with pytest.raises(DamagedData, match="came out with other episodes than it has"):
        write(path, layout, other)
    write(path, layout, made)
    for found, episode in zip(Trajectories(tmp_path / "train", 1), made, strict=True):
        np.testing.assert_array_equal(found["x"], episode.arrays["x"])
