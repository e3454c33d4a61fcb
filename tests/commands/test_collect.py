"""memup collect through the command line: what it writes, refuses and says."""

import json
import os

import gymnasium
import numpy as np
import pytest
import zarr

from memup_cli.records.runs import collect_command, missing_shards
from tests.cli import assert_same_episodes, episodes, files_of


@pytest.mark.parametrize(("task", "length"), [("tmaze", 300), ("copy", 50), ("scattered-copy", 50), ("add", 40)])
def test_a_task_is_collected_into_its_default_folder(memup, task, length):
    done = memup("collect", task, "--length", length, "--episodes", 30, "--test-episodes", 4)
    run = memup.folder / "runs" / f"{task}-{length}"
    assert str(run.relative_to(memup.folder)) in done.out
    train, test = episodes(run), episodes(run, "test")
    assert (len(train), len(test)) == (30, 4)
    flat = {name: np.concatenate([e[name].ravel() for e in train]) for name in train[0]}
    held_out = {name: np.concatenate([e[name].ravel() for e in test]) for name in test[0]}
    assert any(not np.array_equal(flat[n][: held_out[n].size], held_out[n]) for n in flat), "test episodes are others"


def test_plain_zarr_reads_the_store(memup, run):
    group = zarr.open_group(str(run / "trajectories" / "train" / "0000.zarr"), mode="r", use_consolidated=False)
    rows = group["episodes/row"]
    assert rows.attrs["memup"]["columns"][:2] == ["start", "length"]
    assert rows.attrs["memup"]["committed"] == 60
    start, length = rows[41, :2]
    expected = episodes(run)[41]
    for name, values in expected.items():
        np.testing.assert_array_equal(group[f"steps/{name}"][start : start + length], values)


def test_shards_workers_and_commit_pace_do_not_change_the_data(memup, run):
    arguments = ["collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5]
    parts = [memup.start(*arguments, "--run", "parts", "--shard", f"{i}/4", "--workers", i + 1) for i in (3, 1, 0, 2)]
    for part in parts:
        done = part.wait()
        assert done.code == 0, done.err
    for split in ("train", "test"):
        assert_same_episodes(episodes(run, split), episodes(memup.folder / "parts", split, shards=4))
    manifests = [json.loads((memup.folder / r / "manifest.json").read_text()) for r in ("run", "parts")]
    collects = [m["stages"]["collect"] for m in manifests]
    assert collects[1]["status"] == "complete"
    assert collects[0]["outputs"] == collects[1]["outputs"], "the digest is of the episodes, not of the files"
    memup(*arguments, "--run", "slow", "--workers", 1, "--commit-every", 0)
    assert files_of(memup.folder / "slow" / "trajectories") == files_of(run / "trajectories")


def test_missing_shards_are_listed_as_a_job_array_takes_them():
    entry = {"config": {"shards": 12}, "missing": [{"shard": f"{i}/12"} for i in (10, 0, 4, 5, 6, 4, 11)]}
    assert missing_shards(entry) == "0,4-6,10-11"
    assert collect_command("runs/a b", entry).endswith("--run 'runs/a b' --shard I/12, for I in 0,4-6,10-11")


def test_a_part_that_there_is_not_is_refused_when_a_run_is_continued(memup):
    memup("collect", "tmaze", "--length", 20, "--episodes", 6, "--test-episodes", 2, "--run", "run", "--shard", "0/3")
    refused = memup("collect", "--run", "run", "--shard", "3/3", code=2)
    assert "--shard 3/3: must be I/N with I from 0 to N-1" in refused.err


def test_a_missing_shard_is_named(memup):
    arguments = ["collect", "copy", "--episodes", 40, "--test-episodes", 8, "--run", "run"]
    for part in (0, 1, 3):
        memup(*arguments, "--shard", f"{part}/4")
    shown = memup("status", "--run", "run").out
    assert "trajectories/train/0002.zarr (shard 2/4): not collected" in shown
    assert "--shard 2/4" in shown
    entry = memup("status", "--run", "run", "--json").json["stages"]["collect"]
    assert entry["status"] != "complete"
    assert {m["shard"] for m in entry["missing"]} == {"2/4"}
    assert (entry["done"], entry["total"]) == (36, 48)
    memup("inspect", "--run", "run", code=3)
    refused = memup("score", "--run", "run", code=3).err
    assert "shard 2 of 4 (trajectories/train/0002.zarr" in refused
    assert "memup collect --run run --shard 2/4" in refused
    memup("collect", "--run", "run", "--shard", "2/4")
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["status"] == "complete"


def test_running_again_is_safe(memup, run):
    before = files_of(run)
    again = ["collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5, "--run", "run"]
    assert "up to date" in memup(*again).out
    assert "up to date" in memup("collect", "--run", "run").out
    assert files_of(run) == before
    refused = memup(*again, "--seed", 3, code=2)
    assert "seed was 0 and is now 3" in refused.err
    refused = memup("collect", "tmaze", "--length", 100, "--run", "run", code=2)
    assert "length was 40000 and is now 100" in refused.err
    assert files_of(run) == before
    memup("collect", "copy", "--episodes", 5, "--test-episodes", 0, "--run", "run", "--restart")
    assert len(episodes(run)) == 5
    assert set(episodes(run)[0]) == {"input", "target"}


def test_the_seed_changes_every_episode(memup):
    small = ["collect", "copy", "--episodes", 12, "--test-episodes", 2]
    memup(*small, "--run", "a", "--seed", 1)
    memup(*small, "--run", "b", "--seed", 2)
    memup(*small, "--run", "c", "--seed", 1)
    a, b, c = (episodes(memup.folder / r) for r in "abc")
    assert_same_episodes(a, c)
    assert all((x["input"] != y["input"]).any() for x, y in zip(a, b, strict=True))


def test_precedence_flags_then_variables_then_file_then_defaults(memup):
    (memup.folder / "options.toml").write_text("seed = 7\n[collect]\nepisodes = 11\ntest-episodes = 3\nlength = 33\n")

    def config(*flags, **variables):
        out = memup("collect", "copy", "--dry-run", "--json", *flags, env=variables).json
        return out["config"]["episodes"], out["config"]["seed"], out["task"]["options"]["length"], out["run"]

    file = ("--config", "options.toml")
    assert config() == (10_000, 0, 120, "runs/copy-120")
    assert config(*file) == (11, 7, 33, "runs/copy-33")
    assert config(*file, MEMUP_COLLECT_EPISODES="12", MEMUP_RUN="there") == (12, 7, 33, "there")
    assert config(*file, "--episodes", 13, MEMUP_COLLECT_EPISODES="12") == (13, 7, 33, "runs/copy-33")
    assert not (memup.folder / "runs").exists(), "a dry run writes nothing"
    (memup.folder / "options.toml").write_text("[collect]\nlenght = 33\n")
    assert "lenght" in memup("collect", "copy", *file, code=2).err


BAD = [
    (["collect", "tmaze", "--length", "0"], 2, "--length 0"),
    (["collect", "tmaze", "--length", "ten"], 2, "--length"),
    (["collect", "tmaze", "--episodes", "-1"], 2, "--episodes -1"),
    (["collect", "tmaze", "--episodes", "0"], 2, "--episodes 0"),
    (["collect", "tmaze", "--mode", "XYZ"], 2, "--mode"),
    (["collect", "tmaze", "--length", "52", "--distractors", "9"], 2, "no room"),
    (["collect", "copy", "--length", "19"], 2, "--length 19"),
    (["collect", "tmaze", "--shard", "4/4"], 2, "--shard 4/4"),
    (["collect", "tmaze", "--shard", "x"], 2, "--shard x"),
    (["collect", "copy", "--episodes", "2", "--shard", "0/3"], 2, "only 2 episodes"),
    (["collect", "nonsense"], 2, "Known tasks: add, arrays, copy, endless-tmaze, gym, lerobot, minari, pmnist, "),
    (["collect", "tmaze", "--lenght", "5"], 2, "--lenght"),
    (["collect", "tmaze", "--device", "tpu"], 2, "--device tpu"),
    (["collect", "tmaze", "--config", "missing.toml"], 2, "missing.toml"),
    (["collect"], 2, "name a task"),
    (["collect", "gym"], 2, "--env-id is required"),
    (["collect", "gym", "--env-id", "Nowhere-v9"], 2, "Nowhere"),
    (["collect", "gym", "--env-id", "CartPole-v1", "--import", "no_such_module"], 2, "no_such_module"),
    (["collect", "--run", "nowhere"], 3, "memup collect"),
    (["status"], 3, "memup collect"),
    (["frobnicate"], 2, "frobnicate"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "words"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else None
)
def test_bad_input_is_explained_and_leaves_nothing_behind(memup, arguments, code, words):
    failed = memup(*arguments, code=code)
    assert words in failed.err
    assert failed.err.strip().count("\n") == 0, f"one paragraph, not:\n{failed.err}"
    assert failed.out == ""
    assert list(memup.folder.iterdir()) == []


def test_a_folder_that_is_not_a_run_is_left_alone(memup):
    (memup.folder / "photos").mkdir()
    (memup.folder / "photos" / "cat.jpg").write_text("miaow")
    assert "not a run" in memup("collect", "copy", "--run", "photos", code=2).err
    assert files_of(memup.folder) == {"photos/cat.jpg": b"miaow"}


def test_several_runs_are_listed_where_one_is_meant(memup):
    for length in (20, 30):
        memup("collect", "copy", "--length", length, "--episodes", 3, "--test-episodes", 1)
    err = memup("status", code=2).err
    assert "runs/copy-20, runs/copy-30" in err
    assert memup("status", "--json", env={"MEMUP_RUN": "runs/copy-30"}).json["task"]["length"] == 30


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_gymnasium_environments_are_stored_as_they_step(memup, env_id):
    arguments = ["collect", "gym", "--env-id", env_id, "--episodes", 9, "--test-episodes", 2, "--max-steps", 50]
    memup(*arguments, "--run", "run", "--workers", 2)
    memup(*arguments, "--run", "one", "--workers", 1)
    assert files_of(memup.folder / "run" / "trajectories") == files_of(memup.folder / "one" / "trajectories")
    stored = zarr.open_group(str(memup.folder / "run" / "trajectories/train/0000.zarr"), mode="r")["episodes/row"][:]
    env = gymnasium.make(env_id)
    for row, arrays in zip(stored, episodes(memup.folder / "run"), strict=True):
        observation, _ = env.reset(seed=int(row[2]))
        terminated = False
        for t, action in enumerate(arrays["action"]):
            np.testing.assert_array_equal(observation, arrays["observation"][t])
            observation, reward, terminated, truncated, _ = env.step(action)
            assert np.float32(reward) == arrays["reward"][t]
        assert bool(row[3]) == terminated
        assert terminated or truncated or len(arrays["action"]) == 50


def test_environments_registered_elsewhere_can_be_imported(memup):
    arguments = ["--env-id", "memup/TMaze-v0", "--import", "memup_cli.envs", "--episodes", 3, "--test-episodes", 0]
    memup("collect", "gym", *arguments)
    assert len(episodes(memup.folder / "runs" / "gym-memup-TMaze-v0")) == 3


def test_observations_of_several_parts_become_one_vector(memup):
    arguments = ["--env-id", "Blackjack-v1", "--episodes", 3, "--test-episodes", 0, "--run", "cards"]
    assert "0, 1, 2, as 45 numbers" in memup("collect", "gym", *arguments).err
    first = episodes(memup.folder / "cards")[0]["observation"][0]
    (env := gymnasium.make("Blackjack-v1")).reset(seed=0)
    assert first.shape == gymnasium.spaces.flatten_space(env.observation_space).shape
    assert first.sum() == 3  # one-hot: the sum, the dealer's card, and whether there is an ace
    memup("score", "--run", "cards", "--updates", 5)


def test_an_environment_with_other_spaces_is_refused(memup):
    (memup.folder / "worded.py").write_text(
        "import gymnasium\n"
        "class Worded(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Text(4)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "gymnasium.register('Worded-v0', entry_point=Worded)\n"
    )
    assert "Text" in memup("collect", "gym", "--env-id", "Worded-v0", "--import", "worded", code=2).err
    assert not (memup.folder / "runs").exists()


def test_an_environment_that_fails_is_named_with_its_seed(memup):
    (memup.folder / "broken_env.py").write_text(
        "import gymnasium\n"
        "class Broken(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Discrete(3)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None): return 0, {}\n"
        "    def step(self, action): raise RuntimeError('the floor is lava')\n"
        "gymnasium.register('Broken-v0', entry_point=Broken)\n"
    )
    failed = memup("collect", "gym", "--env-id", "Broken-v0", "--import", "broken_env", code=65)
    assert "the floor is lava" in failed.err
    assert "seed" in failed.err


def test_a_task_from_another_package_is_found(memup):
    package = memup.folder / "site"
    (package / "plugin-1.0.dist-info").mkdir(parents=True)
    (package / "plugin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (package / "plugin-1.0.dist-info" / "entry_points.txt").write_text(
        "[memup.tasks]\nparity = plugin:Parity\nhopeless = plugin:Missing\n"
    )
    (package / "plugin.py").write_text(
        "from memup_cli.tasks.adding import Add\n"
        "class Parity(Add):\n"
        "    summary = 'A task from elsewhere.'\n"
        "    @property\n"
        "    def run_name(self): return 'parity'\n"
    )
    path = {"PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}
    assert "A task from elsewhere." in memup("collect", "--help", env=path).out
    memup("collect", "parity", "--episodes", 4, "--test-episodes", 1, env=path)
    assert len(episodes(memup.folder / "runs" / "parity")) == 4
    assert "does not load" in memup("collect", "hopeless", code=2, env=path).err


def test_a_million_steps(memup):
    memup("collect", "tmaze", "--length", 1_000_000, "--episodes", 2, "--test-episodes", 1, "--run", "run")
    (first, second) = episodes(memup.folder / "run")
    assert len(first["reward"]) >= 1_000_001
    assert np.flatnonzero(second["reward"]).tolist() == [len(second["reward"]) - 1]
