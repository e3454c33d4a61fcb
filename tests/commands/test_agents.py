"""train-agent and evaluate agent through the command line, on mazes small enough for a test."""

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load

from memup_cli.agents.saved import load_policy
from stores.manifest import Manifest
from tests.cli import COLLECT_MAZE, Memup

TRAIN = ["train-agent", "--run", "run", "--steps", 40_000, "--iteration-steps", 3000, "--envs", 16]


@pytest.fixture(scope="session")
def remembered(tmp_path_factory, scored) -> Path:
    """A T-Maze-40 with a memory that solves it, to be copied."""
    memup = Memup(tmp_path_factory.mktemp("remembered"))
    shutil.copytree(scored, memup.folder / "run")
    memup("train-memory", "--run", "run", "--rollout", 10, "--updates", 3000, "--until", "rmse<0.1")
    return memup.folder / "run"


@pytest.fixture
def run(memup, remembered) -> Path:
    shutil.copytree(remembered, memup.folder / "run")
    return memup.folder / "run"


@pytest.mark.parametrize("agent", ["ppo", pytest.param("qrdqn", marks=pytest.mark.learning)])
def test_agents_on_the_memory_solve_the_maze(memup, run, agent):
    options = ["--agent", agent, "--no-outlook", "--steps", 400_000, "--until", "success>=0.95", "--envs", 32]
    trained = memup("train-agent", "--run", "run", *options, "--json").json
    assert trained["steps_per_second"] > 0
    found = memup("evaluate", "agent", "--run", "run", "--episodes", 100, "--json").json
    assert found["agent"] == agent
    assert found["success_rate"] > 0.95
    assert found["interval"][0] < found["success_rate"] <= found["interval"][1]
    assert found["stochastic"]["success_rate"] > 0.85
    assert 41 <= found["length_mean"] <= 50
    assert found["return_mean"] == pytest.approx(7 * found["success_rate"] - 3)
    curve = [json.loads(x) for x in (run / f"logs/train-agent-{agent}/metrics.jsonl").read_text().splitlines()]
    assert curve[-1]["steps"] == trained["steps"]
    assert any("loss" in row for row in curve)  # it took learning
    assert "up to date" in memup("train-agent", "--run", "run", *options).out
    policy, config = load_policy(Manifest.load(run), agent)
    assert config["agent"] == agent
    assert not any(name.startswith("core.") for name in policy.own_state())


def test_what_has_succeeded_is_kept_as_it_played(memup, run):
    """QR-DQN can unlearn in one iteration what it could do."""
    enough = [
        "--agent",
        "qrdqn",
        "--until",
        "success>=0.2",
        "--steps",
        10**6,
        "--iteration-steps",
        12_000,
        "--envs",
        64,
    ]
    memup("train-agent", "--run", "run", *enough)  # 200 episodes of guesses
    curve = [json.loads(x) for x in (run / "logs/train-agent-qrdqn/metrics.jsonl").read_text().splitlines()]
    assert [("loss" in row) for row in curve] == [False]


@pytest.mark.learning
def test_imitating_guesses_on_the_memory_solves_the_maze_before_playing(memup, run):
    options = [
        "--no-outlook",
        "--imitate",
        10,
        "--prefer",
        3,
        "--steps",
        1,
        "--iteration-steps",
        1,
        "--envs",
        1,
        "--minibatch",
        64,
    ]
    memup("train-agent", "--run", "run", *options)
    assert memup("evaluate", "agent", "--run", "run", "--episodes", 100, "--json").json["success_rate"] > 0.9


@pytest.mark.learning
@pytest.mark.parametrize("agent", ["ppo-lstm", "amrl", "gtrxl"])
def test_baselines_need_no_memory_and_learn_a_short_maze(memup, agent):
    memup("collect", "tmaze", "--length", 3, "--mode", "LN", "--episodes", 4, "--test-episodes", 1, "--run", "run")
    small = ["--rollout", 4, "--core-hidden", 32, "--iteration-steps", 2048, "--minibatch", 512]
    small += ["--span", 8] if agent == "gtrxl" else []
    enough = ["--steps", 120_000, "--until", "success>=0.97", "--envs", 32]
    memup("train-agent", "--run", "run", "--agent", agent, *small, *enough)
    found = memup("evaluate", "agent", "--run", "run", "--episodes", 200, "--json").json
    assert found["success_rate"] > 0.95


def policy_file(run: Path, agent: str) -> bytes:
    return (run / "agent" / agent / "policy.safetensors").read_bytes()


@pytest.mark.parametrize("agent", ["ppo", "qrdqn", "ppo-lstm"])
def test_an_interrupted_agent_ends_with_the_same_weights(memup, remembered, agent):
    options = [*TRAIN, "--agent", agent, "--steps", 15_000, "--checkpoint-every", 0]
    options += {"ppo": ["--imitate", 2], "ppo-lstm": ["--rollout", 16]}.get(agent, [])
    shutil.copytree(remembered, memup.folder / "run")
    memup(*options)
    expected = policy_file(memup.folder / "run", agent)
    shutil.rmtree(memup.folder / "run")
    shutil.copytree(remembered, memup.folder / "run")
    for number in (signal.SIGKILL, signal.SIGTERM):
        stopped = memup.held(*options, at=f"run/agent/{agent}/checkpoint-*.pt", nth=2).interrupt(number)
        assert stopped.code == (75 if number == signal.SIGTERM else -signal.SIGKILL), stopped.err
        status = memup("status", "--run", "run", "--json").json["stages"][f"train-agent/{agent}"]["status"]
        assert status == "interrupted"
    memup(*options)
    assert policy_file(memup.folder / "run", agent) == expected


def test_stages_ask_for_what_they_need(memup, run):
    assert "memup train-agent --run run" in memup("evaluate", "agent", "--run", "run", code=3).err
    memup(*COLLECT_MAZE[:-1], "bare")
    assert "memup train-memory --run bare" in memup("train-agent", "--run", "bare", code=3).err
    memup("train-agent", "--run", "bare", "--agent", "amrl", "--steps", 1000, "--envs", 4, "--iteration-steps", 100)
    memup("collect", "copy", "--episodes", 10, "--test-episodes", 2, "--run", "copy")
    assert "without an environment" in memup("train-agent", "--run", "copy", "--agent", "amrl", code=2).err
    assert "--span is not for ppo" in memup("train-agent", "--run", "bare", "--span", 8, code=2).err
    memup("collect", "gym", "--env-id", "Pendulum-v1", "--episodes", 2, "--test-episodes", 1, "--run", "swing")
    assert "continuous" in memup("train-agent", "--run", "swing", "--agent", "qrdqn", code=2).err
    assert "does not divide" in memup("train-agent", "--run", "run", "--agent", "gtrxl", "--heads", 3, code=2).err


def test_fewer_environments_play_where_episodes_are_long_for_the_steps_there_are(memup, run):
    def envs(*options: object) -> int:
        return memup("train-agent", "--run", "run", "--dry-run", "--json", *options).json["config"]["envs"]

    assert envs() == 64
    assert 8 < envs("--steps", 60_000) < 64
    assert envs("--steps", 1000) == 8
    assert envs("--steps", 1000, "--envs", 30) == 30


def test_a_changed_memory_makes_the_agent_stale(memup, run):
    memup(*TRAIN, "--steps", 3000)
    memup("train-memory", "--run", "run", "--updates", 20, "--restart")
    refused = memup("evaluate", "agent", "--run", "run", code=3)
    again = re.search(r"`memup (train-agent .* --steps 3000 --run run --restart)`", refused.err)
    assert again
    assert "memory changed" in memup(*TRAIN, "--steps", 3000, code=3).err
    memup(*again[1].split())
    memup("evaluate", "agent", "--run", "run", "--episodes", 10)


def test_several_agents_live_side_by_side(memup, run):
    memup(*TRAIN, "--steps", 3000)
    memup(*TRAIN, "--steps", 3000, "--agent", "ppo-lstm")
    assert "--agent: ppo, ppo-lstm" in memup("evaluate", "agent", "--run", "run", code=2).err
    found = memup("evaluate", "agent", "--run", "run", "--agent", "ppo-lstm", "--episodes", 20)
    assert "ppo-lstm" in found.out
    stages = memup("status", "--run", "run", "--json").json["stages"]
    assert {"train-agent/ppo", "train-agent/ppo-lstm", "evaluate/ppo-lstm"} <= set(stages)


def test_memory_states_beyond_the_budget_are_computed_again(memup, run):
    """The same training with room for all memory states and with room for hardly any: equal but for rounding."""
    found = []
    for budget in (256, 1):
        options = ["--sample", 500, "--epochs", 1, "--buffer-memory", budget, "--envs", 128, "--restart"]
        memup(*TRAIN, "--steps", 20_000, *options)
        found.append(load(policy_file(run, "ppo")))
    for name, values in found[0].items():
        assert torch.allclose(values, found[1][name], atol=1e-3)


def test_damaged_weights_are_named_and_made_again(memup, run):
    memup(*TRAIN, "--steps", 3000)
    whole = policy_file(run, "ppo")
    (run / "agent/ppo/policy.safetensors").write_bytes(b"no")
    assert "--steps 3000" in memup("evaluate", "agent", "--run", "run", code=65).err, "the command that makes it again"
    assert "agent/ppo/policy.safetensors" in memup("verify", "--run", "run", code=65).out
    memup(*TRAIN, "--steps", 3000)  # from its last checkpoint
    assert policy_file(run, "ppo") == whole
    memup("verify", "--run", "run")


def test_an_agent_acts_only_on_the_memory_it_was_trained_on(memup, run):
    memup(*TRAIN, "--steps", 3000)
    (run / "agent/ppo/config.json").write_text('{"memory": "../elsewhere"}')  # for people: nothing depends on it
    memup("evaluate", "agent", "--run", "run", "--episodes", 5)
    weights = run / "memory/best.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"abcd")
    assert "memory/best.safetensors" in memup("evaluate", "agent", "--run", "run", "--episodes", 5, code=65).err


def test_links_in_a_run_are_refused(memup, run):
    outside = memup.folder / "outside"
    outside.mkdir()
    for name in ("agent", "logs", "evaluation"):
        if (run / name).exists():
            shutil.rmtree(run / name)
        (run / name).symlink_to(outside)
        assert "symbolic link" in memup(*TRAIN, code=77).err
        (run / name).unlink()
    assert list(outside.iterdir()) == []


BROKEN = """
import gymnasium, numpy, os
class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return numpy.zeros(2, numpy.float32), {}
    def step(self, action):
        self.steps += 1
        how = os.environ.get("HOW") if self.steps == 5 else None
        if how == "raise":
            raise ValueError("boom")
        if how == "exit":
            raise SystemExit(0)
        reward = float("nan") if how == "nan" else 1.0
        return numpy.zeros(2, numpy.float32), reward, self.steps == 9, False, {}
gymnasium.register("Broken-v0", Broken)
"""


def test_an_environment_that_fails_is_blamed(memup):
    (memup.folder / "broken.py").write_text(BROKEN)
    here = {"PYTHONPATH": str(memup.folder)}
    small = ["--agent", "ppo-lstm", "--run", "run", "--steps", 200, "--envs", 2, "--iteration-steps", 50]
    memup("collect", "gym", "--env-id", "Broken-v0", "--import", "broken", "--episodes", 3, "--test-episodes", 1,
          "--run", "run", env=here)  # fmt: skip
    for how, word in (("raise", "boom"), ("exit", "SystemExit"), ("nan", "not finite")):
        failed = memup("train-agent", *small, env={**here, "HOW": how}, code=65)
        assert "Broken-v0" in failed.err
        assert word in failed.err
    memup("train-agent", *small, "--restart", env=here)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", pytest.param("Taxi-v4", marks=pytest.mark.learning)])
def test_any_gymnasium_environment_works(memup, env_id):
    memup(
        "collect", "gym", "--env-id", env_id, "--max-steps", 30, "--episodes", 20, "--test-episodes", 5, "--run", "run"
    )
    memup("score", "--run", "run", "--updates", 50)
    memup("train-memory", "--run", "run", "--updates", 20, "--batch", 8, "--rollout", 5)
    small = ["--steps", 1500, "--envs", 4, "--iteration-steps", 300, "--minibatch", 64]
    memup("train-agent", "--run", "run", *small)
    found = memup("evaluate", "agent", "--run", "run", "--episodes", 8, "--json").json
    assert np.isfinite(found["return_mean"])
    if env_id == "Taxi-v4":
        memup("train-agent", "--run", "run", "--agent", "qrdqn", *small)
        again = memup("evaluate", "agent", "--agent", "qrdqn", "--run", "run", "--episodes", 8, "--json").json
        assert (again["agent"], again["greedy"]["episodes"]) == ("qrdqn", 8)


def test_a_transformer_plays_and_is_evaluated(memup):
    memup("collect", "tmaze", "--length", 8, "--episodes", 12, "--test-episodes", 2, "--run", "run")
    small = ["--steps", 300, "--envs", 4, "--iteration-steps", 100, "--span", 8, "--core-hidden", 8]
    done = memup("train-agent", "--run", "run", "--agent", "gtrxl", *small, "--json").json
    assert done["steps"] >= 300
    assert memup("evaluate", "agent", "--run", "run", "--episodes", 4, "--json").json["agent"] == "gtrxl"


def test_an_episode_can_be_recorded(memup):
    memup("collect", "gym", "--env-id", "CartPole-v1", "--episodes", 3, "--test-episodes", 1, "--run", "run")
    memup("train-agent", "--run", "run", "--agent", "ppo-lstm", "--steps", 500, "--envs", 4, "--iteration-steps", 200)
    memup("evaluate", "agent", "--run", "run", "--episodes", 5, "--record", "film.gif")
    with Image.open(memup.folder / "film.gif") as film:
        assert film.n_frames > 5
        assert film.size == (600, 400)
    memup("evaluate", "agent", "--run", "run", "--episodes", 5, "--record", "strip.png")
    with Image.open(memup.folder / "strip.png") as strip:
        assert strip.width == 8 * 224
        assert strip.height % (149 + 16) == 0
        assert np.asarray(strip)[:149, :222].std() > 0
    assert "strip.jpg" in memup("evaluate", "agent", "--run", "run", "--record", "strip.jpg", code=2).err


@pytest.mark.learning
def test_alternating_rounds_end_solved_and_continue_in_their_phase(memup, run):
    options = [*TRAIN, "--no-outlook", "--steps", 60_000, "--until", "success>=0.95"]
    options += ["--alternate", 2, "--checkpoint-every", 0]
    first = "run/rounds/ppo/01"
    moments = {
        "collect": (f"{first}/trajectories/train/*/row/zarr.json", signal.SIGTERM),
        "score": (f"{first}/scores/*/zarr.json", signal.SIGKILL),
        "train-memory": (f"{first}/logs/train-memory/*", signal.SIGTERM),
        "train-agent": (f"{first}/agent/checkpoint-*.pt", signal.SIGKILL),
    }
    for wanted, (path, number) in moments.items():  # interrupted once in every phase of the first round
        stopped = memup.held(*options, at=path).interrupt(number)
        assert stopped.code == (75 if number == signal.SIGTERM else -signal.SIGKILL), stopped.err
        assert phase(run) == wanted
    memup(*options)
    stage = memup("status", "--run", "run", "--json").json["stages"]["train-agent/ppo"]
    assert [entry["phase"] for entry in stage["rounds"]] == ["complete", "complete"]
    assert memup("evaluate", "agent", "--run", "run", "--episodes", 100, "--json").json["success_rate"] > 0.95
    assert (
        memup("status", "--run", "run/rounds/ppo/02", "--json").json["stages"]["train-memory"]["status"] == "complete"
    )


def phase(run: Path) -> str:
    """Phase of the first round, as the manifest has it now."""
    entry = Manifest.load(run).stages.get("train-agent/ppo", {})
    rounds = entry.get("rounds", [])
    return rounds[0]["phase"] if len(rounds) == 1 else ""


@pytest.mark.gpu
def test_agents_train_on_cuda(memup, run):
    memup(*TRAIN, "--no-outlook", "--steps", 400_000, "--device", "cuda", "--until", "success>=0.95")
    assert memup("evaluate", "agent", "--run", "run", "--episodes", 100, "--json").json["success_rate"] > 0.9
