"""Stores at a URL: the same episodes as in the folder they were copied from, and the same eye for damage."""

import http.server
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import fsspec
import pytest
import zarr

import memup_cli
from stores.errors import DamagedData, StoreIO
from stores.reader import ZarrChunks
from stores.remote import RemotePath, is_url, open_place
from stores.slab import Slab
from tests.cli import Memup, assert_same_episodes, episodes


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    memup = Memup(tmp_path_factory.mktemp("remote"))
    memup("collect", "tmaze", "--length", 40, "--episodes", 12, "--test-episodes", 3, "--run", "run")
    return memup.folder / "run"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(memup: Memup, copied: Path) -> Iterator[str]:
    """The URL of the test's folder, with the run in it, on a server of this test."""
    pytest.importorskip("aiohttp")
    shutil.copytree(copied, memup.folder / "run")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=memup.folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/run"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def remembered(copied: Path) -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    memory.put(str(copied), "/copy", recursive=True)
    yield "memory://copy"
    memory.rm("/copy", recursive=True)


def test_episodes_in_memory_are_the_local_ones(copied, remembered):
    found = memup_cli.open_trajectories(remembered)
    assert_same_episodes(list(found), episodes(copied))
    assert_same_episodes([found.episode(7)], episodes(copied)[7:8])
    assert_same_episodes(list(memup_cli.open_trajectories(remembered, "test")), episodes(copied, "test"))


def test_training_can_stream_from_a_url(copied, remembered):
    streams = [Slab(memup_cli.open_trajectories(place), slots=4, rollout=10, seed=3) for place in (copied, remembered)]
    with streams[0] as local, streams[1] as remote:
        for _ in range(12):
            assert_same_episodes([remote.window()], [local.window()])
            local.advance()
            remote.advance()


@pytest.mark.parametrize("name", ["steps/action/c.0", "episodes/row/c.0.0", "episodes/row/zarr.json", "zarr.json"])
def test_damage_at_a_url_is_noticed(remembered, name):
    memory = fsspec.filesystem("memory")
    path = f"/copy/trajectories/train/0000.zarr/{name}"
    data = bytearray(memory.cat_file(path))
    data[len(data) // 2] ^= 4
    memory.pipe_file(path, bytes(data))
    with pytest.raises(DamagedData):
        list(memup_cli.open_trajectories(remembered))
    memory.rm(path)
    with pytest.raises(DamagedData, match="missing"):
        list(memup_cli.open_trajectories(remembered))


def test_a_rewritten_array_at_a_url_is_read_through_zarr(copied, tmp_path, remembered):
    shutil.copytree(copied, tmp_path / "run")
    shard = tmp_path / "run/trajectories/train/0000.zarr"
    group = zarr.open_group(str(shard), mode="r+", use_consolidated=False)
    group.create_array("steps/reward", data=group["steps/reward"][:], chunks=(64,), overwrite=True)
    memory = fsspec.filesystem("memory")
    memory.rm("/copy", recursive=True)
    memory.put(str(tmp_path / "run"), "/copy", recursive=True)
    found = memup_cli.open_trajectories(remembered)
    assert isinstance(found.shards[0].chunks["reward"], ZarrChunks)
    assert_same_episodes(list(found), episodes(copied))


def test_commands_that_read_take_a_url(memup, served, copied):
    assert_same_episodes(list(memup_cli.open_trajectories(served)), episodes(copied))
    local = memup("inspect", "--run", copied, "--json").json
    assert memup("inspect", "--run", served, "--json").json == {**local, "run": served}
    assert memup("verify", "--run", served, "--json").json["ok"]
    assert "complete" in memup("status", "--run", served).out
    (memup.folder / "run/trajectories/test/0000.zarr/steps/reward/c.0").unlink()
    assert memup("verify", "--run", served, "--json", code=65).json["damaged"][0]["array"] == "steps/reward"
    memup("inspect", "--run", f"{served}-gone", code=3)
    with pytest.raises(DamagedData, match="missing"):
        list(memup_cli.open_trajectories(served, "test"))


def test_a_run_with_weights_and_checkpoints_is_verified_at_a_url(memup, served):
    memup("score", "--run", "run", "--updates", 10)
    memup("train-memory", "--run", "run", "--updates", 4, "--checkpoint-every", 2)
    assert memup("verify", "--run", served, "--json").json["ok"]
    checkpoint = next((memup.folder / "run/memory").glob("checkpoint-*.pt"))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    assert checkpoint.name in memup("verify", "--run", served, code=65).out


WRITERS = [
    ["collect", "copy", "--episodes", 3],
    ["collect"],
    ["score"],
    ["train-memory"],
    ["train-baseline"],
    ["train-agent"],
    ["evaluate", "memory"],
    ["verify", "--repair"],
]


@pytest.mark.parametrize("url", ["s3://bucket/run", "memory://run", "http://127.0.0.1:9/run"])
@pytest.mark.parametrize("command", WRITERS, ids=lambda words: " ".join(map(str, words)))
def test_commands_that_write_refuse_a_url(memup, command, url):
    refused = memup(*command, "--run", url, code=2)
    assert url in refused.err
    assert "local or shared folder" in refused.err
    assert list(memup.folder.iterdir()) == []


def test_an_unreachable_server_is_an_io_error(memup):
    pytest.importorskip("aiohttp")
    assert "127.0.0.1:9" in memup("verify", "--run", "http://127.0.0.1:9/run", code=74).err


def test_an_unknown_protocol_is_named(memup):
    assert "nosuch" in memup("inspect", "--run", "nosuch://x/run", code=74).err


def test_only_urls_are_urls(tmp_path):
    for name in ("C:/data", "runs/x", "/abs/run", "a:b", "odd: name/run"):
        assert not is_url(name)
        assert not isinstance(open_place(name), RemotePath)
    place = open_place("s3://bucket/a") / "b" / "c.json"
    assert str(place) == "s3://bucket/a/b/c.json"
    assert str(place.parent) == "s3://bucket/a/b"
    with pytest.raises(StoreIO):
        open_place("nosuch://x").read_bytes()
