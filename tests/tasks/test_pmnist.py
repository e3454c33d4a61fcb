"""Permuted MNIST: the order of the steps, the three lengths, files good and bad, and where they come from."""

import functools
import gzip
import hashlib
import http.server
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from memup_cli.errors import BadInput, UsageProblem
from memup_cli.tasks.digits import mnist
from memup_cli.tasks.digits.pmnist import PermutedMNIST, PermutedMNISTOptions, permutation
from stores.errors import StoreIO
from tests.mnist_files import digits, idx, write_mnist

PINNED = [2, 168, 158, 73, 433, 8, 274, 395]  # of seed 0
SIZES = {"train": 30, "test": 8}
REAL = os.environ.get("MEMUP_MNIST_DIR")


def load(folder, length=784, seed=0, sizes=SIZES):
    task = PermutedMNIST(PermutedMNISTOptions(length=length, data_dir=folder))
    return task, task.load(seed, sizes, lambda _: None)


def pixels(task, split="train", count=None):
    return np.array([e.arrays["pixel"] for e in task.items(split, 0, count or SIZES[split])])


def test_an_episode_is_an_image_in_the_permuted_order_with_its_label_at_the_end(tmp_path):
    task, _ = load(write_mnist(tmp_path), seed=3)
    images, labels = digits(30)
    for index, episode in enumerate(task.items("train", 0, 30)):
        a = episode.arrays
        np.testing.assert_array_equal(a["pixel"], images[index].ravel()[permutation(3, 784)])
        assert np.flatnonzero(a["ask"]).tolist() == [783]
        assert (a["label"][:-1] == 10).all()
        assert a["label"][-1] == labels[index]
        assert episode.seed == index
        assert task.spec.evaluate(a).sum() == 1
        for field in task.spec.fields:
            assert a[field.name].dtype == field.numpy
            assert a[field.name].max() < task.spec.classes.get(field.name, 256)


def test_items_do_not_depend_on_where_a_group_begins(tmp_path):
    task, _ = load(write_mnist(tmp_path, train=600), sizes={"train": 600})
    whole = [e.arrays["pixel"] for e in task.items("train", 0, 600)]
    for index, episode in zip(range(250, 530), task.items("train", 250, 530), strict=True):
        np.testing.assert_array_equal(episode.arrays["pixel"], whole[index])
        assert episode.seed == index


def test_a_shorter_sequence_has_the_means_of_four_pixels(tmp_path):
    task, _ = load(write_mnist(tmp_path), length=196)
    images, _ = digits(30)
    means = images.reshape(30, 14, 2, 14, 2).astype(float).mean((2, 4)).reshape(30, 196)
    assert np.abs(pixels(task) - means[:, permutation(0, 196)]).max() <= 0.5


def test_a_longer_sequence_has_zeros_added_before_permuting(tmp_path):
    task, _ = load(write_mnist(tmp_path), length=3136)
    images, _ = digits(30)
    restored = np.empty((30, 3136), np.uint8)
    restored[:, permutation(0, 3136)] = pixels(task)
    np.testing.assert_array_equal(restored[:, :784], images.reshape(30, 784))
    assert (restored[:, 784:] == 0).all()


def test_the_permutation_hangs_on_the_seed_only(tmp_path):
    folder = write_mnist(tmp_path)
    (first, said), (again, said_again), (other, said_otherwise) = (load(folder, seed=s) for s in (1, 1, 2))
    assert said == said_again
    assert said["permutation"]["sha256"] != said_otherwise["permutation"]["sha256"]
    assert said["images"] == said_otherwise["images"]
    for split in SIZES:
        np.testing.assert_array_equal(pixels(first, split), pixels(again, split))
        assert (pixels(first, split) != pixels(other, split)).any()
        restored = np.empty((SIZES[split], 784), np.uint8)
        restored[:, permutation(1, 784)] = pixels(first, split)
        np.testing.assert_array_equal(restored, digits(SIZES[split], seed=int(split == "test"))[0].reshape(-1, 784))
    assert sorted(permutation(1, 784)) == list(range(784))


def test_the_permutation_is_the_same_for_ever():
    """Shards of one run may be made with different versions of numpy."""
    assert permutation(0, 784)[:8].tolist() == PINNED


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("joint", ["-", "."])
def test_every_spelling_of_the_files_is_the_same_data(tmp_path, end, joint):
    _, said = load(write_mnist(tmp_path / "a"))
    task, said_again = load(write_mnist(tmp_path / "b", end=end, joint=joint))
    assert said == said_again
    assert pixels(task).any()


def test_a_gz_that_a_browser_unpacked_is_read(tmp_path):
    folder = write_mnist(tmp_path)
    _, said = load(folder)
    packed = folder / "train-images-idx3-ubyte.gz"
    packed.write_bytes(gzip.decompress(packed.read_bytes()))
    _, said_again = load(folder)
    assert said == said_again


def test_images_of_another_size(tmp_path):
    small = write_mnist(tmp_path / "small", side=14)
    np.testing.assert_array_equal(
        pixels(load(small, length=196)[0]), digits(30, 14)[0].reshape(30, 196)[:, permutation(0, 196)]
    )
    assert (pixels(load(small, length=784)[0]) == 0).mean() > 0.7
    odd = write_mnist(tmp_path / "odd", side=29)
    with pytest.raises(UsageProblem, match=r"29 x 29 pixels; use --length 3136"):
        load(odd)
    huge = write_mnist(tmp_path / "huge", train=1, test=1, side=60)
    with pytest.raises(UsageProblem, match="too large"):
        load(huge, sizes={"train": 1, "test": 1})


def test_only_the_splits_that_are_wanted_are_read(tmp_path):
    folder = write_mnist(tmp_path)
    for left in folder.glob("t10k*"):
        left.unlink()
    assert set(load(folder, sizes={"train": 5, "test": 0})[1]["images"]) == {"train"}


@pytest.mark.parametrize(("split", "flag"), [("train", "--episodes"), ("test", "--test-episodes")])
def test_more_episodes_than_images(tmp_path, split, flag):
    with pytest.raises(UsageProblem, match=f"{flag} {SIZES[split] + 1}: there are only {SIZES[split]} {split} images"):
        load(write_mnist(tmp_path), sizes={**SIZES, split: SIZES[split] + 1})


IMAGES, LABELS = idx(digits(30)[0]), idx(digits(30)[1])
HUGE = bytes((0, 0, 8, 3)) + b"\xff" * 12 + b"x"
DAMAGES = [
    ("train-images-idx3-ubyte", IMAGES[:-1], "truncated: its header promises 23,520 bytes of images"),
    ("train-images-idx3-ubyte", IMAGES[:9], "ends within its header"),
    ("train-images-idx3-ubyte", HUGE, "more than the file can hold"),
    ("train-images-idx3-ubyte", gzip.compress(HUGE), "more than the file can hold"),
    ("train-images-idx3-ubyte", gzip.compress(IMAGES[:-1]), "only 23,519 are there"),
    ("train-images-idx3-ubyte", gzip.compress(IMAGES)[:-500], "truncated or damaged"),
    ("train-images-idx3-ubyte", gzip.compress(IMAGES)[:-8] + b"\0" * 8, "truncated or damaged"),
    ("train-images-idx3-ubyte", b"\x1f\x8bnonsense, and more of it", "truncated or damaged"),
    ("train-images-idx3-ubyte", IMAGES + b"\0", "there are more"),
    ("train-images-idx3-ubyte", LABELS, "no idx file of images: it begins with 00 00 08 01, not with 00 00 08 03"),
    ("train-images-idx3-ubyte", b"<html>no such file</html>", "no idx file of images: it begins with 3c 68 74 6d"),
    ("train-images-idx3-ubyte", b"", "begins with nothing"),
    ("train-images-idx3-ubyte", idx(np.zeros((30, 28, 27), np.uint8)), "28 x 27 pixels; they must be square"),
    ("train-images-idx3-ubyte", idx(digits(29)[0]), "has 29 images, but"),
    ("train-labels-idx1-ubyte", idx(digits(31)[1]), "has 31 labels"),
    ("train-labels-idx1-ubyte", IMAGES, "no idx file of labels"),
    ("t10k-labels-idx1-ubyte", idx(np.array([1, 2, 10, 4, 5, 6, 7, 255], np.uint8)), "label 2 is 10"),
]


@pytest.mark.parametrize(("name", "data", "words"), DAMAGES, ids=[d[2] for d in DAMAGES])
def test_bad_files_are_named_with_what_is_wrong(tmp_path, name, data, words):
    folder = write_mnist(tmp_path, end="")
    (folder / name).write_bytes(data)
    with pytest.raises(BadInput) as error:
        load(folder)
    assert words in str(error.value)
    assert str(folder / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_all_missing_files_are_named(tmp_path):
    folder = write_mnist(tmp_path / "some")
    (folder / "train-labels-idx1-ubyte.gz").unlink()
    (folder / "t10k-images-idx3-ubyte.gz").unlink()
    with pytest.raises(BadInput, match="lacks train-labels-idx1-ubyte, t10k-images-idx3-ubyte") as error:
        load(folder)
    assert str(folder) in str(error.value)
    with pytest.raises(UsageProblem, match="is not a folder"):
        load(tmp_path / "nowhere")


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A folder served over HTTP as the only mirror, with small files as the published ones; an empty cache."""
    folder = write_mnist(tmp_path / "mirror")
    for name in mnist.PUBLISHED:
        data = (folder / f"{name}.gz").read_bytes()
        monkeypatch.setitem(mnist.PUBLISHED, name, mnist.Published(len(data), hashlib.sha256(data).hexdigest()))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv(mnist.MIRRORS_VARIABLE, f"http://127.0.0.1:{server.server_port}/")
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


def cached(tmp_path) -> set[str]:
    return {p.name for p in (tmp_path / "cache").rglob("*") if p.is_file()}


def test_files_are_downloaded_once(tmp_path, mirror, monkeypatch):
    task, said = load(None)
    assert said == load(mirror)[1]
    assert pixels(task).any()
    assert cached(tmp_path) == {f"{name}.gz" for name in mnist.PUBLISHED}
    (mirror / "train-images-idx3-ubyte.gz").unlink()
    assert load(None)[1] == said
    (tmp_path / "cache/memup/mnist/t10k-images-idx3-ubyte.gz").write_bytes(b"rotten")
    assert load(None)[1] == said, "a damaged one is fetched again"


def test_a_download_with_a_wrong_checksum_is_not_kept(tmp_path, mirror):
    whole = (mirror / "train-images-idx3-ubyte.gz").read_bytes()
    for data in (gzip.compress(IMAGES[:-1]), b"", whole[:-1], whole + b"x"):
        (mirror / "train-images-idx3-ubyte.gz").write_bytes(data)
        with pytest.raises(BadInput, match=r"train-images-idx3-ubyte.gz: not the published file.*--data-dir"):
            load(None)
        assert cached(tmp_path) == set()


def test_the_next_mirror_is_asked_if_one_fails(tmp_path, mirror, monkeypatch):
    good = os.environ[mnist.MIRRORS_VARIABLE]
    monkeypatch.setenv(mnist.MIRRORS_VARIABLE, f"http://127.0.0.1:1/ {good}nothing {good}")
    load(None)
    assert len(cached(tmp_path)) == 4


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/", "nonsense", "http://no.such.host.invalid/"])
def test_without_a_network_the_way_out_is_named(tmp_path, mirror, monkeypatch, address):
    monkeypatch.setenv(mnist.MIRRORS_VARIABLE, address)
    with pytest.raises(BadInput, match=r"cannot be downloaded \(.*train-images.*--data-dir.*MEMUP_MNIST_MIRRORS"):
        load(None)
    assert cached(tmp_path) == set()


def test_a_cache_that_cannot_be_written_is_named(tmp_path, mirror):
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StoreIO, match="XDG_CACHE_HOME"):
        load(None)


def test_the_cache_is_below_home_if_nothing_else_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert mnist.cache_folder() == tmp_path / ".cache/memup/mnist"


@pytest.mark.skipif(not REAL, reason="MEMUP_MNIST_DIR names no folder with MNIST")
def test_the_real_mnist():
    task, said = load(Path(REAL), sizes={"train": 60_000, "test": 10_000})
    assert {s: (i["count"], i["side"]) for s, i in said["images"].items()} == {
        "train": (60_000, 28),
        "test": (10_000, 28),
    }
    labels = [int(e.arrays["label"][-1]) for e in task.items("train", 0, 10)]
    assert labels == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert [int(e.arrays["label"][-1]) for e in task.items("test", 0, 5)] == [7, 2, 1, 0, 4]
    assert 0.12 < pixels(task, count=2000).mean() / 255 < 0.14


@pytest.mark.skipif(not REAL, reason="MEMUP_MNIST_DIR names no folder with MNIST")
def test_the_published_checksums_are_of_the_real_mnist():
    for name, published in mnist.PUBLISHED.items():
        path = Path(REAL) / f"{name}.gz"
        assert path.stat().st_size == published.size
        assert hashlib.sha256(path.read_bytes()).hexdigest() == published.sha256
