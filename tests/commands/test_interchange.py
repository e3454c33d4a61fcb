"""Runs and Minari data sets: out and in again, and what cannot be brought in."""

import json

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from stores.layout import SEED, TERMINATED
from stores.reader import open_trajectories
from tests.cli import assert_same_episodes, episodes, files_of

LENGTHS = (5, 9, 1, 7)


@pytest.fixture
def root(memup, monkeypatch):
    """Minari's own folder, in the test's."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(memup.folder / "root"))
    return memup.folder / "root"


def write(name: str, observation: spaces.Space, action: spaces.Space, jpeg: bool = True) -> list[EpisodeBuffer]:
    """A data set as any program would write it with Minari; returns what is in it."""
    rng = np.random.default_rng(0)
    buffers = []
    for number, steps in enumerate(LENGTHS):
        observation.seed(number)
        action.seed(number)
        last = np.arange(steps) == steps - 1
        buffers.append(
            EpisodeBuffer(
                seed=100 + number,
                observations=stacked(observation, [observation.sample() for _ in range(steps + 1)]),
                actions=stacked(action, [action.sample() for _ in range(steps)]),
                rewards=rng.normal(size=steps),
                terminations=last & (number != 1),
                truncations=last & (number == 1),
                infos={},
            )
        )
    with pytest.warns(UserWarning, match="is set to None|env_spec is None"):
        minari.create_dataset_from_buffers(
            name, buffers, observation_space=observation, action_space=action, jpeg_encoding=jpeg
        )
    return buffers


def stacked(space, samples):
    if isinstance(space, spaces.Dict):
        return {key: stacked(inner, [s[key] for s in samples]) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(inner, [s[i] for s in samples]) for i, inner in enumerate(space.spaces))
    return samples if isinstance(space, spaces.Text) else np.array(samples)


def test_a_run_goes_out_and_comes_back_and_trains(memup, root):
    memup("collect", "tmaze", "--length", 20, "--episodes", 60, "--test-episodes", 0, "--run", "run")
    out = memup("export", "minari", "--run", "run", "--id", "mazes/random-v0", "--json").json
    assert out["episodes"] == 60
    memup("import", "minari", root / "mazes" / "random-v0", "--run", "back", "--test-share", 0.2)
    ours = episodes(memup.folder / "run")
    held_out = range(2, 60, 5)
    assert_same_episodes([ours[i] for i in held_out], episodes(memup.folder / "back", "test"))
    assert_same_episodes([ours[i] for i in range(60) if i not in held_out], episodes(memup.folder / "back"))
    there, here = (open_trajectories(memup.folder / run) for run in ("run", "back"))
    assert there.fields == here.fields
    np.testing.assert_array_equal(np.delete(there.rows[:, SEED], held_out), here.rows[:, SEED])
    memup("score", "--run", "back", "--updates", 50)
    trained = memup("train-memory", "--run", "back", "--updates", 10, "--json").json
    assert trained["updates"] == 10
    memup("train-agent", "--run", "back", "--steps", 500, "--envs", 8)


def test_the_steps_that_matter_can_be_named(memup, root):
    memup("collect", "tmaze", "--length", 20, "--episodes", 5, "--test-episodes", 0, "--run", "run")
    memup("export", "minari", "--run", "run", "--id", "mazes/random-v0")
    memup("import", "minari", "mazes/random-v0", "--run", "back", "--matters", "reward!=0")
    task = json.loads((memup.folder / "back/manifest.json").read_text())["task"]
    assert task["options"]["matters"] == "reward!=0"
    assert task["spec"]["evaluate"] == {"field": "reward", "value": 0.0, "column": None, "equal": False}
    write("parts-v0", spaces.Dict(hint=spaces.Box(0, 1, (1,), np.float32), at=spaces.Discrete(3)), spaces.Discrete(2))
    memup("import", "minari", "parts-v0", "--run", "parts", "--matters", "at[2]=1")
    spec = json.loads((memup.folder / "parts/manifest.json").read_text())["task"]["spec"]
    assert spec["evaluate"] == {"field": "observation", "value": 1.0, "column": 2, "equal": True}
    assert "it has observation[0] to" in memup("import", "minari", "parts-v0", "--matters", "hints=1", code=2).err


def test_more_of_a_data_set_is_imported_as_far_as_it_goes(memup, root):
    memup("collect", "tmaze", "--length", 20, "--episodes", 20, "--test-episodes", 0, "--run", "run")
    memup("export", "minari", "--run", "run", "--id", "mazes/few-v0")
    part = ["import", "minari", root / "mazes" / "few-v0", "--test-episodes", 4]
    memup(*part, "--episodes", 9, "--run", "back")
    memup(*part, "--episodes", 14, "--run", "back")
    memup(*part, "--episodes", 14, "--run", "whole")
    assert files_of(memup.folder / "back/trajectories") == files_of(memup.folder / "whole/trajectories")
    assert "has only 20 episodes" in memup(*part, "--episodes", 17, "--run", "back", code=2).err
    refused = memup(*part[:3], "--episodes", 14, "--test-episodes", 5, "--run", "back", code=2).err
    assert "shared out anew" in refused


def test_minari_reads_what_was_exported(memup, root):
    memup("collect", "gym", "--env-id", "CartPole-v1", "--max-steps", 12, "--episodes", 6, "--test-episodes", 3,
          "--run", "run")  # fmt: skip
    memup("export", "minari", "--run", "run", "--id", "poles-v0", "--split", "test")
    data = minari.load_dataset("poles-v0")
    ours, rows = episodes(memup.folder / "run", "test"), open_trajectories(memup.folder / "run", "test").rows
    assert len(data) == 3
    for mine, theirs, row in zip(ours, data, rows, strict=True):
        np.testing.assert_array_equal(
            theirs.observations, np.concatenate([mine["observation"], mine["observation"][-1:]])
        )
        np.testing.assert_array_equal(theirs.actions, mine["action"])
        np.testing.assert_array_equal(theirs.rewards, mine["reward"])
        assert theirs.terminations[-1] == row[TERMINATED] != theirs.truncations[-1]
    with data.recover_environment() as env:
        assert env.spec.max_episode_steps == 12
        assert env.observation_space == data.observation_space == gymnasium.make("CartPole-v1").observation_space


@pytest.mark.parametrize("observation", [
    spaces.Box(-1, 1, (2, 3), np.float64),
    spaces.Box(0, 255, (40, 36, 3), np.uint8),
    spaces.Discrete(5, start=3),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("action", [
    spaces.Discrete(3, start=-1),
    spaces.Box(-2, 2, (2,), np.float32),
    spaces.MultiDiscrete([3, 2], start=[1, -4]),
    spaces.MultiBinary(3),
], ids=str)  # fmt: skip
def test_spaces_come_in_as_they_are(memup, root, observation, action):
    written = write("things-v0", observation, action, jpeg=False)
    memup("import", "minari", "things-v0", "--run", "run", "--test-episodes", 0, "--episodes", 4)
    found, rows = episodes(memup.folder / "run"), open_trajectories(memup.folder / "run").rows
    for mine, theirs in zip(found, written, strict=True):
        assert mine["observation"].dtype == (
            np.uint8 if isinstance(observation, spaces.Discrete) else observation.dtype
        )
        np.testing.assert_array_equal(mine["observation"], theirs.observations[:-1] - getattr(observation, "start", 0))
        np.testing.assert_array_equal(mine["action"], theirs.actions - getattr(action, "start", 0))
        np.testing.assert_array_equal(mine["reward"], theirs.rewards.astype(np.float32))
    assert rows[:, SEED].tolist() == [100, 101, 102, 103]
    assert rows[:, TERMINATED].tolist() == [1, 0, 1, 1]


MIXED = spaces.Dict(
    image=spaces.Box(0, 9, (2, 2), np.uint8),
    way=spaces.Discrete(4, start=1),
    more=spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(2)]),
    mission=spaces.Text(5),
)


def test_parts_of_an_observation_become_one_vector(memup, root):
    written = write("mixed-v0", MIXED, spaces.Discrete(2))
    said = memup("import", "minari", "mixed-v0", "--run", "run", "--test-share", 0).err
    assert "mission" in said
    numeric = spaces.Dict({key: space for key, space in MIXED.spaces.items() if key != "mission"})
    for mine, theirs in zip(episodes(memup.folder / "run"), written, strict=True):
        for t, row in enumerate(mine["observation"]):
            step = {key: tuple(v[t] for v in values) if key == "more" else values[t]
                    for key, values in theirs.observations.items() if key != "mission"}  # fmt: skip
            np.testing.assert_array_equal(row, spaces.flatten(numeric, step))
    memup("import", "minari", "mixed-v0", "--run", "image", "--test-share", 0, "--observe", "image")
    assert episodes(memup.folder / "image")[0]["observation"].shape == (5, 2, 2)


UNUSABLE = [
    (spaces.Text(4), spaces.Discrete(2), [], 2, "Text"),
    (spaces.Discrete(4), spaces.Tuple([spaces.Discrete(2)]), [], 2, "of the kind Tuple"),
    (spaces.Discrete(4), spaces.Discrete(2), ["--episodes", 9], 2, "only 4 episodes"),
    (spaces.Discrete(4), spaces.Discrete(2), ["--observe", "image"], 2, "no parts"),
    (MIXED, spaces.Discrete(2), ["--observe", "sound"], 2, "image, "),
]


@pytest.mark.parametrize(("observation", "action", "options", "code", "said"), UNUSABLE, ids=[u[4] for u in UNUSABLE])
def test_what_cannot_be_brought_in_is_said(memup, root, observation, action, options, code, said):
    write("things-v0", observation, action)
    assert said in memup("import", "minari", "things-v0", "--run", "run", *options, code=code).err
    assert not (memup.folder / "run").exists()


def test_a_data_set_that_is_missing_or_damaged_is_said(memup, root):
    assert "no Minari data set" in memup("import", "minari", "things-v0", "--run", "run", code=2).err
    write("things-v0", spaces.Discrete(2), spaces.Discrete(2))
    file = root / "things-v0" / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:3000])
    assert "cannot be read" in memup("import", "minari", "things-v0", "--run", "run", code=65).err
    (root / "things-v0" / "data" / "metadata.json").write_text("{}")
    assert "spaces" in memup("import", "minari", "things-v0", "--run", "other", code=65).err


def test_what_cannot_be_written_is_said(memup, root):
    memup("collect", "add", "--length", 20, "--episodes", 4, "--test-episodes", 0, "--run", "sums")
    assert "without an environment" in memup("export", "minari", "--run", "sums", "--id", "sums-v0", code=2).err
    memup("collect", "tmaze", "--length", 5, "--episodes", 4, "--test-episodes", 0, "--run", "run")
    assert "no episodes" in memup("export", "minari", "--run", "run", "--id", "a-v0", "--split", "test", code=2).err
    assert "NAME-vN" in memup("export", "minari", "--run", "run", "--id", "../a", code=2).err
    memup("export", "minari", "--run", "run", "--id", "a-v0", "--to", "elsewhere")
    assert "exists" in memup("export", "minari", "--run", "run", "--id", "a-v0", "--to", "elsewhere", code=2).err
    assert sorted(p.name for p in memup.folder.iterdir()) == ["elsewhere", "run", "sums"]


def test_minari_is_optional(memup):
    (memup.folder / "minari.py").write_text("raise ImportError('No module named minari')")
    env = {"PYTHONPATH": str(memup.folder)}
    memup("--help", env=env)
    memup("collect", "tmaze", "--length", 5, "--episodes", 4, "--test-episodes", 0, "--run", "run", env=env)
    failed = memup("export", "minari", "--run", "run", "--id", "a-v0", "--to", "a", code=2, env=env)
    assert "pip install" in failed.err
    (memup.folder / "a" / "data").mkdir(parents=True)
    (memup.folder / "a" / "data" / "metadata.json").write_text(
        '{"observation_space": "", "action_space": "", "total_episodes": 1, "total_steps": 1}'
    )
    assert "pip install" in memup("import", "minari", "a", "--run", "in", code=2, env=env).err
