"""What the tasks yield is what METHOD says, and what stepping the environments gives."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import memup_cli.envs  # noqa: F401  registers memup/TMaze-v0
from memup_cli.tasks import load_task, task_names
from memup_cli.tasks.adding import Add, AddOptions
from memup_cli.tasks.copying import Copy, CopyOptions, ScatteredCopy
from memup_cli.tasks.mazes.endless import EndlessOptions, EndlessTMaze
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from memup_cli.tasks.mazes.tmaze_env import MazeEnv, MazeVectorEnv

MAZES = [
    TMazeOptions(length=30),
    TMazeOptions(length=1, mode="LN"),
    TMazeOptions(length=17, mode="LN"),
    TMazeOptions(length=100, distractors=4),
    TMazeOptions(length=60, distractors=10, mode="LN"),
    EndlessOptions(corridors=4, length=9),
    EndlessOptions(corridors=3, length=1, mode="LN"),
]


@pytest.mark.parametrize("options", MAZES, ids=str)
def test_tmaze_episodes_equal_stepping_the_environment(options):
    env = MazeEnv(options)
    for seed in (0, 1, 2**62 + 5):
        arrays = TMaze(options).episode(seed).arrays
        observation, _ = env.reset(seed=seed)
        for t, action in enumerate(arrays["action"]):
            np.testing.assert_array_equal(observation, arrays["observation"][t])
            assert observation in env.observation_space
            observation, reward, terminated, truncated, _ = env.step(int(action))
            assert reward == arrays["reward"][t]
            assert not truncated
            assert terminated == (t == len(arrays["action"]) - 1)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("options", MAZES, ids=str)
def test_the_vector_environment_equals_single_ones(options, mode):
    count, rng = 5, np.random.default_rng(0)
    ours = MazeVectorEnv(count, options, mode)
    singles = gymnasium.vector.SyncVectorEnv([lambda: MazeEnv(options)] * count, autoreset_mode=mode)
    a, b = ours.reset(seed=11)[0], singles.reset(seed=11)[0]
    finished = 0
    for _ in range(250):
        np.testing.assert_array_equal(a, b)
        actions = rng.integers(2, size=count)
        (a, ra, da, ta, ia), (b, rb, db, tb, ib) = ours.step(actions), singles.step(actions)
        np.testing.assert_array_equal(ra, rb)
        np.testing.assert_array_equal(da, db)
        np.testing.assert_array_equal(ta, tb)
        for i in np.flatnonzero(da) if mode is AutoresetMode.SAME_STEP else []:
            np.testing.assert_array_equal(ia["final_obs"][i], ib["final_obs"][i])
            assert ia["final_info"]["is_success"][i] == ib["final_info"]["is_success"][i]
        finished += da.sum()
    assert finished > 5


@pytest.mark.parametrize("name", ["memup/TMaze-v0", "memup/EndlessTMaze-v0"])
def test_gymnasium_accepts_the_environment(name):
    env = gymnasium.make(name, length=20)
    check_env(env.unwrapped, skip_render_check=True)
    vector = gymnasium.make_vec(name, num_envs=3, length=20)
    assert vector.reset(seed=0)[0].shape == (3, 3)


def test_tmaze_pays_for_following_the_hint():
    for seed in range(40):
        a = TMaze(TMazeOptions(length=50)).episode(seed).arrays
        hint, junction = a["observation"][0, 0], len(a["reward"]) - 1
        assert hint in (-1, 1)
        assert 50 <= junction <= 59
        assert (a["observation"][1:, 0] == 0).all()
        assert np.flatnonzero(a["observation"][:, 1]).tolist() == [junction]
        assert a["reward"][junction] == (4 if (a["action"][junction] == 1) == (hint == 1) else -3)
        assert (a["reward"][:-1] == 0).all()
        assert set(np.unique(a["observation"][:, 2])) <= {-1, 1}


def test_the_endless_maze_pays_by_the_last_hint():
    lengths = set()
    for seed in range(20):
        a = EndlessTMaze(EndlessOptions(corridors=5, length=6)).episode(seed).arrays
        hints, junctions = np.flatnonzero(a["observation"][:, 0]), np.flatnonzero(a["observation"][:, 1])
        assert len(hints) == len(junctions) == 5
        assert hints[0] == 0
        assert junctions[-1] == len(a["reward"]) - 1
        np.testing.assert_array_equal(hints[1:], junctions[:-1] + 1)
        right = (a["action"][junctions] == 1) == (a["observation"][hints, 0] == 1)
        np.testing.assert_array_equal(a["reward"][junctions], np.where(right, 4, -3))
        assert np.count_nonzero(a["reward"]) == 5
        lengths |= set(junctions - hints)
    assert lengths == set(range(6, 16))


def test_an_endless_episode_is_a_success_if_every_turn_was_right():
    env = MazeEnv(EndlessOptions(corridors=3, length=2))
    for wrong in (None, 1):
        observation, _ = env.reset(seed=3)
        over, corridor, hint = False, -1, 0
        while not over:
            if observation[0]:
                corridor, hint = corridor + 1, observation[0]
            right = int(hint > 0)
            observation, _, over, _, info = env.step(right if corridor != wrong else 1 - right)
        assert info["is_success"] == (wrong is None)


def test_distractors_pay_at_random_and_the_junction_does_not():
    matches, pays = [], []
    for seed in range(600):
        a = TMaze(TMazeOptions(length=100, distractors=3)).episode(seed).arrays
        points = np.flatnonzero(a["observation"][:, 1])
        assert sorted(a["observation"][points, 1]) == [1, 2, 3, 4]
        assert points.min() >= 50
        hinted = (a["action"] == 1) == (a["observation"][0, 0] == 1)
        junction = np.flatnonzero(a["observation"][:, 1] == 1)[0]
        assert a["reward"][junction] == (4 if hinted[junction] else -3)
        other = np.flatnonzero(a["observation"][:, 1] == 3)[0]
        matches.append(hinted[other] == (a["reward"][other] == 4))
        pays.append(a["reward"][other] == 4)
    # 600 fair coins: five standard deviations are 61
    assert abs(sum(matches) - 300) < 61
    assert abs(sum(pays) - 300) < 61


def test_copy_asks_for_the_digits_at_the_end():
    for seed in range(20):
        a = Copy(CopyOptions(length=40)).episode(seed).arrays
        x, y = a["input"], a["target"]
        assert set(x[:10]) <= set(range(2, 10))
        assert (x[10:30] == 0).all()
        assert (x[30:] == 1).all()
        assert (y[:30] == 0).all()
        np.testing.assert_array_equal(y[30:], x[:10])


def test_scattered_copy_asks_for_them_in_order_anywhere():
    places = set()
    for seed in range(50):
        a = ScatteredCopy(CopyOptions(length=60)).episode(seed).arrays
        recall = np.flatnonzero(a["input"] == 1)
        assert len(recall) == 10
        assert recall.min() >= 10
        np.testing.assert_array_equal(a["target"][recall], a["input"][:10])
        assert np.count_nonzero(a["target"]) == 10
        places.add(tuple(recall))
    assert len(places) == 50


def test_add_sums_the_first_two_marked_values_at_the_third():
    for seed in range(50):
        a = Add(AddOptions(length=30)).episode(seed).arrays
        marks = np.flatnonzero(a["input"][:, 1])
        assert len(marks) == 3
        assert np.flatnonzero(a["target"]).tolist() == [marks[2]]
        np.testing.assert_allclose(a["target"][marks[2]], a["input"][marks[:2], 0].sum(), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in task_names() if n not in ("arrays", "gym", "lerobot", "minari", "pmnist")])
def test_every_task_describes_its_episodes(name):
    kind = load_task(name)
    task = kind(kind.Options())
    spec, episode = task.spec, task.episode(5)
    assert set(episode.arrays) == {f.name for f in spec.fields}
    assert {spec.target, *spec.query, *spec.classes} <= set(episode.arrays)
    events = int(spec.evaluate(episode.arrays).sum())
    assert events in (1, 10) if task.vectorised else events >= 1
    for field in spec.fields:
        assert episode.arrays[field.name].dtype == field.numpy
        if field.name in spec.classes:
            assert episode.arrays[field.name].max() < spec.classes[field.name]
    again = kind(kind.Options()).episode(5)
    assert all((episode.arrays[n] == again.arrays[n]).all() for n in episode.arrays)
