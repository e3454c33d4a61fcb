"""score, train-memory and evaluate memory through the command line, on mazes small enough for a test."""

import json
import shutil

import numpy as np
import pytest
import torch
import zarr

import memup_cli
from memup_cli.learning.weights import load_model
from memup_cli.records.opening import open_run
from memup_cli.stages.memory.memory_job import recorded_job
from memup_cli.stages.memory.memoryless import Comparison
from stores.reader import Trajectories
from tests.cli import COLLECT_MAZE, Memup, episodes, files_of

SMALL = ["--hidden", 16, "--predictor-hidden", 16, "--batch", 16]


def rmse(memup: Memup, *options: object) -> float:
    memup("train-memory", "--run", "run", "--quiet", *options)
    return memup("evaluate", "memory", "--run", "run", "--json").json["rmse"]


def test_score_finds_the_junctions(memup, scored):
    shutil.copytree(scored, memup.folder / "run")
    again = memup("score", "--run", "run", "--updates", 600, "--json").json
    assert again["outcome"] == "up to date"
    assert again["separates"]
    assert again["top_steps_from_end"]["at_end_share"] == 1.0
    scores = zarr.open_group(str(scored / "scores/quantile/train/0000.zarr"), mode="r")["score"]
    shard = Trajectories(scored / "trajectories" / "train", 1)
    for row in shard.rows[:20]:
        values = scores[row[0] : row[0] + row[1]]
        assert values[-1] > 2.5
        assert values[:-1].max() < 0.5
    shown = memup("score", "--run", "run", "--updates", 500, "--restart").out
    assert "lies 0 steps before its end" in shown
    assert "separates surprising steps" in shown
    assert "memup train-memory" in shown


def test_memory_solves_a_maze_longer_than_its_rollout(memup, maze):
    done = memup(
        *("train-memory", "--run", "run", "--rollout", 4, "--updates", 4000, "--evaluate-every", 250),
        *("--until", "rmse<0.1", "--json"),
    ).json
    assert done["rmse"] < 0.1
    assert done["updates"] < 4000
    assert done["saved_tensor_bytes"] > 0
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["rmse"] < 0.1
    assert found["interval"][0] <= found["rmse"] <= found["interval"][1]
    assert found["episodes"] == 50
    assert sum(row["count"] for row in found["by_length"]) == 50
    assert "solved" in memup("evaluate", "memory", "--run", "run").out
    stages = memup("status", "--run", "run", "--json").json["stages"]
    assert [stages[s]["status"] for s in ("collect", "score", "train-memory", "evaluate")] == ["complete"] * 4
    lines = [json.loads(line) for line in (maze / "logs/train-memory/metrics.jsonl").read_text().splitlines()]
    assert {"loss", "updates_per_second", "data_wait_share"} <= set(lines[0])
    assert 0 <= lines[0]["data_wait_share"] < 1
    assert any("validation_rmse" in line for line in lines)
    assert list((maze / "logs/train-memory").glob("events.*"))


@pytest.mark.learning
def test_predicting_only_the_current_step_does_not_reach_that_far(memup, maze):
    """A cell of the paper's ablation: without future targets nothing tells the memory to keep the hint."""
    assert rmse(memup, "--preset", "paper", "--rollout", 4, "--updates", 1500, "--select", "current") > 2


@pytest.mark.learning
def test_distractors_are_told_from_the_junction(memup):
    memup("collect", "tmaze", "--length", 100, "--distractors", 4, "--run", "run")
    memup("score", "--run", "run")
    assert rmse(memup, "--rollout", 20, "--targets", 3, "--updates", 15000, "--until", "rmse<0.1") < 0.1


@pytest.mark.parametrize(
    "options",
    [
        ["--select", "uniform"],
        ["--cell", "gru"],
        ["--cell", "mingru", "--layers", 2, "--embedding", 8],
        ["--targets", 3, "--predict-every", 2, "--random-points", 0],
    ],
)
def test_every_variant_trains(memup, maze, options):
    done = memup(
        "train-memory", "--run", "run", "--rollout", 5, "--batch", 16, "--updates", 60, *options, "--json"
    ).json
    assert done["updates"] == 60
    assert np.isfinite(done["rmse"])


def test_the_histogram_says_which_steps_it_counts(memup):
    collect = ["collect", "tmaze", "--length", 20, "--episodes", 2200, "--test-episodes", 2, "--run", "run"]
    for shard in ("0/2", "1/2"):
        memup(*collect, "--shard", shard)
    told = memup("score", "--run", "run", "--updates", 5).out
    assert "steps of the first 1,100 of 1,980 training episodes have which uncertainty:" in told
    memup(*collect[:-1], "small", "--episodes", 40)
    told = memup("score", "--run", "small", "--updates", 5).out
    steps = sum(len(episode["reward"]) for episode in episodes(memup.folder / "small")[:30])
    assert f"How many of the {steps:,} steps of the 30 training episodes have which uncertainty:" in told


def test_class_targets_and_online_scores_train(memup):
    memup("collect", "copy", "--length", 24, "--episodes", 200, "--test-episodes", 20, "--run", "run")
    first = memup(
        *("train-memory", "--run", "run", "--scores", "online", "--rollout", 6, "--targets", 4),
        *("--updates", 150, *SMALL, "--json"),
    ).json
    manifest = open_run(memup.folder / "run")
    compare = Comparison(recorded_job(manifest, torch.device("cpu"), quiet=True))
    for which, accuracy in (("last", first["accuracy"]), ("best", first["best_accuracy"])):
        found = compare.predict(load_model(manifest, which), "validation", None)
        assert found.metrics()["accuracy"] == pytest.approx(accuracy)
        shown = memup("evaluate", "memory", "--run", "run", "--checkpoint", which, "--json").json
        tested = compare.predict(load_model(manifest, which), "test", None)
        assert shown["accuracy"] == pytest.approx(tested.metrics()["accuracy"])
    memup("score", "--run", "run", "--updates", 300)
    shown = memup("score", "--run", "run", "--updates", 300, "--json").json
    assert shown["separates"]


def test_stages_ask_for_what_they_need(memup):
    assert "memup collect" in memup("score", "--run", "run", code=3).err
    memup(*COLLECT_MAZE)
    assert "memup score" in memup("train-memory", "--run", "run", code=3).err
    assert "memup train-memory" in memup("evaluate", "memory", "--run", "run", code=3).err
    memup("train-memory", "--run", "run", "--select", "uniform", "--updates", 5)
    memup("score", "--run", "run", "--updates", 50)
    memup(*COLLECT_MAZE[:3], 45, *COLLECT_MAZE[4:], "--restart")
    assert "memup score" in memup("train-memory", "--run", "run", "--restart", code=3).err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("command", [["score"], ["train-memory"], ["evaluate", "memory"]])
def test_cuda_without_cuda_is_a_clear_message(memup, maze, command):
    assert "CUDA" in memup(*command, "--run", "run", "--device", "cuda", code=2).err


def test_a_run_without_test_episodes_is_trained_and_not_evaluated(memup):
    memup("collect", "copy", "--length", 24, "--episodes", 20, "--test-episodes", 0, "--run", "run")
    memup("train-memory", "--run", "run", "--scores", "online", "--updates", 2)
    assert "--test-episodes" in memup("evaluate", "memory", "--run", "run", code=2).err


def test_a_run_without_episodes_for_validation_is_refused(memup):
    memup("collect", "copy", "--episodes", 1, "--run", "run")
    assert "at least 2" in memup("train-memory", "--run", "run", "--scores", "online", code=2).err


def test_a_detector_that_does_not_fit_is_refused_before_anything_is_lost(memup, maze):
    before = files_of(maze)
    refused = memup("score", "--run", "run", "--detector", "classifier", "--restart", code=2)
    assert "use quantile, regression or probe" in refused.err
    for bad in (["--lr", "inf"], ["--temperature", "inf"], ["--rollout", 10**20], ["--hidden", 10**6]):
        memup("train-memory", "--run", "run", *bad, code=2)
    assert files_of(maze) == before


def test_a_slab_too_small_says_how_much_it_needs(memup):
    memup("collect", "tmaze", "--length", 300000, "--episodes", 4, "--test-episodes", 1, "--run", "run")
    failed = memup("train-memory", "--run", "run", "--select", "uniform", "--slab-memory", 1, "--batch", 256, code=2)
    assert "--slab-memory 1" in failed.err
    assert "MB" in failed.err
    done = memup(
        *("train-memory", "--run", "run", "--select", "uniform", "--slab-memory", 4, "--batch", 4, "--updates", 30),
        "--json",
    )
    assert done.json["updates"] == 30


@pytest.mark.gpu
def test_training_on_cuda_solves_the_maze(memup, maze):
    assert rmse(memup, "--rollout", 4, "--updates", 4000, "--until", "rmse<0.1", "--device", "cuda") < 0.1


def test_a_batch_log_gets_lines_not_bars(memup, maze):
    shown = memup("train-memory", "--run", "run", "--updates", 60)
    assert "━" not in shown.err
    assert "Next: memup evaluate memory" in shown.out


def test_goals_are_called_the_same_in_both_trainings(memup, maze):
    for goal in ("rmse<0.5", "mse<0.25"):
        for stage in ("train-memory", "train-baseline"):
            assert memup(stage, "--run", "run", "--dry-run", "--json", "--until", goal).json["config"]["until"] == goal
    refused = memup("train-baseline", "--run", "run", "--dry-run", "--until", "accuracy>=0.5", code=2)
    assert 'use "rmse<0.1" or "mse<0.001"' in refused.err


def test_a_training_ends_with_a_small_enough_squared_error(memup, maze):
    options = ["--updates", 300, "--evaluate-every", 25, "--until", "mse<100"]
    assert memup("train-memory", "--run", "run", *options, "--json").json["updates"] == 25


@pytest.mark.parametrize("stage", [["score", "--restart"], ["train-memory", "--context", "window"]])
def test_a_window_longer_than_every_episode_is_refused(memup, maze, stage):
    assert "longest training episode" in memup(*stage, "--window", 400, "--run", "run", "--dry-run", code=2).err


def test_novelty_gates_learn_and_are_for_an_lstm(memup, maze):
    """Hints and junctions are rare in a maze; trained on, a run says with which gates it began."""
    options = ["--run", "run", "--updates", 4, "--evaluate-every", 4, "--json"]
    plain = memup("train-memory", *options, "--no-novelty-gates").json
    gated = memup("train-memory", *options, "--restart").json
    assert gated["updates"] == 4
    assert gated["rmse"] != plain["rmse"]
    assert "novelty_gates was True" in memup("train-memory", *options, "--no-novelty-gates", code=2).err
    for cell in ("gru", "mingru", "none"):
        assert "--cell lstm" in memup("train-memory", *options, "--novelty-gates", "--cell", cell, code=2).err


def test_a_stretch_is_at_most_an_episode_and_a_dry_run_tells_what_would_be_done(memup, maze):
    options = [
        "--run",
        "run",
        "--updates",
        3,
        "--rollout",
        10,
        "--rollout-sampling",
        "priority",
        "--stretch",
        1_000_000,
    ]
    dry = memup("train-memory", *options, "--dry-run").out
    assert "for 3 updates" in dry
    longest = memup_cli.open_trajectories(memup.folder / "run", "train").lengths.max()
    assert memup("train-memory", *options, "--dry-run", "--json").json["config"]["stretch"] == -(-longest // 10)
    memup("train-memory", *options)
    assert "up to date" in memup("train-memory", *options, "--dry-run").out
    assert "updates was 3" in memup("train-memory", *options, "--updates", 2, "--dry-run", code=2).err


def test_inspect_shows_what_the_scores_found_in_an_episode(memup, maze):
    episode = memup("inspect", "--run", "run", "--episode", 3, "--json").json["episode"]
    top = episode["surprises"]["steps"][0]
    assert top["step"] == episode["length"] - 1
    assert top["share"] > 0.99
    assert top["reward"] in (4.0, -3.0)
    assert len(episode["surprises"]["steps"]) == 10
    memup("collect", "tmaze", "--length", 40, "--episodes", 20, "--run", "run", "--restart")  # other episodes
    assert "surprises" not in memup("inspect", "--run", "run", "--json").json["episode"]
