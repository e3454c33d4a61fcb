"""Files on a server that answers late: what happened counts, not what was said of it."""

import os

import pytest

from stores.errors import StoreIO
from stores.files import write_durably


@pytest.mark.parametrize("done", [True, False])
def test_a_rename_that_was_done_is_told_from_one_that_was_not(tmp_path, monkeypatch, done):
    """The server did the first of two tries, and answers to the second that there is no such file."""
    path, replace = tmp_path / "manifest.json", os.replace
    path.write_bytes(b"old")

    def retried(source, target):
        if done:
            replace(source, target)
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "replace", retried)
    if done:
        write_durably(path, b"new")
    else:
        with pytest.raises(StoreIO, match=r"cannot write .*manifest\.json"):
            write_durably(path, b"new")
    assert path.read_bytes() == (b"new" if done else b"old")
    assert list(tmp_path.iterdir()) == [path]
