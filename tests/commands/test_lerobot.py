"""LeRobot data sets of format v3.0 as runs, and what of them cannot be brought in."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from stores.layout import SEED, TERMINATED
from stores.reader import open_trajectories
from tests.cli import episodes, files_of

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
PIL = pytest.importorskip("PIL.Image")

LENGTHS = [5, 9, 1, 7, 4, 8, 3, 6, 12, 5]
FILES = [(0, 0), (0, 0), (0, 0), (0, 1), (0, 1), (0, 1), (0, 1), (1, 0), (1, 0), (1, 0)]  # chunk and file of each
FRAMES, STARTS = sum(LENGTHS), np.cumsum([0, *LENGTHS])
RNG = np.random.default_rng(0)
STATE, PLACE = RNG.normal(size=(FRAMES, 3)), RNG.normal(size=(FRAMES, 2)).astype(np.float32)
ACTION = RNG.normal(size=(FRAMES, 2)).astype(np.float32)
REWARD = RNG.normal(size=FRAMES).astype(np.float32)
EPISODE = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
FRAME = np.concatenate([np.arange(length) for length in LENGTHS])
LAST = np.array(LENGTHS)[EPISODE] - 1 == FRAME
PICTURES = RNG.integers(256, size=(FRAMES, 6, 8, 3)).astype(np.uint8)
OWN = {
    "timestamp": (FRAME / 10).astype(np.float32),
    "frame_index": FRAME,
    "episode_index": EPISODE,
    "index": np.arange(FRAMES),
    "task_index": EPISODE % 2,
}
USUAL = {"observation.state": STATE, "observation.place": PLACE, "action": ACTION, "next.reward": REWARD}


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    PIL.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def column(values: np.ndarray, lists: bool):
    """As LeRobot writes it: plain values, lists (of one length, as its own programs do, or of any), files of images."""
    if values.dtype == object:
        rows = [{"bytes": file, "path": f"frame-{number}.png"} for number, file in enumerate(values)]
        return pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    if values.ndim == 1:
        return pa.array(values)
    kind = pa.from_numpy_dtype(values.dtype)
    for size in reversed(values.shape[1:]):
        kind = pa.list_(kind) if lists else pa.list_(kind, size)
    return pa.array(values.tolist(), kind)


def write(folder: Path, columns: dict, *, info=None, features=None, meta=None, lists=False, group: int = 1000) -> Path:
    """A data set as LeRobot lays it out; `columns` are those of all frames."""
    columns = {**columns, **OWN}
    told = {
        name: {"dtype": "image", "shape": [6, 8, 3], "names": ["height", "width", "channels"]}
        if values.dtype == object
        else {"dtype": str(values.dtype), "shape": list(values.shape[1:]) or [1], "names": None}
        for name, values in columns.items()
    }
    about = {
        "codebase_version": "v3.0",
        "total_episodes": len(LENGTHS),
        "total_frames": FRAMES,
        "fps": 10,
        "splits": {"train": f"0:{len(LENGTHS)}"},
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "features": {**told, **(features or {})},
        **(info or {}),
    }
    (folder / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (folder / "meta" / "info.json").write_text(json.dumps(about))
    where = {
        "episode_index": np.arange(len(LENGTHS)),
        "length": np.array(LENGTHS),
        "data/chunk_index": np.array([chunk for chunk, _ in FILES]),
        "data/file_index": np.array([file for _, file in FILES]),
        "stats/action/max": np.zeros(len(LENGTHS)),
        **(meta or {}),
    }
    where = {name: values for name, values in where.items() if values is not None}
    for number, part in enumerate((slice(0, 6), slice(6, None))):
        table = pa.table({name: values[part] for name, values in where.items()})
        pq.write_table(table, folder / f"meta/episodes/chunk-000/file-{number:03d}.parquet")
    for chunk, file in sorted(set(FILES)):
        own = np.isin(EPISODE, [number for number, place in enumerate(FILES) if place == (chunk, file)])
        path = folder / f"data/chunk-{chunk:03d}/file-{file:03d}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        table = pa.table({name: column(values[own], lists) for name, values in columns.items()})
        pq.write_table(table, path, row_group_size=group)
    return folder


@pytest.fixture
def bring(memup):
    """memup import lerobot of the data set `data`, into `run`."""

    def call(*options, run="run", **how):
        return memup("import", "lerobot", "data", "--run", run, *options, **how)

    return call


def spec_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())["task"]["spec"]


def stored(run: Path) -> list[dict]:
    """All episodes of a run, in the order of the data set."""
    found = []
    for split in ("train", "test"):
        found += zip(open_trajectories(run, split).rows[:, SEED].tolist(), episodes(run, split), strict=True)
    assert sorted(number for number, _ in found) == list(range(len(LENGTHS)))
    return [episode for _, episode in sorted(found, key=lambda pair: pair[0])]


def assert_stored(run: Path, **wanted: np.ndarray) -> None:
    for number, episode in enumerate(stored(run)):
        assert set(episode) == set(wanted)
        for name, values in wanted.items():
            np.testing.assert_array_equal(episode[name], values[STARTS[number] : STARTS[number + 1]])


def test_rewards_come_in_as_those_of_environments(memup, bring):
    write(memup.folder / "data", {**USUAL, "next.done": LAST & (EPISODE != 3)})
    bring("--test-share", 0.2)
    both = np.concatenate([STATE, PLACE], 1).astype(np.float32)
    assert_stored(memup.folder / "run", observation=both, action=ACTION, reward=REWARD)
    test, train = (open_trajectories(memup.folder / "run", split).rows for split in ("test", "train"))
    assert test[:, SEED].tolist() == [2, 7]
    assert dict(train[:, [SEED, TERMINATED]].tolist()) == {n: int(n != 3) for n in (0, 1, 3, 4, 5, 6, 8, 9)}
    spec = spec_of(memup.folder / "run")
    assert (spec["target"], spec["target_kind"], spec["gamma"]) == ("reward", "return", None)
    assert (spec["memory_input"], spec["query"]) == (["observation", "previous_action"], ["observation", "action"])
    assert "up to date" in bring("--test-share", 0.2).out
    memup("score", "--run", "run", "--updates", 10)
    memup("train-memory", "--run", "run", "--updates", 2)
    for command in (["train-agent"], ["export", "minari", "--id", "robots-v0", "--to", "out"]):
        assert "without an environment" in memup(*command, "--run", "run", code=2).err
    assert "observation.place[1]" in bring("--matters", "speed=1", run="other", code=2).err.replace("\n", " ")
    bring("--matters", "observation.place[1]=1", run="other")
    assert spec_of(memup.folder / "other")["evaluate"]["column"] == 4


def test_however_the_same_frames_are_written_the_run_is_the_same(memup, bring):
    ways = [{}, {"lists": True}, {"group": 4}, {"lists": True, "group": 7}]
    for number, way in enumerate(ways):
        write(memup.folder / "data", USUAL, **way)
        bring(run=f"run{number}")
        shutil.move(memup.folder / "data", memup.folder / f"data{number}")
    found = [files_of(memup.folder / f"run{number}" / "trajectories") for number in range(len(ways))]
    assert [number for number in range(len(ways)) if found[number] != found[0]] == []
    moved = memup("import", "lerobot", "data3", "--run", "run0")
    assert "up to date" in moved.out  # where it lies does not matter
    write(memup.folder / "data", USUAL)
    bring("--episodes", 5, "--test-episodes", 1, run="part")
    shutil.rmtree(memup.folder / "data")
    write(memup.folder / "data", {**USUAL, "action": ACTION + 1})
    assert "other data" in bring("--episodes", 6, "--test-episodes", 1, run="part", code=65).err


def test_one_number_of_a_step_can_be_the_target(memup, bring):
    done, kind = LAST & (EPISODE % 2 == 0), (FRAME % 3).astype(np.int64)
    columns = {**USUAL, "next.success": done, "kind": kind, "action.grip": REWARD}  # pyarrow takes dots for paths
    write(memup.folder / "data", {name: columns[name] for name in columns if name != "next.reward"})
    err = bring(code=2).err
    assert "no rewards" in err
    assert "observation.state[0] to [2]" in " ".join(err.split())
    assert "action[0] to action[1]" in " ".join(bring("--target", "action", code=2).err.split())
    both = np.concatenate([STATE, PLACE], 1).astype(np.float32)
    bring("--target", "action[1]", run="action")
    assert_stored(memup.folder / "action", observation=both, action=ACTION, target=ACTION[:, 1])
    spec = spec_of(memup.folder / "action")
    assert (spec["query"], spec["target_kind"], spec["gamma"]) == (["observation"], "scalar", 0.0)
    bring("--target", "next.success", run="success")
    assert_stored(memup.folder / "success", observation=both, action=ACTION, target=done.astype(np.uint8))
    assert spec_of(memup.folder / "success")["classes"] == {"target": 2}
    assert spec_of(memup.folder / "success")["query"] == ["observation", "action"]
    bring("--target", "kind", run="kind")
    assert spec_of(memup.folder / "kind")["classes"] == {"target": 3}
    bring("--target", "kind", "--numbers", run="number")
    assert spec_of(memup.folder / "number")["target_kind"] == "scalar"
    bring("--target", "observation.state[0]", run="state")  # what is predicted is not seen
    assert_stored(memup.folder / "state", observation=PLACE, action=ACTION, target=STATE[:, 0].astype(np.float32))


def test_an_action_of_one_whole_number_is_a_class(memup, bring):
    write(memup.folder / "data", {**USUAL, "action": FRAME % 4, "observation.place": PLACE.reshape(FRAMES, 1, 2)})
    bring("--observe", "observation.place,task_index,frame_index")
    seen = np.concatenate([PLACE, (EPISODE % 2)[:, None], FRAME[:, None]], 1).astype(np.float32)
    assert_stored(memup.folder / "run", observation=seen, action=(FRAME % 4).astype(np.uint16), reward=REWARD)
    assert spec_of(memup.folder / "run")["classes"] == {"action": 4}
    bring("--observe", "observation.place", run="one")
    assert stored(memup.folder / "one")[1]["observation"].shape == (9, 1, 2)


def test_images_come_in_as_bytes_and_videos_are_left_out(memup, bring):
    files = np.array([png(pixels) for pixels in PICTURES], object)
    video = {"observation.images.top": {"dtype": "video", "shape": [480, 640, 3], "names": None}}
    write(memup.folder / "data", {**USUAL, "observation.image": files}, features=video)
    err = " ".join(bring().err.split())
    assert "left out, being videos: observation.images.top" in err
    assert "left out, being images: observation.image." in err
    assert stored(memup.folder / "run")[0]["observation"].shape == (5, 5)
    bring("--observe", "observation.image", run="seen")
    assert_stored(memup.folder / "seen", observation=PICTURES, action=ACTION, reward=REWARD)
    assert "is a video" in bring("--observe", "observation.images.top", run="no", code=2).err
    assert "alone" in bring("--observe", "observation.image,observation.state", run="no", code=2).err


def changed(values: np.ndarray, at, value) -> np.ndarray:
    found = np.array(values, copy=True)
    found[at] = value
    return found


def without(name: str) -> dict:
    return {key: values for key, values in USUAL.items() if key != name}


FALSE: dict[str, tuple[dict, dict, list, int, str]] = {
    "version": (USUAL, {"info": {"codebase_version": "v2.1"}}, [], 65, "of the format v2.1; memup reads v3.0"),
    "lance": (USUAL, {"info": {"storage_format": "lance"}}, [], 65, "stored as lance"),
    "no features": (USUAL, {"info": {"features": None}}, [], 65, "info.json cannot be read"),
    "episodes": (USUAL, {"info": {"total_episodes": 11}}, [], 65, "counts 11 episodes with 60 frames"),
    "frames": (USUAL, {"info": {"total_frames": 59}}, [], 65, "counts 10 episodes with 59 frames"),
    "lengths": (USUAL, {"meta": {"length": np.array([6, 8, *LENGTHS[2:]])}}, [], 65, "the frames of episode 0"),
    "rows": (USUAL, {"meta": {"length": np.array([4, *LENGTHS[1:9], 6])}}, [], 65, "000.parquet has 15 frames"),
    "empty": (USUAL, {"meta": {"length": np.array([5, 10, 0, *LENGTHS[3:]])}}, [], 65, "an episode without frames"),
    "numbers": (USUAL, {"meta": {"episode_index": 1 + np.arange(10)}}, [], 65, "numbered from 0"),
    "no file": (USUAL, {"meta": {"data/file_index": np.array([0, 0, 0, 1, 1, 1, 1, 5, 5, 5])}}, [], 65, "is missing"),
    "no place": (USUAL, {"meta": {"data/chunk_index": None}}, [], 65, "no column 'data/chunk_index'"),
    "no column": (USUAL, {"features": {"won": {"dtype": "bool", "shape": [1]}}}, ["--target", "won"], 65, "no column"),
    "shape": (USUAL, {"features": {"observation.place": {"dtype": "float32", "shape": [3]}}}, [], 65, "has 2 numbers"),
    "nan": ({**USUAL, "observation.state": changed(STATE, (STARTS[3] + 2, 1), np.nan)}, {}, [], 65, "at step 2"),
    "large": ({**USUAL, "observation.state": changed(STATE, (0, 0), 1e300)}, {}, [], 65, "too large for float32"),
    "target": ({**USUAL, "next.reward": changed(REWARD, 7, np.inf)}, {}, [], 65, "episode 1 of"),
    "fraction": (USUAL, {}, ["--target", "action[2]"], 2, "the last one is action[1]"),
    "name": (USUAL, {}, ["--target", "speed"], 2, "no such number"),
    "one class":
        ({**USUAL, "won": np.zeros(FRAMES, bool)}, {}, ["--target", "won"], 65, "all of one class"),
    "shown": (USUAL, {}, ["--target", "action[0]", "--observe", "action"], 2, "which no step may show"),
    "no numbers": (USUAL, {}, ["--observe", "sound"], 2, "no feature that holds numbers"),
    "blind": ({"action": ACTION, "next.reward": REWARD}, {}, [], 2, "--observe; there are: action"),
    "discount": (USUAL, {}, ["--target", "action[0]", "--gamma", 0.9], 2, "--gamma is the discount"),
    "too many": (USUAL, {}, ["--episodes", 10], 2, "has only 10 episodes"),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "how", "options", "code", "said"), FALSE.values(), ids=FALSE)
def test_what_cannot_be_brought_in_is_said(memup, bring, columns, how, options, code, said):
    write(memup.folder / "data", columns, **how)
    assert said in " ".join(bring(*options, code=code).err.split())
    assert not (memup.folder / "run").exists()


def test_files_that_are_missing_or_something_else_are_told(memup, bring):
    data = write(memup.folder / "data", USUAL)
    assert "no meta/info.json" in " ".join(memup("import", "lerobot", "nothing", "--run", "run", code=2).err.split())
    file = data / "data/chunk-000/file-001.parquet"
    whole = file.read_bytes()
    for text, said in ((whole[:900], "cannot be read"), (b"version https://git-lfs.github.com/spec/v1\n", "git lfs")):
        file.write_bytes(text)
        assert said in bring(code=65).err
    file.write_bytes(whole)
    files = np.array([png(pixels) for pixels in PICTURES], object)
    files[11] = png(PICTURES[11, :5])
    shutil.rmtree(data)
    write(data, {**USUAL, "observation.image": files})
    assert "picture of 5 x 8 pixels" in " ".join(bring("--observe", "observation.image", code=65).err.split())
    shutil.rmtree(data / "meta/episodes")
    assert "download complete" in " ".join(bring(run="other", code=65).err.split())


def test_more_is_imported_as_far_as_it_goes_and_parts_make_a_whole(memup, bring):
    write(memup.folder / "data", USUAL)
    bring("--episodes", 4, "--test-episodes", 2, run="grown")
    bring("--episodes", 7, "--test-episodes", 2, run="grown")
    bring("--episodes", 7, "--test-episodes", 2, run="whole")
    assert files_of(memup.folder / "grown/trajectories") == files_of(memup.folder / "whole/trajectories")
    assert "shared out anew" in bring("--episodes", 7, "--test-episodes", 3, run="grown", code=2).err
    memup.killed("import", "lerobot", "data", "--run", "killed", "--commit-every", 0, "--test-episodes", 2,
                 "--episodes", 7, at="killed/trajectories/train/0000.zarr/episodes/row/zarr.json")  # fmt: skip
    memup("collect", "--run", "killed")
    assert files_of(memup.folder / "killed/trajectories") == files_of(memup.folder / "whole/trajectories")
