"""memup collect pmnist through the command line, and the stages after it."""

import json
import shutil

import numpy as np
import pytest

from memup_cli.tasks.digits.pmnist import flatten, permutation
from tests.cli import assert_same_episodes, episodes, files_of
from tests.mnist_files import digits, idx, write_mnist

SMALL = ["collect", "pmnist", "--length", 196, "--episodes", 30, "--test-episodes", 8]


@pytest.fixture
def data(memup):
    return write_mnist(memup.folder / "data")


def entry(folder):
    return json.loads((folder / "manifest.json").read_text())["stages"]["collect"]


def test_images_are_collected_into_the_default_folder(memup, data):
    memup("collect", "pmnist", "--episodes", 20, "--test-episodes", 5, "--data-dir", "data", "--seed", 4)
    run = memup.folder / "runs" / "pmnist-784"
    order = permutation(4, 784)
    for split, count, seed in (("train", 20, 0), ("test", 5, 1)):
        images, labels = digits(30 if split == "train" else 8, seed=seed)
        found = episodes(run, split)
        assert len(found) == count
        for i, episode in enumerate(found):
            np.testing.assert_array_equal(episode["pixel"], images[i].ravel()[order])
            assert episode["label"][-1] == labels[i]
    assert entry(run)["data"]["permutation"]["seed"] == 4
    assert len(memup("inspect", "--run", run, "--json").json["episode"]["events"]) == 2


def test_shards_reruns_and_places_do_not_change_the_data(memup, data):
    memup(*SMALL, "--data-dir", "data", "--run", "whole")
    plain = write_mnist(memup.folder / "plain", end="", joint=".")
    for part, folder in ((0, data), (2, plain)):
        memup(*SMALL, "--data-dir", folder, "--run", "parts", "--shard", f"{part}/3")
    memup("collect", "--run", "parts", "--shard", "1/3")
    for split in ("train", "test"):
        whole = episodes(memup.folder / "whole", split)
        assert_same_episodes(whole, episodes(memup.folder / "parts", split, shards=3))
    whole, parts = entry(memup.folder / "whole"), entry(memup.folder / "parts")
    assert parts["status"] == "complete"
    assert whole["outputs"] == parts["outputs"]
    assert whole["data"] == parts["data"]
    shutil.rmtree(data)
    assert "up to date" in memup(*SMALL, "--data-dir", "data", "--run", "whole").out
    assert "seed was 0 and is now 1" in memup(*SMALL, "--data-dir", "data", "--run", "whole", "--seed", 1, code=2).err


def test_a_run_grows_as_far_as_there_are_images(memup, data):
    few = ["collect", "pmnist", "--length", 196, "--data-dir", data, "--run", "run"]
    memup(*few, "--episodes", 20, "--test-episodes", 0)
    memup(*few, "--episodes", 30, "--test-episodes", 8)
    memup(*SMALL, "--data-dir", data, "--run", "whole")
    assert files_of(memup.folder / "run/trajectories") == files_of(memup.folder / "whole/trajectories")
    assert entry(memup.folder / "run")["data"] == entry(memup.folder / "whole")["data"]
    assert "only 30 train images" in memup(*few, "--episodes", 31, "--test-episodes", 8, code=2).err


def test_a_run_is_not_continued_with_other_images(memup, data):
    others = write_mnist(memup.folder / "others", seed=5)
    memup(*SMALL, "--data-dir", data, "--run", "run", "--shard", "0/2")
    assert "other data" in memup(*SMALL, "--data-dir", others, "--run", "run", "--shard", "1/2", code=65).err
    memup(*SMALL, "--data-dir", others, "--run", "run", "--restart")
    images, _ = digits(30, seed=10)
    expected = flatten(images, 196)[:, permutation(0, 196)]
    np.testing.assert_array_equal([e["pixel"] for e in episodes(memup.folder / "run")], expected)


BAD = [
    (["--length", "500"], 2, "--length 500: must be one of 196, 784, 3136"),
    (["--data-dir", "nowhere"], 2, "nowhere is not a folder"),
    (["--data-dir", "data"], 2, "--episodes 60000: there are only 30 train images"),
    (["--data-dir", "data", "--episodes", "30", "--test-episodes", "9"], 2, "--test-episodes 9: there are only 8"),
    (["--data-dir", "empty"], 65, "t10k-labels-idx1-ubyte"),
    (["--data-dir", "broken"], 65, "broken/train-images-idx3-ubyte is truncated"),
    ([], 65, "--data-dir"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), BAD, ids=[" ".join(b[0]) or "no network" for b in BAD])
def test_errors_are_one_paragraph_and_leave_nothing_behind(memup, data, arguments, code, words):
    (memup.folder / "empty").mkdir()
    broken = write_mnist(memup.folder / "broken", end="")
    (broken / "train-images-idx3-ubyte").write_bytes(idx(digits(30)[0])[:5000])
    before = sorted(memup.folder.iterdir())
    offline = {"MEMUP_MNIST_MIRRORS": "http://127.0.0.1:1/", "XDG_CACHE_HOME": str(memup.folder / "cache")}
    failed = memup("collect", "pmnist", "--quiet", *arguments, code=code, env=offline)
    assert words in failed.err
    assert failed.err.strip().count("\n") == 0
    assert sorted(memup.folder.iterdir()) == before


def test_a_dry_run_reads_and_downloads_nothing(memup):
    out = memup("collect", "pmnist", "--dry-run", "--json", env={"MEMUP_MNIST_MIRRORS": "http://127.0.0.1:1/"}).json
    assert out["steps"] == 70_000 * 784
    assert list(memup.folder.iterdir()) == []


def test_the_stages_after_it_run(memup, data):
    memup(*SMALL, "--data-dir", "data", "--run", "run")
    memup("score", "--run", "run", "--updates", 5)
    memup("train-memory", "--run", "run", "--updates", 5, "--batch", 8)
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["episodes"] == found["steps"] == 8, "one step of each test image matters"
    assert found["accuracy"] * 8 == pytest.approx(round(found["accuracy"] * 8))
