"""Somebody's own arrays and tables as runs: every kind of file, and what cannot be brought in."""

import csv
import itertools
import json
import signal
from pathlib import Path

import numpy as np
import pytest
import zarr

from memup_cli.records.runs import open_split
from stores.layout import SEED
from stores.manifest import Manifest
from tests.cli import assert_same_episodes, episodes, files_of

N, T, WIDTH = 30, 12, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, T, WIDTH)).astype(np.float32)
CLASS = np.arange(N) % 4
BY_STEP = RNG.integers(3, size=(N, T))
NUMBER = RNG.normal(size=N).astype(np.float32)
LENGTHS = 1 + np.arange(N) % 9
ALL = int(LENGTHS.sum())
NAMES = [f"x{i}" for i in range(WIDTH)]


@pytest.fixture
def save(memup):
    """Writes arrays below the test's folder as npy."""

    def write(**arrays) -> None:
        for name, values in arrays.items():
            np.save(memup.folder / f"{name}.npy", values)

    return write


@pytest.fixture
def bring(memup):
    """memup import arrays."""

    def call(run, inputs, *options, **how):
        return memup("import", "arrays", "--run", run, "--inputs", inputs, *options, **how)

    return call


def cells(lengths, rows, targets, labelled, split=None) -> list[list]:
    """The rows of a table: an episode's name, the inputs, the target or nothing."""
    names = np.repeat([f"e{i}" for i in range(len(lengths))], lengths)
    return [
        [name, *map(repr, row.tolist()), (repr(y.item()) if there else ""), *([split[name]] if split else [])]
        for name, row, y, there in zip(names, rows, targets, labelled, strict=True)
    ]


def write_csv(path: Path, rows: list[list], more: tuple[str, ...] = ()) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", *NAMES, "y", *more], *rows])


def write_parquet(path: Path, rows: list[list], more: tuple[str, ...] = ()) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    columns = dict(zip(["id", *NAMES, "y", *more], map(list, zip(*rows, strict=True)), strict=True))
    for name in NAMES:
        columns[name] = pa.array([float(value) for value in columns[name]], "float32")
    columns["y"] = pa.array([float(value) if value else None for value in columns["y"]])
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=50)


def data_of(folder: Path, run: str) -> dict[str, bytes]:
    return files_of(folder / run / "trajectories")


def spec_of(folder: Path, run: str) -> dict:
    return json.loads((folder / run / "manifest.json").read_text())["task"]["spec"]


def test_the_same_data_give_the_same_run_from_any_file(memup, save, bring):
    here = memup.folder
    last = np.arange(N * T) % T == T - 1
    rows = cells(np.full(N, T), X.reshape(-1, WIDTH), np.repeat(CLASS, T), last)
    save(X=X, y=CLASS, wide=X.astype(">f8"), order=np.asfortranarray(X), y8=CLASS.astype(np.uint8))
    np.savez(here / "stored.npz", X=X, y=CLASS)
    np.savez_compressed(here / "pressed.npz", X=X, y=CLASS)
    h5py = pytest.importorskip("h5py")
    with h5py.File(here / "all.h5", "w") as file:
        file.create_dataset("data/X", data=X, chunks=(7, 5, 2), compression="gzip")
        file["y"] = CLASS
    group = zarr.open_group(here / "group.zarr", mode="w")
    group.create_array("X", data=X, chunks=(4, 5, 3))
    group.create_array("deep/y", data=CLASS.astype(np.int32))
    zarr.save_array(here / "single", X)
    zarr.save_array(here / "old.zarr", X, zarr_format=2)
    write_csv(here / "steps.csv", rows)
    write_parquet(here / "steps.parquet", rows)
    columns = ["--target-column", "y", "--episode-column", "id"]
    ways = {
        "npy": ["X.npy", "--targets", "y.npy"],
        "wide": ["wide.npy", "--targets", "y8.npy"],
        "order": ["order.npy", "--targets", here / "y.npy"],
        "stored": ["stored.npz:X", "--targets", "stored.npz:y"],
        "pressed": ["pressed.npz:X", "--targets", "y.npy"],
        "hdf5": ["all.h5:data/X", "--targets", "all.h5:y"],
        "zarr": ["group.zarr:X", "--targets", "group.zarr:deep/y"],
        "alone": ["single", "--targets", "y.npy"],
        "old": ["old.zarr", "--targets", "y.npy"],
        "csv": ["steps.csv", *columns],
        "parquet": ["steps.parquet", *columns, "--columns", ",".join(NAMES)],
    }
    said = {run: bring(run, *way, "--classes").err for run, way in ways.items()}
    assert [run for run, err in said.items() if "RAM" in err] == ["pressed"]
    whole = data_of(here, "npy")
    assert [run for run in ways if data_of(here, run) != whole] == []
    for number, episode in enumerate(episodes(here / "npy") + episodes(here / "npy", "test")):
        np.testing.assert_array_equal(episode["input"], X[number])
        assert episode["asked"].tolist() == [0] * (T - 1) + [1]
        assert episode["target"].tolist() == [4] * (T - 1) + [CLASS[number]]
    assert "up to date" in bring("npy", *ways["csv"], "--classes").out  # where the data lie does not matter
    spec = spec_of(here, "npy")
    assert spec["evaluate"] == {"field": "asked", "value": 1, "column": None, "equal": True}
    assert spec["classes"] == {"asked": 2, "target": 5}
    assert "target" not in spec["memory_input"] + spec["query"]


def test_sequences_of_different_lengths_come_from_arrays_and_tables(memup, save, bring):
    here, flat, every = memup.folder, X.reshape(-1, WIDTH)[:ALL], NUMBER[np.arange(ALL) % N]
    save(flat=flat, lengths=LENGTHS, last=NUMBER, every=every)
    write_csv(here / "every.csv", cells(LENGTHS, flat, every, np.ones(ALL, bool)))
    write_parquet(here / "every.parquet", cells(LENGTHS, flat, every, np.ones(ALL, bool)))
    columns = ["--target-column", "y", "--episode-column", "id"]
    bring("last", "flat.npy", "--targets", "last.npy", "--lengths", "lengths.npy", "--numbers")
    bring("every", "flat.npy", "--targets", "every.npy", "--lengths", "lengths.npy", "--numbers")
    bring("csv", "every.csv", *columns, "--numbers")
    bring("parquet", "every.parquet", *columns, "--numbers")
    bring("both", "every.csv", "--targets", "last.npy", "--episode-column", "id", "--columns", "x0,x1,x2", "--numbers")
    assert data_of(here, "csv") == data_of(here, "parquet") == data_of(here, "every")
    assert data_of(here, "both") == data_of(here, "last")
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    last, every_step = (episodes(here / run) + episodes(here / run, "test") for run in ("last", "every"))
    for number, (one, other) in enumerate(zip(last, every_step, strict=True)):
        steps = slice(starts[number], starts[number + 1])
        np.testing.assert_array_equal(one["input"], flat[steps])
        np.testing.assert_array_equal(other["target"], every[steps])
        assert one["target"].tolist() == [0] * (LENGTHS[number] - 1) + [NUMBER[number]]
        assert "asked" not in other  # every step has a label
    assert spec_of(here, "every")["evaluate"] is None
    assert spec_of(here, "last")["target_kind"] == "scalar"


def test_empty_cells_are_steps_without_a_label(memup, bring):
    here, labelled = memup.folder, np.arange(N * T) % 5 == 1
    rows = cells(np.full(N, T), X.reshape(-1, WIDTH), BY_STEP.reshape(-1), labelled)
    write_csv(here / "some.csv", rows)
    write_parquet(here / "some.parquet", rows)
    for run in ("csv", "parquet"):
        bring(run, f"some.{run}", "--target-column", "y", "--episode-column", "id", "--classes")
    assert data_of(here, "csv") == data_of(here, "parquet")
    first = episodes(here / "csv")[0]
    assert np.flatnonzero(first["asked"]).tolist() == np.flatnonzero(labelled[:T]).tolist()
    assert (first["target"] == np.where(first["asked"], BY_STEP[0], 3)).all()


def test_targets_of_every_step_bytes_and_plain_rows(memup, save, bring):
    pixels = RNG.integers(256, size=(N, T, 4, 4, 1)).astype(np.uint8)
    save(pixels=pixels, plain=X[..., 0], flags=X > 0, y=BY_STEP)
    for name, wanted in (("pixels", pixels), ("plain", X[..., 0]), ("flags", (X > 0).astype(np.uint8))):
        bring(name, f"{name}.npy", "--targets", "y.npy", "--classes", "--test-share", 0)
        found = episodes(memup.folder / name)
        assert_same_episodes(found, [{"input": wanted[i], "target": BY_STEP[i].astype(np.uint8)} for i in range(N)])
        assert found[0]["input"].dtype == wanted.dtype


def parts_of(run: Path) -> list[list[int]]:
    """The numbers of the sequences to train on, to validate with and to test with."""
    config = Manifest.load(run).stages["collect"]["config"]
    return [open_split(run, config, split).rows[:, SEED].tolist() for split in ("train", "validation", "test")]


def test_which_sequences_are_for_the_test_can_be_said(memup, save, bring):
    here = memup.folder
    save(X=X, y=CLASS, some=np.array([7, 2, 29]))
    arrays = ["X.npy", "--targets", "y.npy", "--classes"]
    bring("share", *arrays)
    bring("half", *arrays, "--test-share", 0.5, "--validation-episodes", 2)
    bring("some", *arrays, "--test", "some.npy")
    split = {f"e{i}": ("validation", "train", "test", "train")[i % 4] for i in range(N)}
    last = np.arange(N * T) % T == T - 1
    write_csv(here / "split.csv", cells(np.full(N, T), X.reshape(-1, WIDTH), np.repeat(CLASS, T), last, split), ("s",))
    columns = ["--target-column", "y", "--episode-column", "id", "--split-column", "s", "--classes"]
    bring("named", "split.csv", *columns)
    found = {run: parts_of(here / run) for run in ("share", "half", "some", "named")}
    assert found["share"] == [[*range(17)], [*range(17, 27)], [27, 28, 29]]
    assert found["half"] == [[*range(13)], [13, 14], [*range(15, 30)]]
    assert found["some"][2] == [2, 7, 29]
    assert sorted(itertools.chain(*found["some"])) == list(range(N))
    assert found["named"] == [[i for i in range(N) if split[f"e{i}"] == s] for s in ("train", "validation", "test")]
    assert "up to date" in bring("named", "split.csv", *columns).out
    assert "validation" in bring("fewer", "split.csv", *columns, "--episodes", 9, code=2).err


def test_the_steps_that_matter_can_be_named(memup, save, bring):
    marked = X.copy()
    marked[..., 1] = np.arange(T) % 4 == 2
    save(X=marked, y=BY_STEP, last=CLASS)
    bring("run", "X.npy", "--targets", "y.npy", "--classes", "--matters", "input[1]=1")
    rule = {"field": "input", "value": 1.0, "column": 1, "equal": True}
    assert spec_of(memup.folder, "run")["evaluate"] == rule
    last = ["X.npy", "--targets", "last.npy", "--classes", "--matters"]
    assert "step 2 of sequence 0 is one, and has no label" in bring("other", *last, "input[1]=1", code=2).err
    assert "no step of any sequence" in bring("other", *last, "input[1]=7", code=2).err
    assert "input[0] to input[2]" in bring("other", *last, "speed=1", code=2).err


def test_an_import_that_was_killed_continues_with_the_same_data_only(memup, save, bring):
    big = RNG.normal(size=(400, 2000, 2)).astype(np.float32)
    save(X=big, y=np.arange(400) % 2)
    arrays = ["X.npy", "--targets", "y.npy", "--classes", "--commit-every", 0]
    bring("whole", *arrays)
    command = ["import", "arrays", "--run", "run", "--inputs", *arrays]
    held = memup.held(*command, at="run/trajectories/train/0000.zarr/episodes/row/zarr.json", nth=2)
    assert held.kill().code == -signal.SIGKILL
    big[399, 0, 0] += 1
    save(X=big)
    assert "other data" in bring("run", *arrays, code=65).err
    big[399, 0, 0] -= 1
    save(X=big)
    save(X2=big.astype(np.float64))
    done = memup("collect", "--run", "run")
    assert "resuming" in done.err
    assert data_of(memup.folder, "run") == data_of(memup.folder, "whole")
    assert "up to date" in bring("run", "X2.npy", *arrays[1:]).out
    assert "other options" in bring("run", *arrays, "--test-share", 0.2, code=2).err


def test_more_of_the_sequences_can_be_taken_later_and_parts_make_a_whole(memup, save, bring):
    save(X=X, y=CLASS)
    arrays = ["X.npy", "--targets", "y.npy", "--classes"]
    bring("grown", *arrays, "--episodes", 12)
    bring("grown", *arrays, "--episodes", 27)
    bring("whole", *arrays)
    assert data_of(memup.folder, "grown") == data_of(memup.folder, "whole")
    assert "only 27 train sequences" in bring("grown", *arrays, "--episodes", 28, code=2).err
    for part in range(2):
        bring("parts", *arrays, "--shard", f"{part}/2")
    assert_same_episodes(episodes(memup.folder / "parts", shards=2), episodes(memup.folder / "whole"))


def test_what_was_imported_trains(memup, save, bring):
    asking = np.concatenate([X, np.zeros((N, T, 1), np.float32)], -1)
    save(X=asking, y=NUMBER)
    bring("run", "X.npy", "--targets", "y.npy", "--numbers")
    memup("score", "--run", "run", "--updates", 20)
    memup("train-memory", "--run", "run", "--updates", 4)
    memup("evaluate", "memory", "--run", "run")
    shown = memup("inspect", "--run", "run", "--episode", 0).out
    assert "asked" in shown
    assert "without an environment" in memup("train-agent", "--run", "run", code=2).err


def at(values, place, value):
    """The values with another one at a place."""
    changed = np.array(values, copy=True)
    changed[place] = value
    return changed


A, C = X.reshape(-1, WIDTH)[:ALL], "--classes"
LONG = ["--lengths", "l.npy"]
WRONG: dict[str, tuple[dict, list, int, str]] = {
    "no file": ({"y": CLASS}, [C], 2, "x.npy: there is no such file"),
    "neither": ({"x": X, "y": CLASS}, [], 2, "either --classes or --numbers"),
    "both": ({"x": X, "y": CLASS}, [C, "--numbers"], 2, "either --classes or --numbers"),
    "flat": ({"x": A[:, 0], "y": CLASS}, [C], 2, "with --lengths"),
    "too few": ({"x": X, "y": CLASS[1:]}, [C], 65, "has shape (29,)"),
    "too wide": ({"x": X, "y": CLASS[:, None]}, [C], 65, "(30,), one per sequence, or (30, 12), one per step"),
    "nan": ({"x": at(X, (7, 3, 1), np.nan), "y": CLASS}, [C], 65, "sequence 7 have a number at step 3"),
    "infinite": ({"x": at(X, (0, 11, 0), -np.inf), "y": CLASS}, [C], 65, "sequence 0 have a number at step 11"),
    "large": ({"x": at(X.astype(float), (1, 2, 0), 1e300), "y": CLASS}, [C], 65, "too large for float32"),
    "nan target": ({"x": X, "y": at(NUMBER, 4, np.nan)}, ["--numbers"], 65, "the target of sequence 4 is not a fin"),
    "nan class": ({"x": X, "y": at(BY_STEP * 1.0, (4, 2), np.nan)}, [C], 65, "step 2 of sequence 4 is not a finite"),
    "negative": ({"x": X, "y": at(CLASS, 9, -1)}, [C], 65, "sequence 9, -1, is negative"),
    "fraction": ({"x": X, "y": at(CLASS * 1.0, 9, 0.5)}, [C], 65, "sequence 9, 0.5, is a fraction"),
    "one class": ({"x": X, "y": 0 * CLASS}, [C], 65, "all of one class"),
    "gap": ({"x": X, "y": CLASS * 2}, [C], 65, "none of class 1"),
    "no sum": ({"x": A, "y": CLASS, "l": LENGTHS + 1}, [C, *LONG], 65, "add up to"),
    "no steps": ({"x": A, "y": CLASS, "l": at(LENGTHS, 3, 0)}, [C, *LONG], 65, "length 0 for sequence 3"),
    "half steps": ({"x": A, "y": CLASS, "l": LENGTHS * 1.0}, [C, *LONG], 65, "whole numbers"),
    "objects": ({"x": np.array([[1, "a"]], object), "y": CLASS}, [C], 65, "never unpickled"),
    "complex": ({"x": X * 1j, "y": CLASS}, [C], 65, "complex numbers"),
    "strings": ({"x": X, "y": CLASS.astype(str)}, [C], 65, "strings"),
    "empty": ({"x": X[:0], "y": CLASS[:0]}, [C], 65, "is empty"),
    "test": ({"x": X, "y": CLASS, "l": np.array([3, 30])}, [C, "--test", "l.npy"], 65, "must name some of the 30"),
    "two tests": ({"x": X, "y": CLASS}, [C, "--test", "l.npy", "--test-share", 0.1], 2, "give one of them"),
    "no table": ({"x": X, "y": CLASS}, [C, "--target-column", "a"], 2, "is for tables"),
    "key": ({"x": X, "y": CLASS}, [C, "--lengths", "x.npy:a"], 2, "leave out :a"),
}


@pytest.mark.parametrize(("arrays", "options", "code", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_brought_in_is_said(memup, save, bring, arrays, options, code, said):
    save(**arrays)
    err = bring("run", "x.npy", "--targets", "y.npy", *options, code=code).err
    assert said in " ".join(err.split())
    assert not (memup.folder / "run").exists()


def test_files_that_are_not_what_they_say_are_told(memup, save, bring):
    here = memup.folder
    save(X=X, y=CLASS)
    np.savez(here / "two.npz", a=X, b=X, odd=np.array([{}], object))
    (here / "torn.npy").write_bytes((here / "X.npy").read_bytes()[:700])
    for name in ("bad.npy", "bad.npz", "bad.h5", "bad.txt", "bad.parquet"):
        (here / name).write_bytes(b"nothing of the kind, and long enough to be looked at")
    (here / "folder").mkdir()
    told = {
        "two.npz": (2, "say which one"),
        "two.npz:c": (2, "a, b, odd"),
        "two.npz:odd": (65, "never unpickled"),
        "torn.npy": (65, "cannot be read"),
        "bad.npy": (65, "cannot be read"),
        "bad.npz": (65, "cannot be read"),
        "bad.h5": (65, "cannot be read"),
        "bad.txt": (2, "'.txt' is not known"),
        "folder": (2, "without a Zarr array"),
    }
    for name, (code, said) in told.items():
        assert said in bring("run", name, "--targets", "y.npy", "--classes", code=code).err, name
    pytest.importorskip("pyarrow")
    table = ["--target-column", "y", "--episode-column", "id", "--classes"]
    assert "cannot be read" in bring("run", "bad.parquet", *table, code=65).err


TABLES = {
    "again": ("id,a,y\n1,0,0\n2,0,1\n1,0,0\n", 65, "row 2 (from 0) belongs to id '1' again"),
    "text": ("id,a,y\n1,0,0\n2,red,1\n", 65, "row 1 (from 0) has 'red' in 'a'"),
    "cells": ("id,a,y\n1,0,0\n2,1\n", 65, "row 1 (from 0) has 2 cells"),
    "hole": ("id,a,y\n1,0,0\n2,,1\n2,4,1\n", 65, "sequence 1 have a number at step 0 that is missing"),
    "no label": ("id,a,y\n1,0,0\n2,1,\n3,1,1\n", 65, "sequence 1 has no label"),
    "infinite": ("id,a,y\n1,0,0\n2,1,inf\n3,1,1\n", 65, "step 0 of sequence 1 is not a finite"),
    "no names": ("1,0,0\n2,1,1\n", 65, "does not name its columns"),
    "no rows": ("id,a,y\n", 65, "has no rows"),
    "twice": ("id,a,a,y\n1,0,0,0\n", 65, "more than one column 'a'"),
    "column": ("id,a,label\n1,0,0\n", 2, "It has: id, a, label"),
}


@pytest.mark.parametrize(("text", "code", "said"), TABLES.values(), ids=TABLES)
def test_wrong_tables_are_told(memup, bring, text, code, said):
    (memup.folder / "t.csv").write_text(text)
    err = bring("run", "t.csv", "--target-column", "y", "--episode-column", "id", "--classes", code=code).err
    assert said in " ".join(err.split())
    assert not (memup.folder / "run").exists()


def test_a_table_says_what_belongs_to_what(memup, save, bring):
    (memup.folder / "t.csv").write_text("id,a,y\n1,0,0\n2,1,1\n")
    save(y=CLASS)
    target, episode = ["--target-column", "y"], ["--episode-column", "id"]
    assert "--episode-column or --lengths" in bring("run", "t.csv", *target, "--classes", code=2).err
    (memup.folder / "s.csv").write_text("id,a,y,s\n1,0,0,train\n2,1,1,test\n2,1,1,train\n")
    (memup.folder / "n.csv").write_text("id,a,y,s\n1,0,0,train\n2,1,1,later\n")
    split = [*target, *episode, "--split-column", "s", "--classes"]
    assert "sequence 1 has rows of more than one split" in bring("run", "s.csv", *split, code=65).err
    assert "row 1 (from 0) has 'later'" in bring("run", "n.csv", *split, code=65).err
    assert "--target-column or --targets" in bring("run", "t.csv", *episode, "--classes", code=2).err
    assert "is the target" in bring("run", "t.csv", *target, *episode, "--columns", "a,y", "--classes", code=2).err
    assert "a table can only be" in bring("run", "y.npy", "--lengths", "t.csv", "--targets", "y.npy", "--classes",
                                          code=2).err  # fmt: skip
