"""What memup says of a memory: about the steps that matter, beside what needs no memory, on data that chose nothing."""

import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memup_cli.evaluation.predictions import Predictions
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.selection.importance import Matters, main_steps, recorded_scale, selection_mass
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from stores.manifest import Manifest
from stores.scores import ScoreReader, score_path
from tests.cli import Memup, episodes, files_of
from tests.learning.small import SPEC

# A cue, much later a probe: rewarded is the action that says whether they match. Noise is seen at every step.
MATCH = """
import gymnasium as gym
import numpy as np

class Match(gym.Env):
    observation_space = gym.spaces.Dict(cue=gym.spaces.Discrete(3), probe=gym.spaces.Discrete(3),
                                        noise=gym.spaces.Box(-5, 5, (2,), np.float32))
    action_space = gym.spaces.Discrete(2)

    def look(self):
        noise = self.np_random.normal(size=2).clip(-5, 5).astype(np.float32)
        return {"cue": self.cue if self.t == 0 else 0, "probe": self.probe if self.t == self.at else 0, "noise": noise}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.at = 0, int(self.np_random.integers(15, 20))
        self.cue, self.probe = (int(n) for n in self.np_random.integers(1, 3, 2))
        return self.look(), {}

    def step(self, action):
        reward = 0.0
        if self.t == self.at:
            reward = 1.0 if (action == 1) == (self.cue == self.probe) else -1.0
        self.t += 1
        return self.look(), reward, self.t > self.at + 5, False, {}

gym.register("Match-v0", Match)
"""
# A cue and a rewarded decision at the end, and at every step a reward that is noise.
NOISY = """
import gymnasium as gym
import numpy as np

class Noisy(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def look(self):
        return np.array([self.cue if self.t == 0 else 0, self.t == self.last], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.last = 0, int(self.np_random.integers(30, 40))
        self.cue = 2 * int(self.np_random.integers(2)) - 1
        return self.look(), {}

    def step(self, action):
        done, reward = self.t == self.last, float(self.np_random.normal())
        if done:
            reward += 3 if (action == 1) == (self.cue == 1) else -3
        self.t += 1
        return self.look(), reward, done, False, {}

gym.register("Noisy-v0", Noisy)
"""

# The same reward at every step.
CONSTANT = """
import gymnasium as gym
import numpy as np

class Constant(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 20, False, {}

gym.register("Constant-v0", Constant)
"""


# Pays what was seen two steps ago, at every step: none stands out.
ECHO = """
import gymnasium as gym
import numpy as np


class Echo(gym.Env):
    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(3)

    def _see(self):
        self.seen = [*self.seen, int(self.np_random.integers(3))]
        return self.seen[-1]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = [0, 0]
        return self._see(), {}

    def step(self, action):
        reward = 500.0 if action == self.seen[-3] else -500.0
        return self._see(), reward, len(self.seen) > 30, False, {}


gym.register("Echo-v0", Echo)
"""


def environment(memup: Memup, name: str, text: str, count: int, *options: object) -> None:
    (memup.folder / f"{name}.py").write_text(text)
    played = ["--episodes", count, "--test-episodes", 50, "--run", "run", "--workers", 1]
    memup("collect", "gym", "--import", f"{name}.py", "--env-id", f"{name.title()}-v0", *played, *options)


@pytest.fixture(scope="module")
def match(tmp_path_factory) -> Memup:
    memup = Memup(tmp_path_factory.mktemp("match"))
    environment(memup, "match", MATCH, 300)
    memup("score", "--run", "run", "--gamma", 0, "--updates", 500)
    return memup


@pytest.mark.parametrize("options", [("--updates", 1), ("--updates", 50), ("--updates", 200, "--cell", "none")])
def test_what_has_learned_nothing_explains_nothing(match, options):
    match("train-memory", "--run", "run", *options, "--restart")
    shown = match("evaluate", "memory", "--run", "run").out
    found = match("evaluate", "memory", "--run", "run", "--json").json
    low, high = found["explained_interval"]
    assert low <= min(found["explained"], 0)
    assert high >= found["explained"]
    assert found["solved"] is None
    assert "solved" not in shown
    assert found["matters"] == "scores"
    assert found["memoryless"]["mse"] < 1.1 * found["constant"]["mse"]
    assert "without a memory" in shown
    assert "the best constant" in shown
    assert "dependency length" not in shown


def test_while_a_memory_learns_what_is_printed_of_it_gets_better(memup):
    memup("collect", "tmaze", "--length", 30, "--episodes", 400, "--test-episodes", 50, "--run", "run")
    memup("score", "--run", "run", "--updates", 400)
    every = ["--updates", 400, "--evaluate-every", 50, "--rollout", 10]
    done = memup("train-memory", "--run", "run", *every, "--json").json
    lines = (memup.folder / "run/logs/train-memory/metrics.jsonl").read_text().splitlines()
    curve = [row["validation_explained"] for row in map(json.loads, lines) if "validation_explained" in row]
    assert len(curve) >= 3
    assert curve[-1] == done["explained"] > 0.9
    assert (np.diff(curve) > -0.02).all()
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["explained_interval"][0] > 0.9
    assert found["solved"] == (found["rmse"] < 0.1)
    assert "dependency length" in memup("evaluate", "memory", "--run", "run").out


def test_noise_at_every_step_does_not_hide_the_decision(memup):
    environment(memup, "noisy", NOISY, 400)
    shown = memup("score", "--run", "run", "--updates", 400).out
    found = memup("score", "--run", "run", "--updates", 400, "--json").json
    assert found["gamma"] == 0
    assert found["gammas"][0]["gamma"] == 0
    assert found["separates"]
    assert "Gamma 0 was chosen on validation episodes" in shown
    assert "one step of an episode holds 90%" in shown
    for episode in range(5):
        look = memup("inspect", "--run", "run", "--split", "validation", "--episode", episode, "--json").json["episode"]
        top = look["surprises"]["steps"][0]
        assert top["step"] == look["length"] - 1
        assert top["share"] > 0.9
    refused = memup("train-memory", "--run", "run", "--gamma", 0.99, code=2).err
    assert "were made with gamma 0" in refused
    assert memup("train-memory", "--run", "run", "--dry-run", "--json").json["config"]["gamma"] == 0


def test_the_choice_of_gamma_goes_on_where_it_was_killed(memup):
    environment(memup, "noisy", NOISY, 60)
    score = ["score", "--updates", 100, "--run"]
    for run in ("killed", "whole"):
        memup("collect", "gym", "--import", "noisy.py", "--env-id", "Noisy-v0", "--episodes", 60, "--run", run)
    memup.killed(*score, "killed", at="killed/detector/gammas.json")
    assert not (memup.folder / "killed/scores").exists()
    found, whole = (memup(*score, run, "--json").json for run in ("killed", "whole"))
    assert found["gammas"] == whole["gammas"]
    assert files_of(memup.folder / "killed/scores") == files_of(memup.folder / "whole/scores")


def test_where_nothing_is_uncertain_no_next_step_is_offered(memup):
    memup("collect", "gym", "--env-id", "CartPole-v1", "--episodes", 20, "--test-episodes", 2, "--run", "run")
    shown = memup("score", "--run", "run", "--gamma", 0, "--updates", 200).out
    assert "With gamma 0 everything can be predicted from the step itself" in shown
    assert "Next:" not in shown


def test_overfitting_is_told_with_what_to_do(memup):
    environment(memup, "match", MATCH, 20)
    memup("score", "--run", "run", "--gamma", 0, "--updates", 300)
    shown = memup("train-memory", "--run", "run", "--updates", 400, "--lr", 3e-3).out
    assert "Overfitting: " in shown
    assert re.search(r"There are 10 training episodes with 1\d events", shown)
    assert "memup collect --run run --episodes 1000" in shown


def test_the_last_episodes_are_kept_for_validation(memup):
    def shown(split: str) -> dict:
        return memup("inspect", "--run", "run", "--split", split, "--json").json

    memup("collect", "tmaze", "--length", 20, "--episodes", 200, "--test-episodes", 5, "--run", "run")
    assert [shown(split)["episodes"] for split in ("train", "validation", "test")] == [180, 20, 5]
    stored = episodes(memup.folder / "run")
    assert len(stored) == 200
    first = shown("validation")["episode"]
    assert first["length"] == len(stored[180]["reward"])
    own = ["collect", "tmaze", "--length", 20, "--episodes", 200, "--test-episodes", 5, "--run", "run"]
    assert "validation_episodes" in memup(*own, "--validation-episodes", 50, code=2).err
    memup(*own, "--validation-episodes", 50, "--restart")
    assert [shown(split)["episodes"] for split in ("train", "validation")] == [150, 50]
    assert "leave some to train on" in memup(*own, "--validation-episodes", 200, code=2).err


def test_a_run_of_0_1_0_opens_trains_and_evaluates(memup):
    with tarfile.open(Path(__file__).parents[1] / "data" / "run-0.1.0.tar.gz") as packed:
        packed.extractall(memup.folder, filter="data")
    assert memup("verify", "--run", "run", "--json").json["ok"]
    assert memup("inspect", "--run", "run", "--split", "validation", "--json").json["episodes"] == 10
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["episodes"] == 10
    assert found["explained_interval"][0] < 0.5
    assert "up to date" in memup("train-memory", "--run", "run").out
    done = json.loads((memup.folder / "run/manifest.json").read_text())["stages"]["train-memory"]["progress"]["done"]
    assert memup("train-memory", "--run", "run", "--updates", done + 10, "--json").json["updates"] == done + 10
    memup("train-memory", "--run", "run", "--updates", 30, "--hidden", 8, "--restart")
    memup("train-agent", "--run", "run", "--steps", 300, "--envs", 4)
    memup("report", "run")


def predictions(kind: str, y: list[float], weight: list[float], nll: list[float]) -> Predictions:
    spec = TMaze(TMazeOptions()).spec
    values = {"target_kind": kind, "classes": {"reward": 2}, "near": None}
    spec = type(spec)(**{**vars(spec), **values})
    error = np.array(nll)
    return Predictions(np.array([0, 0, 1]), np.arange(3), np.array(y), np.array(weight), error, error, spec)


def test_the_best_constant_and_what_is_explained_on_exact_numbers():
    found = predictions("scalar", [1.0, 3.0, 7.0], [1.0, 1.0, 2.0], [0.25, 0.25, 1.0])
    constant = found.constant()  # 4.5
    assert constant.error.tolist() == [12.25, 2.25, 6.25]
    assert constant.metrics() == {"rmse": 6.75**0.5, "mse": 6.75}
    assert found.metrics()["mse"] == 0.625
    explained, (low, high) = found.explained(constant)
    assert explained == pytest.approx(1 - 0.625 / 6.75)
    assert low == pytest.approx(1 - 2.0 / 12.5)  # of episode 1 alone
    assert high == pytest.approx(1 - 0.5 / 14.5)  # of episode 0 alone
    assert float(found.best_constant()) == 4.5
    classes = predictions("classes", [0, 1, 1], [1.0, 1.0, 2.0], [1.0, 1.0, 1.0]).constant()
    assert classes.metrics()["accuracy"] == 0.75
    assert classes.metrics()["nll"] == pytest.approx(-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)))


def test_what_a_constant_tells_as_well_is_not_explained():
    found = predictions("scalar", [1.0, 3.0, 7.0], [1.0, 1.0, 2.0], [6.0, 6.0, 6.0])
    chance = predictions("scalar", [1.0, 3.0, 7.0], [1.0, 1.0, 2.0], [8.0, 8.0, 8.0])  # worse than the mean: 6.75
    explained, (low, high) = found.explained(chance)
    assert explained == pytest.approx(1 - 6 / 6.75)
    assert low == pytest.approx(1 - 12 / 12.5)  # of episode 1 alone
    assert high == pytest.approx(1 - 12 / 14.5)  # of episode 0 alone
    alike = predictions("scalar", [2.0, 2.0, 2.0], [1.0, 1.0, 2.0], [0.5, 0.5, 0.5])
    assert alike.explained(chance) == (0, (0, 0)), "the constant is always right"


def test_the_mass_of_the_selection_is_that_of_draws_from_earlier_steps():
    scores = np.array([0.0, 2.0, 1.0, 3.0, 0.5, 0.0])
    mass = selection_mass(scores, 0.5, standing_out=2.0)
    expected = np.zeros(6)
    for t in range(4):  # up to the last step that stands out
        chances = np.exp(scores[t:] / 0.5)
        expected[t:] += chances / chances.sum() / 4
    np.testing.assert_allclose(mass, expected)
    flat = selection_mass(np.ones(4), 0.02, standing_out=5.0)
    np.testing.assert_allclose(
        flat, [1 / 16, 1 / 16 + 1 / 12, 1 / 16 + 1 / 12 + 1 / 8, 1 / 16 + 1 / 12 + 1 / 8 + 1 / 4]
    )
    assert main_steps(np.array([0.05, 0.6, 0.05, 0.3]), 0.9).tolist() == [1, 3]


@pytest.mark.parametrize("temperature", [0.02, 0.5])
def test_steps_matter_as_sharply_as_targets_were_drawn(scored, temperature):
    manifest = open_run(scored)
    spec = replace(spec_of(manifest), evaluate=None)  # the scores say which matter, not the maze
    shard = split_of(manifest, "test").shards[0]
    row, scale = shard.rows(0)[0], recorded_scale(manifest, "quantile")
    scores = ScoreReader(score_path(scored, "quantile", shard), shard).episode(row)
    found = Matters(manifest, spec, {"temperature": temperature}).episode(shard, row)({}, 0, len(scores))
    expected = selection_mass(scores, temperature * scale.spread, scale.standing_out)
    np.testing.assert_allclose(found, expected, atol=2e-3)
    assert (found.max() > 0.9) == (temperature < 0.1)


def test_scores_of_other_episodes_do_not_say_which_steps_matter(tmp_path):
    """Of a run that grew since it was scored, or whose episodes were collected anew."""
    score = {"status": "complete", "config": {"detector": "quantile"}, "metrics": {}, "inputs": {"train": "before"}}
    collect: dict = {"outputs": {"train": {"digest": "before"}}}
    manifest = Manifest(tmp_path, {"stages": {"collect": collect, "score": score}})
    assert Matters(manifest, SPEC, {}).by == "scores"
    collect["outputs"]["train"]["digest"] = "after"
    assert Matters(manifest, SPEC, {}).by == "all"


def test_one_episode_is_too_few_and_a_constant_reward_needs_no_memory(memup):
    environment(memup, "constant", CONSTANT, 1)
    failed = memup("score", "--run", "run", code=2)
    assert "has no episodes for validation; collect at least 2 training episodes" in failed.err
    memup("collect", "--run", "run", "--episodes", 60)
    shown = memup("score", "--run", "run", "--gamma", 0, "--updates", 200).out
    assert "there is nothing for a memory to explain" in shown
    memup("train-memory", "--run", "run", "--updates", 50)
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert (found["explained"], found["explained_interval"], found["nothing_to_explain"]) == (0, [0, 0], True)
    assert "There is nothing to explain" in memup("evaluate", "memory", "--run", "run").out


def test_after_more_episodes_the_stages_to_run_again_are_said_in_their_order(memup):
    environment(memup, "match", MATCH, 40)
    memup("score", "--run", "run", "--gamma", 0, "--updates", 20)
    memup("train-memory", "--run", "run", "--updates", 2)
    grown = memup("collect", "--run", "run", "--episodes", 60).out
    assert "score, train-memory saw fewer episodes" in grown
    assert grown.endswith("Next: memup score --run run --restart\n")
    refused = memup("evaluate", "memory", "--run", "run", code=3).err
    first, second = "memup score --gamma 0 --updates 20 --run run --restart", "memup train-memory --updates 2 --run run"
    assert f"Run `{first}`, then `{second} --restart` first." in refused


def test_where_no_step_stands_out_targets_are_drawn_from_all_and_it_is_said(memup):
    environment(memup, "echo", ECHO, 300, "--gamma", 0)
    scored = memup("score", "--run", "run", "--updates", 300)
    assert "does NOT separate" in scored.out
    assert "targets are drawn from all of them" in scored.out
    options = ["--select", "current", "--updates", 250, "--evaluate-every", 250, "--hidden", 48]
    done = memup("train-memory", "--run", "run", *options, "--json").json
    assert done["explained"] > 0.9, "however large the rewards are"
    short = ["train-memory", "--run", "run", "--updates", 20, "--hidden", 8]
    assert "--select current" in memup(*short, "--restart").err, "which needs no scores"
    assert "up to date" in memup(*short).out
