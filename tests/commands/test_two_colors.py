"""Collecting from a game: worker processes with an engine each, and nothing of them left behind."""

import os
import shutil
import signal
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from safetensors.torch import load

import memup_cli
import memup_cli.envs
from stores.layout import SEED
from stores.reader import Trajectories
from tests.cli import Memup, assert_same_episodes, episodes, files_of
from tests.faults.test_collect import FIRST_COMMIT
from tests.processes import ended

SHARED = Path("/dev/shm")
QUICK = ["--evaluate-every", 6, "--evaluate-episodes", 1]
COLLECT = ["collect", "two-colors", "--episodes", 13, "--test-episodes", 1, "--workers", 2, "--run", "run"]


def engines(folder: Path) -> list[int]:
    """Doom engines whose working folder lies below a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (
                Path(os.readlink(process / "exe")).name == "vizdoom"
                and folder in Path(os.readlink(process / "cwd")).parents
            ):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def mapped(pids: list[int]) -> set[Path]:
    """Files in shared memory that some processes use."""
    maps = [Path(f"/proc/{pid}/maps") for pid in pids]
    lines = [line for path in maps if path.exists() for line in path.read_text().splitlines()]
    return {Path(line.split(maxsplit=5)[5]) for line in lines if str(SHARED) in line}


@pytest.fixture
def places(tmp_path):
    """A temporary folder for engines, to tell them from those of other tests."""
    folder = tmp_path / "engines"
    folder.mkdir()
    return folder


def test_collect_keeps_images_actions_rewards_and_the_truth(memup: Memup, places: Path):
    summary = memup(*COLLECT, "--json", env={"TMPDIR": str(places)}).json
    assert summary["done"] == 14
    assert not engines(places)
    assert os.listdir(places) == []
    found = episodes(memup.folder / "run")
    truth = np.concatenate([e["truth"] for e in found])
    reward = np.concatenate([e["reward"] for e in found])
    assert {e["truth"][0, 0] for e in found} == {0, 1}
    assert (truth[:, 1] == 1).sum() >= 10
    assert (truth[:, 1] == -1).sum() >= 10
    np.testing.assert_allclose(reward[truth[:, 1] == 0][:100], 0.02)
    for episode in found:
        assert (episode["truth"][:, 0] == episode["truth"][0, 0]).all()
        assert episode["observation"].shape[1:] == (64, 112, 3)
        assert episode["observation"].std() > 10
    assert memup("verify", "--run", "run", "--json").json["ok"]
    raw = sum(values.nbytes for e in found for values in e.values())
    stored = sum(len(data) for data in files_of(memup.folder / "run" / "trajectories" / "train").values())
    assert stored < 0.4 * raw


def test_a_killed_collection_leaves_no_engine_and_goes_on_to_the_same_store(memup: Memup, places: Path):
    env = {"TMPDIR": str(places)}
    process = memup.held(*COLLECT, "--commit-every", 0, env=env, **FIRST_COMMIT)
    left = engines(places)
    used = mapped(left)
    assert left
    assert used
    process.kill()
    assert all(ended(pid, 60) for pid in left)
    memup("collect", "--run", "run", env=env)
    assert not any(path.exists() for path in used)
    assert os.listdir(places) == []
    memup(*COLLECT[:-1], "whole", "--workers", 1)
    for split in ("train", "test"):
        assert_same_episodes(episodes(memup.folder / "run", split), episodes(memup.folder / "whole", split))


def test_ctrl_c_stops_cleanly(memup: Memup, places: Path):
    """A terminal sends it to the workers, too, and ViZDoom would make an error of it there."""
    process = memup.held(*COLLECT, "--commit-every", 0, env={"TMPDIR": str(places)}, group=True, **FIRST_COMMIT)
    left = engines(places)
    assert left
    os.killpg(process.pid, signal.SIGINT)
    done = process.resume()
    assert done.code == 130, done.err
    assert "To continue" in done.err
    assert all(ended(pid, 60) for pid in left)
    memup("collect", "--run", "run", env={"TMPDIR": str(places)})
    assert len(episodes(memup.folder / "run")) == 13


def test_random_play_is_the_paper_s_and_has_a_run_of_its_own(memup: Memup):
    memup("collect", "two-colors", "--policy", "random", "--episodes", 1, "--test-episodes", 0, "--workers", 1)
    actions = episodes(memup.folder / "runs" / "two-colors-random")[0]["action"]
    assert set(actions) == set(range(8))


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Memup:
    """A small run with scores."""
    memup = Memup(tmp_path_factory.mktemp("scored"))
    memup("collect", "two-colors", "--episodes", 6, "--test-episodes", 2, "--workers", 2, "--run", "run")
    shutil.copytree(memup.folder / "run", memup.folder / "collected")
    summary = memup("score", "--run", "run", "--updates", 20, "--json").json
    assert summary["detector_updates"] == 20
    assert sum(summary["histogram"]["counts"]) == sum(len(e["action"]) for e in episodes(memup.folder / "run")[:3])
    return memup


def train(memup: Memup, *options: object) -> tuple[dict, bytes]:
    """The summary and the weights of a short training."""
    common = ["--updates", 4, "--batch", 6, *QUICK, "--restart", "--json"]
    common += [] if "none" in options else ["--hidden", 8]
    summary = memup("train-memory", "--run", "run", *common, *options).json
    return summary, (memup.folder / "run" / "memory" / "last.safetensors").read_bytes()


def test_the_memory_is_trained_by_the_paper_s_recipe_and_evaluated_at_the_items(scored: Memup):
    train(scored)
    stage = scored("status", "--run", "run", "--json").json["stages"]["train-memory"]
    assert (stage["config"]["rollout"], stage["config"]["targets"], stage["config"]["gamma"]) == (1, 3, 0.8)
    found = scored("evaluate", "memory", "--run", "run", "--json").json
    items = sum(int((e["truth"][:, 1] != 0).sum()) for e in episodes(scored.folder / "run", "test"))
    assert found["steps"] == items
    memory = memup_cli.load_memory(scored.folder / "run")
    m, _ = memory.step(np.zeros((2, 64, 112, 3), np.uint8), None, memory.initial(2))
    assert m.shape == (2, 8)


def test_how_much_of_the_images_fits_into_ram_does_not_matter(scored: Memup):
    small, streamed = train(scored, "--rollout", 5, "--slab-memory", 12)
    large, whole = train(scored, "--rollout", 5, "--slab-memory", 1024)
    assert streamed == whole
    assert small["rmse"] == large["rmse"]


def test_a_predictor_without_memory_can_be_trained_to_compare(scored: Memup):
    train(scored, "--cell", "none")
    memory = memup_cli.load_memory(scored.folder / "run")
    m, _ = memory.step(np.full((1, 64, 112, 3), 9, np.uint8), None, memory.initial(1))
    assert not m.any()


@pytest.fixture(scope="module")
def trained(scored: Memup) -> Memup:
    """The same with a memory, which agents copy."""
    shutil.copytree(scored.folder / "run", scored.folder / "source")
    common = ["--updates", 4, "--batch", 6, "--hidden", 8, *QUICK]
    scored("train-memory", "--run", "source", *common, "--restart")
    return scored


AGENTS = {
    "recipe": ("ppo", []),
    "memory's eyes": ("ppo", ["--no-outlook", "--imitate", 0]),
    "own eyes": ("ppo", ["--eyes", "own", "--imitate", 1, "--buffer-memory", 1]),
    "qrdqn": ("qrdqn", ["--replay", 1000]),
    "ppo-lstm": ("ppo-lstm", ["--core-hidden", 8, "--rollout", 16]),
}


OFTEN = ("recipe", "qrdqn")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in OFTEN else pytest.mark.learning) for case in AGENTS]
)
def test_agents_learn_from_images(trained: Memup, case: str):
    agent, options = AGENTS[case]
    sizes = ["--steps", 300, "--envs", 2, "--iteration-steps", 200, "--minibatch", 64]
    shutil.copytree(trained.folder / "source", trained.folder / case)
    done = trained("train-agent", "--run", case, "--agent", agent, *sizes, *options, "--json").json
    assert done["steps"] >= 300
    assert 90 <= done["length_mean"] <= 1050
    found = trained("evaluate", "agent", "--run", case, "--episodes", 2, "--envs", 2, "--json").json
    assert found["greedy"]["episodes"] == 2


def test_an_agent_s_own_eyes_begin_as_the_memory_s_and_learn(trained: Memup):
    shutil.copytree(trained.folder / "source", trained.folder / "eyes")
    start = load((trained.folder / "eyes/memory/last.safetensors").read_bytes())
    sizes = ["--steps", 200, "--envs", 1, "--iteration-steps", 200, "--restart", "--eyes", "own", "--imitate", 0]
    first = "images.observation.convolutions.0.weight"
    moved = []
    for options in (["--lr", 1e-9], ["--lr", 1e-3], ["--eyes", "imitated"], ["--eyes", "imitated", "--imitate", 1]):
        trained("train-agent", "--run", "eyes", *sizes, *options)
        weights = load((trained.folder / "eyes/agent/ppo/policy.safetensors").read_bytes())
        moved.append(float((weights[f"observation.{first}"] - start[f"context.query.{first}"]).abs().max()))
    assert moved[0] < 1e-6
    assert moved[1] > 1e-4
    assert moved[2] == 0
    assert moved[3] > 1e-4
    assert "--imitate" in trained("train-agent", "--run", "eyes", "--agent", "qrdqn", "--eyes", "imitated", code=2).err


def test_a_trained_agent_can_play_for_the_next_collection(trained: Memup):
    shutil.copytree(trained.folder / "source", trained.folder / "player")
    trained("train-agent", "--run", "player", "--steps", 200, "--envs", 1, "--iteration-steps", 200, "--imitate", 0)
    alone = ["collect", "two-colors", "--policy", "agent"]
    counts = ["--episodes", 2, "--test-episodes", 1, "--workers", 1]
    trained(*alone, "--agent-run", "player", *counts, "--run", "played")
    agent = memup_cli.load_agent(trained.folder / "player")
    env = gymnasium.make("memup/TwoColors-v0")
    episode = episodes(trained.folder / "played")[0]
    seed = int(Trajectories(trained.folder / "played/trajectories/train", 1).rows[0, SEED])
    observation, _ = env.reset(seed=seed)
    agent.begin(int(np.random.SeedSequence((seed, 1)).generate_state(1)[0]))
    for step, taken in enumerate(episode["action"]):
        np.testing.assert_array_equal(observation, episode["observation"][step])
        assert agent.act(observation) == taken
        observation, *_ = env.step(taken)
    env.close()
    assert "needs --agent-run" in trained(*alone, code=2).err
    assert "belong to --policy agent" in trained(*alone[:2], "--agent-run", "player", code=2).err
    trained("train-agent", "--run", "played", "--agent", "ppo-lstm", "--dry-run")
    assert "no agent 'dqn'" in trained(*alone, "--agent-run", "player", "--agent", "dqn", "--run", "other", code=2).err
    assert "no trained agent" in trained(*alone, "--agent-run", "played", code=3).err


def test_killed_scoring_and_memory_training_go_on_to_the_same_files(scored: Memup):
    shutil.copytree(scored.folder / "collected", scored.folder / "killed")
    score = ["score", "--updates", 20, "--run"]
    memory = ["train-memory", "--updates", 6, "--batch", 6, "--hidden", 8, "--checkpoint-every", 1]
    memory += [*QUICK, "--run"]
    scored(*memory, "run", "--restart")
    for command, begun, made in (
        (score, "killed/scores/*/train/*/score/c.*", "scores"),
        (memory, "killed/memory/checkpoint-*.pt", "memory"),
    ):
        scored.killed(*command, "killed", at=begun)
        scored(*command, "killed")
        whole, killed = (files_of(scored.folder / run / made) for run in ("run", "killed"))
        results = [name for name in whole if "/c." in name or name.endswith("safetensors")]
        assert results
        assert {name: killed[name] for name in results} == {name: whole[name] for name in results}


def test_a_killed_agent_leaves_no_engine_and_goes_on_to_the_same_weights(trained: Memup, places: Path):
    env = {"TMPDIR": str(places)}
    for name in ("whole", "again"):
        shutil.copytree(trained.folder / "source", trained.folder / name)
    options = ["--agent", "ppo", "--steps", 600, "--envs", 2, "--iteration-steps", 200, "--checkpoint-every", 0]
    options += ["--imitate", 1]
    trained("train-agent", "--run", "whole", *options, env=env)
    trained(
        "evaluate", "agent", "--run", "whole", "--agent", "ppo", "--episodes", 1, "--envs", 1, "--record", "play.gif"
    )
    assert (trained.folder / "play.gif").stat().st_size > 10_000
    folder = trained.folder / "again/agent/ppo"
    process = trained.held(
        "train-agent", "--run", "again", *options, env=env, at="again/agent/ppo/checkpoint-*.pt", nth=3
    )
    left = engines(places)
    used = mapped(left)
    assert len(left) == 2
    assert used
    process.kill()
    assert all(ended(pid, 60) for pid in left)
    assert "resuming" in trained("train-agent", "--run", "again", *options, env=env).err
    expected = trained.folder / "whole/agent/ppo/policy.safetensors"
    assert (folder / "policy.safetensors").read_bytes() == expected.read_bytes()
    assert not any(path.exists() for path in used)
    assert not list(places.glob("memup-doom-*"))


def test_what_images_cannot_do_is_said(scored: Memup):
    common = ["train-memory", "--run", "run", "--updates", 4, "--restart"]
    assert "--context totals" in scored(*common, "--context", "totals", code=2).err
    train(scored)
    assert "truth" in scored("train-agent", "--run", "run", "--alternate", 1, "--steps", 10, code=2).err
