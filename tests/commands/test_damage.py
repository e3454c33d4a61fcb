"""Damaged, hostile and foreign data: the right exit code, one clear paragraph, never read as if it were good."""

import json
import os
import shutil
from pathlib import Path

import pytest

from stores.errors import DamagedData
from stores.manifest import Manifest
from stores.reader import Trajectories
from stores.slab import Slab
from tests.cli import Memup, files_of

SHARD = Path("trajectories/train/0000.zarr")


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def swap(path: Path) -> None:
    """Two good chunks in each other's place: every chunk's own checksum is right."""
    other = path.with_name(path.name.replace("c.1", "c.0"))
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


CHUNKS = ["steps/observation/c.1.0", "steps/action/c.1", "steps/reward/c.1", "episodes/row/c.1.0"]
HARMS = [flip_bit, truncate, Path.unlink]


def assert_repaired(memup: Memup, run: Path, whole: dict[str, bytes]) -> None:
    """Repair, collect again: the same store as before the damage."""
    repaired = memup("verify", "--run", "run", "--repair")
    assert "quarantine/train-0000.1" in repaired.out
    assert "memup collect --run run" in repaired.out
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["status"] == "interrupted"
    memup("inspect", "--run", "run", code=3)
    memup("collect", "--run", "run")
    assert files_of(run / "trajectories") == whole
    assert memup("verify", "--run", "run", "--json").json["ok"]


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("harm", HARMS, ids=lambda h: h.__name__)
def test_a_damaged_chunk_is_found_named_and_mended(memup, run, chunk, harm):
    whole = files_of(run / "trajectories")
    harm(run / SHARD / chunk)
    found = memup("verify", "--run", "run", "--json", code=65).json
    assert not found["ok"]
    (damage,) = found["damaged"]
    assert damage["array"] == chunk.rsplit("/", 1)[0]
    assert damage["chunk"] == 1
    assert damage["episodes"] == [26, 52]
    assert "verify --run run --repair" in memup("verify", "--run", "run", code=65).out
    read = memup("inspect", "--run", "run", "--episode", 30, code=65)
    assert chunk.rsplit("/", 1)[0] in read.err
    assert "chunk 1" in read.err
    assert "memup verify --repair" in read.err
    assert_repaired(memup, run, whole)


def test_a_repair_that_is_killed_leaves_episodes_missing_and_none_damaged(memup, run):
    whole = files_of(run / "trajectories")
    flip_bit(run / SHARD / "steps/action/c.1")
    memup.killed("verify", "--run", "run", "--repair", at="run/quarantine/train-0000.1/episodes/row/c.1.0")
    assert not (run / SHARD / "episodes/row/c.1.0").exists(), "it was in time"
    assert (run / SHARD / "steps/action/c.1").exists()
    found = memup("verify", "--run", "run", "--json").json
    assert found["ok"]
    assert found["missing"]
    memup("collect", "--run", "run")
    assert files_of(run / "trajectories") == whole


def test_chunks_in_the_wrong_place_are_found(memup, run):
    whole = files_of(run / "trajectories")
    swap(run / SHARD / "steps/action/c.1")
    found = memup("verify", "--run", "run", "--json", code=65).json
    assert {d["group"] for d in found["damaged"]} == {0, 1}
    with pytest.raises(DamagedData, match="not what was committed"):
        Slab(Trajectories(run / "trajectories" / "train", 1), slots=60, rollout=10, seed=0)
    assert_repaired(memup, run, whole)


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_reader_refuses_chunks_in_the_wrong_place(memup, run, split):
    memup("collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5, "--seed", 1, "--run", "third")
    name = f"trajectories/{split}/0000.zarr/steps/reward/c.0"
    shutil.copy(memup.folder / "third" / name, run / name)
    assert "not what was committed" in memup("inspect", "--run", "run", "--split", split, code=65).err
    trajectories = Trajectories(run / "trajectories" / split, 1)
    for read in (lambda: list(trajectories), lambda: trajectories.shards[0].read_steps("reward", 3, 4)):
        with pytest.raises(DamagedData, match="not what was committed"):
            read()


def test_the_episode_table_of_another_run_is_refused(memup, run):
    """As good a table as ours: its rows follow each other, and nothing that reads only lengths looks at the steps."""
    memup("collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5, "--seed", 1, "--run", "third")
    name = SHARD / "episodes/row/c.0.0"
    shutil.copy(memup.folder / "third" / name, run / name)
    with pytest.raises(DamagedData, match="not the one that was written"):
        _ = Trajectories(run / SHARD.parent, 1).lengths
    assert "not the one that was written" in memup("inspect", "--run", "run", code=65).err


def test_a_folder_in_place_of_the_old_manifest_is_found_and_set_aside(memup, run):
    (run / "manifest.previous.json").unlink()
    (run / "manifest.previous.json").mkdir()
    (damage,) = memup("verify", "--run", "run", "--json", code=65).json["damaged"]
    assert damage["path"] == "manifest.previous.json"
    assert "quarantine/manifest.previous.json.1" in memup("verify", "--run", "run", "--repair").out
    assert memup("verify", "--run", "run", "--json").json["ok"]


def test_episode_tables_in_the_wrong_place_are_found(memup, run):
    """The rows and the chunks they point to are good, but the episodes would come in another order."""
    whole = files_of(run / "trajectories")
    shutil.copy(run / SHARD / "episodes/row/c.0.0", run / SHARD / "episodes/row/c.1.0")
    assert "not the one" in memup("verify", "--run", "run", "--json", code=65).json["damaged"][0]["problem"]
    assert "not the one" in memup("inspect", "--run", "run", code=65).err
    assert_repaired(memup, run, whole)


def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(memup, run):
    (run / SHARD / "steps/reward/c.1").unlink()
    os.mkfifo(run / SHARD / "steps/reward/c.1")
    assert "not a file" in memup("verify", "--run", "run", code=74).err


@pytest.mark.parametrize("name", ["zarr.json", "steps/reward/zarr.json", "episodes/row/zarr.json"])
@pytest.mark.parametrize("harm", HARMS, ids=lambda h: h.__name__)
def test_damaged_metadata_sets_the_whole_shard_aside(memup, run, name, harm):
    whole = files_of(run / "trajectories")
    harm(run / SHARD / name)
    found = memup("verify", "--run", "run", "--json", code=65).json
    assert found["damaged"][0]["path"] == str(SHARD)
    memup("inspect", "--run", "run", code=3 if name != "steps/reward/zarr.json" else 65)
    assert_repaired(memup, run, whole)


def test_neighbouring_damage_is_mended_too(memup, run):
    whole = files_of(run / "trajectories")
    for name in ("episodes/row/c.0.0", "episodes/row/c.1.0", "steps/reward/c.2"):
        flip_bit(run / SHARD / name)
    memup("verify", "--run", "run", code=65)
    assert_repaired(memup, run, whole)


@pytest.mark.parametrize("where", [SHARD, SHARD / "steps", SHARD / "steps/reward", SHARD / "steps/reward/c.0"])
def test_a_symbolic_link_in_the_store_is_refused(memup, run, where):
    target = memup.folder / "elsewhere"
    shutil.move(run / where, target)
    (run / where).symlink_to(target)
    outside = files_of(memup.folder / "elsewhere") if target.is_dir() else target.read_bytes()
    for command in (["verify"], ["verify", "--repair"], ["inspect"]):
        refused = memup(*command, "--run", "run", code=77)
        assert "symbolic link" in refused.err
    assert outside == (files_of(target) if target.is_dir() else target.read_bytes())


def edit_manifest(run: Path, change) -> None:
    data = json.loads((run / "manifest.json").read_text())
    change(data)
    (run / "manifest.json").write_text(json.dumps(data))


@pytest.mark.parametrize("path", ["/etc", "../other", "trajectories/../../x", ""])
def test_a_path_out_of_the_run_is_refused(memup, run, path):
    edit_manifest(run, lambda data: data["stages"]["collect"]["outputs"]["train"].update(path=path))
    for command in (["status"], ["verify"], ["inspect"], ["collect"]):
        refused = memup(*command, "--run", "run", code=77)
        assert "stages.collect.outputs.train" in refused.err


@pytest.mark.parametrize("command", ["status", "verify", "inspect", "collect"])
def test_a_corrupt_manifest_says_where_to_go_back_to(memup, run, command):
    text = (run / "manifest.json").read_text()
    for broken in (text[: len(text) // 2], "", "[]", "{}", text.replace("40000", "40001")):
        (run / "manifest.json").write_text(broken)
        refused = memup(command, "--run", "run", code=65)
        assert "manifest.json" in refused.err
        assert "manifest.previous.json" in refused.err
    shutil.copy(run / "manifest.previous.json", run / "manifest.json")
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["status"] == "complete"


def test_a_manifest_that_lost_its_checksum_is_refused(memup, run):
    edit_manifest(run, lambda data: data.pop("checksum"))
    refused = memup("status", "--run", "run", code=65)
    assert "its checksum does not match" in refused.err
    assert "manifest.previous.json" in refused.err


def test_a_newer_format_is_left_alone(memup, run):
    edit_manifest(run, lambda data: data.update(format=2))
    refused = memup("status", "--run", "run", code=65)
    assert "version 2" in refused.err
    assert "version 1" in refused.err
    before = files_of(run)
    memup("collect", "--run", "run", code=65)
    assert files_of(run) == before


def test_a_shard_of_a_newer_format_is_left_alone(memup, run):
    metadata = json.loads((run / SHARD / "zarr.json").read_text())
    metadata["attributes"]["memup"]["format"] = 9
    (run / SHARD / "zarr.json").write_text(json.dumps(metadata))
    before = files_of(run / SHARD)
    assert "version 9" in memup("verify", "--run", "run", code=65).err
    memup("verify", "--run", "run", "--repair", code=65)
    assert files_of(run / SHARD) == before


def test_a_run_can_be_moved(memup, run):
    shutil.move(run, memup.folder / "renamed")
    memup("verify", "--run", "renamed")
    assert "up to date" in memup("collect", "--run", "renamed").out


def test_the_manifest_keeps_its_previous_generation(run):
    now = Manifest.load(run)
    assert json.loads((run / "manifest.previous.json").read_text())["generation"] == now.data["generation"] - 1
