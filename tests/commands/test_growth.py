"""A run that is asked for more episodes has the bytes of one begun with as many, and later stages say that it grew."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from stores.errors import Incomplete
from stores.groups import Episode, encode_group
from stores.layout import Layout
from stores.reader import Shard, Trajectories, read_identity
from stores.writer import ShardWriter
from tests.cli import assert_same_episodes, episodes, files_of

TABLE = "run/trajectories/train/0000.zarr/episodes/row"
TMAZE = ["collect", "tmaze", "--length", 40000, "--workers", 1, "--commit-every", 0]  # 26 to a commit group
SMALL, LARGE = ["--episodes", 30, "--test-episodes", 3], ["--episodes", 60, "--test-episodes", 5]
GYM = ["collect", "gym", "--env-id", "Pendulum-v1", "--max-steps", 200]  # ten to a commit group
TASKS = {
    "one group": (["collect", "copy", "--length", 20], 7, 9),
    "many groups": (["collect", "copy", "--length", 20], 5000, 9000),
    "a group that is full": (GYM, 20, 33),
    "groups of many chunks": (["collect", "gym", "--env-id", "CartPole-v1"], 130, 260),
}


def store(memup, run: str) -> dict[str, bytes]:
    return files_of(memup.folder / run / "trajectories")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("task", TASKS)
def test_a_run_that_grew_is_the_same_as_one_that_was_begun_so(memup, task, workers):
    command, before, after = TASKS[task]
    memup(*command, "--episodes", before, "--test-episodes", 0, "--run", "run")
    assert "Would collect" in (dry := memup("collect", "--run", "run", "--episodes", after, "--dry-run").out)
    assert "it would extend what is there" in " ".join(dry.split())
    memup(*command, "--episodes", after, "--test-episodes", 4, "--run", "run", "--workers", workers)
    memup(*command, "--episodes", after, "--test-episodes", 4, "--run", "whole")
    assert store(memup, "run") == store(memup, "whole")
    assert "up to date" in memup("collect", "--run", "run").out
    assert memup("verify", "--run", "run", "--json").json["ok"]
    collects = [
        json.loads((memup.folder / r / "manifest.json").read_text())["stages"]["collect"] for r in ("run", "whole")
    ]
    assert collects[0]["outputs"] == collects[1]["outputs"]


def test_a_run_is_told_to_grow_without_its_task(memup):
    memup("collect", "copy", "--episodes", 6, "--test-episodes", 2, "--run", "run")
    memup("collect", "--run", "run", "--test-episodes", 5)
    memup("collect", "--run", "run", "--episodes", 9)
    memup("collect", "copy", "--episodes", 9, "--test-episodes", 5, "--run", "whole")
    assert store(memup, "run") == store(memup, "whole")
    before = files_of(memup.folder / "run")
    assert "episodes was 9 and is now 8" in memup("collect", "--run", "run", "--episodes", 8, code=2).err
    mixed = memup("collect", "--run", "run", "--episodes", 20, "--test-episodes", 4, code=2).err
    assert "test_episodes was 5 and is now 4" in mixed
    assert "--episodes 0" in memup("collect", "--run", "run", "--episodes", 0, code=2).err
    assert (
        "seed was 0 and is now 1"
        in memup("collect", "copy", "--episodes", 20, "--test-episodes", 5, "--seed", 1, "--run", "run", code=2).err
    )
    assert files_of(memup.folder / "run") == before


MOMENTS = {
    "the manifest says more": ("run/manifest.json", 2),
    "the shard says more": ("run/trajectories/train/0000.zarr/zarr.json", 1),
    "the table is announced": (f"{TABLE}/zarr.json", 1),
    "steps are replaced": ("run/trajectories/train/0000.zarr/steps/*/c.1*", 1),
    "the table is replaced": (f"{TABLE}/c.1.0", 1),
    "the full group counts": (f"{TABLE}/zarr.json", 2),
    "the test split grows": ("run/trajectories/test/0000.zarr/zarr.json", 1),
}


@pytest.fixture
def whole(memup) -> dict[str, bytes]:
    memup(*TMAZE, *LARGE, "--run", "whole")
    return store(memup, "whole")


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_while_it_grows(memup, whole, moment):
    """At every moment there is what there was, nobody takes it for complete, and the same command ends it."""
    memup(*TMAZE, *SMALL, "--run", "run")
    at, nth = MOMENTS[moment]
    folder = memup.folder / "run" / "trajectories" / "train"
    opened = Trajectories(folder, 1)
    first = opened.episode(29)
    memup.killed(*TMAZE, *LARGE, "--run", "run", at=at, nth=nth)
    shard = Shard(folder / "0000.zarr")
    assert shard.state.committed >= 30
    assert len(shard.lengths) == shard.state.committed
    assert_same_episodes([opened.episode(29)], [first])
    assert memup("verify", "--run", "run", "--json").json["damaged"] == []
    entry = memup("status", "--run", "run", "--json").json["stages"]["collect"]
    assert (entry["status"], entry["total"], entry["done"] >= 33) == ("interrupted", 65, True)
    assert "memup collect --run run" in memup("score", "--run", "run", code=3).err
    memup("collect", "--run", "run")
    assert store(memup, "run") == whole
    assert_same_episodes([opened.episode(29)], [first])


def test_an_interrupted_run_grows(memup, whole):
    """Its last commit is of a full group, and it is told to grow twice before it is complete."""
    memup.killed(*TMAZE, *SMALL, "--run", "run", at=f"{TABLE}/zarr.json", nth=2)
    memup.killed(*TMAZE, "--episodes", 40, "--test-episodes", 3, "--run", "run", at=f"{TABLE}/c.1.0")
    grown = memup(*TMAZE, *LARGE, "--run", "run")
    assert "train: resuming at 26 of 60 episodes" in grown.err
    assert store(memup, "run") == whole


def test_a_group_that_was_announced_for_fewer_grows_on(memup, whole):
    memup(*TMAZE, *SMALL, "--run", "run")
    memup.killed(*TMAZE, "--episodes", 40, "--test-episodes", 3, "--run", "run", at=f"{TABLE}/c.1.0")
    memup.killed(*TMAZE, *LARGE, "--run", "run", at=f"{TABLE}/zarr.json")
    assert memup("verify", "--run", "run", "--json").json["damaged"] == []
    memup(*TMAZE, *LARGE, "--run", "run")
    assert store(memup, "run") == whole


def test_a_last_group_in_quarantine_grows(memup, whole):
    memup(*TMAZE, *SMALL, "--run", "run")
    (memup.folder / TABLE / "c.1.0").write_bytes(b"gone")
    memup("verify", "--run", "run", "--repair")
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["done"] == 29
    memup(*TMAZE, *LARGE, "--run", "run")
    assert store(memup, "run") == whole


def test_shards_grow_if_they_begin_where_they_did(memup):
    """The others are collected again, and until then nobody takes a mixture for the run."""
    command = ["collect", "copy", "--length", 20, "--test-episodes", 2]
    for part in range(3):
        memup(*command, "--episodes", 9, "--run", "run", "--shard", f"{part}/3")
        memup(*command, "--episodes", 11, "--run", "whole", "--shard", f"{part}/3")
    folder = memup.folder / "run" / "trajectories" / "train"
    before = (folder / "0002.zarr").stat().st_ino, (folder / "0001.zarr").stat().st_ino
    memup(*command, "--episodes", 11, "--run", "run", "--shard", "1/3")
    assert (folder / "0001.zarr").stat().st_ino == before[1], "extended, not made again"
    assert [read_identity(folder / f"000{i}.zarr").episodes for i in range(3)] == [3, 4, 3]
    with pytest.raises(Incomplete, match=r"0002.zarr still has to be collected"):
        Trajectories(folder, 3)
    shown = memup("status", "--run", "run", "--json").json["stages"]["collect"]
    assert {m["shard"] for m in shown["missing"]} == {"2/3"}
    memup.killed("collect", "--run", "run", "--shard", "2/3", at="run/trajectories/train/0002.zarr/zarr.json")
    memup("collect", "--run", "run", "--shard", "2/3")
    assert "up to date" in memup("collect", "--run", "run", "--shard", "0/3").out
    assert store(memup, "run") == store(memup, "whole")


def test_a_part_that_still_collects_fewer_does_not_shrink_the_run(memup):
    command = ["collect", "tmaze", "--length", 40000, "--test-episodes", 2, "--run", "run", "--workers", 1]
    late = memup.held(*command, "--episodes", 8, "--shard", "0/2", at=f"{TABLE}/zarr.json")
    refused = memup(*command, "--episodes", 12, "--shard", "0/2", code=75).err
    assert f"process {late.pid}" in refused
    memup(*command, "--episodes", 12, "--shard", "1/2")
    assert late.resume().code == 0
    entry = memup("status", "--run", "run", "--json").json["stages"]["collect"]
    assert (entry["config"]["episodes"], entry["done"], entry["total"]) == (12, 12, 14)
    memup("collect", "--run", "run", "--shard", "0/2")
    assert len(episodes(memup.folder / "run", shards=2)) == 12


def test_a_store_with_smaller_groups_grows_as_it_is_cut(memup):
    """Early versions cut a run by the number of its episodes."""
    memup("collect", "copy", "--length", 20, "--episodes", 30, "--test-episodes", 5, "--run", "whole")
    memup("collect", "copy", "--length", 20, "--episodes", 7, "--test-episodes", 2, "--run", "run")
    for split in ("train", "test"):
        recut(memup.folder / "run/trajectories" / split / "0000.zarr")
    memup("collect", "--run", "run")
    memup("collect", "--run", "run", "--episodes", 30, "--test-episodes", 5)
    for split in ("train", "test"):
        assert read_identity(memup.folder / "run/trajectories" / split / "0000.zarr").layout.group_episodes == 7
        assert_same_episodes(episodes(memup.folder / "run", split), episodes(memup.folder / "whole", split))


def recut(path: Path) -> None:
    """Write a shard anew in groups of seven."""
    shard = Shard(path)
    layout = Layout(shard.layout.fields, 7 * 24, 7)
    identity = dataclasses.replace(shard.identity, layout=layout)
    made = []
    for start, length, seed, terminated, _ in shard.rows(0).tolist():
        arrays = {name: shard.read_steps(name, start, start + length) for name in shard.fields}
        made.append(Episode(arrays, seed, bool(terminated)))
    shutil.rmtree(path)
    with ShardWriter(path, identity) as writer:
        writer.add(0, encode_group(layout, made))
        writer.commit()


def test_later_stages_say_that_the_run_grew(memup, maze):
    train = ["train-memory", "--run", "run", "--updates", 20, "--hidden", 8]
    memup(*train)
    memup("collect", "--run", "run", "--episodes", 1300, "--test-episodes", 60)
    grew = "the run grew from 300 to 1,300 episodes"
    refused = memup("score", "--run", "run", "--updates", 600, code=3).err
    assert f"{grew} and from 50 to 60 test episodes" in refused
    assert "`memup score --updates 600 --run run --restart`" in refused
    assert grew in memup(*train, code=3).err
    assert grew in memup("evaluate", "memory", "--run", "run", code=3).err
    stages = memup("status", "--run", "run", "--json").json["stages"]
    assert stages["score"]["stale"] == ["train", "test"]
    assert memup("verify", "--run", "run", "--json").json["ok"], "there are fewer scores than episodes, none is damaged"
    assert set(stages["train-memory"]["stale"]) == {"train", "scores"}
    memup("collect", "--run", "run", "--episodes", 1500)
    assert "from 300 to 1,500 episodes" in memup("score", "--run", "run", "--updates", 600, code=3).err
    memup("score", "--run", "run", "--updates", 600, "--restart")
    assert "the run grew from 300 to 1,500" in memup(*train, code=3).err
    memup(*train, "--restart")
    assert np.isfinite(memup("evaluate", "memory", "--run", "run", "--json").json["rmse"])
