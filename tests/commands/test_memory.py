"""score, train-memory and evaluate memory through the command line, on mazes small enough for a test."""

import io
import json
import random
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr

from memup_cli.training import checkpoint
from stores.reader import Trajectories
from tests.cli import Memup, files_of

COLLECT = ["collect", "tmaze", "--length", 40, "--episodes", 300, "--test-episodes", 50, "--run", "run"]


@pytest.fixture(scope="module")
def scored(tmp_path_factory) -> Path:
    """A collected and scored T-Maze-40, to be copied."""
    memup = Memup(tmp_path_factory.mktemp("scored"))
    memup(*COLLECT)
    memup("score", "--run", "run", "--updates", 600)
    return memup.folder / "run"


@pytest.fixture
def run(memup, scored) -> Path:
    shutil.copytree(scored, memup.folder / "run")
    return memup.folder / "run"


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


def test_memory_solves_a_maze_longer_than_its_rollout(memup, run):
    done = memup(
        *("train-memory", "--run", "run", "--rollout", 4, "--updates", 4000, "--evaluate-every", 250),
        *("--until-rmse", 0.1, "--json"),
    ).json
    assert done["rmse"] < 0.1
    assert done["updates"] < 4000
    assert done["saved_tensor_bytes"] > 0
    assert 0 <= done["data_wait_share"] < 1
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["rmse"] < 0.1
    assert found["interval"][0] <= found["rmse"] <= found["interval"][1]
    assert found["episodes"] == 50
    assert sum(row["count"] for row in found["by_length"]) == 50
    assert "solved" in memup("evaluate", "memory", "--run", "run").out
    stages = memup("status", "--run", "run", "--json").json["stages"]
    assert [stages[s]["status"] for s in ("collect", "score", "train-memory", "evaluate")] == ["complete"] * 4
    lines = [json.loads(line) for line in (run / "logs/train-memory/metrics.jsonl").read_text().splitlines()]
    assert {"loss", "updates_per_second", "data_wait_share"} <= set(lines[0])
    assert any("test_rmse" in line for line in lines)
    assert list((run / "logs/train-memory").glob("events.*"))


def test_predicting_only_the_current_step_does_not_reach_that_far(memup, run):
    """A cell of the ablation: without future targets nothing tells the memory to keep the hint."""
    assert rmse(memup, "--rollout", 4, "--updates", 1500, "--select", "current") > 2


@pytest.mark.slow
def test_distractors_are_told_from_the_junction(memup):
    memup("collect", "tmaze", "--length", 100, "--distractors", 4, "--run", "run")
    memup("score", "--run", "run")
    assert rmse(memup, "--rollout", 20, "--targets", 3, "--updates", 15000, "--until-rmse", 0.1) < 0.1


@pytest.mark.parametrize(
    "options",
    [["--select", "uniform"], ["--cell", "gru"], ["--targets", 3, "--predict-every", 2, "--random-points", 0]],
)
def test_every_variant_trains(memup, run, options):
    done = memup("train-memory", "--run", "run", "--rollout", 5, "--updates", 60, *options, "--json").json
    assert done["updates"] == 60
    assert np.isfinite(done["rmse"])


def test_class_targets_and_online_scores_train(memup):
    memup("collect", "copy", "--length", 24, "--episodes", 200, "--test-episodes", 20, "--run", "run")
    first = memup(
        *("train-memory", "--run", "run", "--scores", "online", "--rollout", 6, "--targets", 4),
        *("--updates", 150, "--json"),
    ).json
    assert 0 <= first["accuracy"] <= 1
    best = memup("evaluate", "memory", "--run", "run", "--checkpoint", "best", "--json").json
    assert best["accuracy"] == pytest.approx(first["best_accuracy"])
    memup("score", "--run", "run", "--updates", 300)
    shown = memup("score", "--run", "run", "--updates", 300, "--json").json
    assert shown["separates"]


TRAIN = ["train-memory", "--run", "run", "--rollout", 5, "--updates", 300, "--checkpoint-every", 30]
TRAIN += ["--evaluate-every", 100]


def weights(run: Path) -> bytes:
    return (run / "memory" / "last.safetensors").read_bytes()


@pytest.mark.parametrize("scores", ["stored", "online"])
def test_an_interrupted_training_ends_with_the_same_weights(memup, scored, scores):
    shutil.copytree(scored, memup.folder / "run")
    memup(*TRAIN, "--scores", scores)
    expected = weights(memup.folder / "run")
    curve = (memup.folder / "run/logs/train-memory/metrics.jsonl").read_text()
    shutil.rmtree(memup.folder / "run")
    shutil.copytree(scored, memup.folder / "run")
    rng = random.Random(0)
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        before = newest(memup.folder / "run")
        process = memup.start(*TRAIN, "--scores", scores)
        wanted = before + rng.choice([30, 60])
        while process.poll() is None and newest(memup.folder / "run") < wanted:
            pass
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode in (-signal.SIGKILL, 75), err
        if number == signal.SIGTERM:
            assert re.search(r"checkpoint saved at update \d+", err)
            assert "memup train-memory" in err
    done = memup(*TRAIN, "--scores", scores)
    assert "resuming at update" in done.err
    assert weights(memup.folder / "run") == expected
    strip = re.compile(r'"(updates_per_second|data_wait_share)": [^,}]+')
    resumed = (memup.folder / "run/logs/train-memory/metrics.jsonl").read_text()
    assert strip.sub("", resumed) == strip.sub("", curve)
    assert "up to date" in memup(*TRAIN, "--scores", scores).out


def newest(run: Path) -> int:
    return max([int(p.stem.split("-")[1]) for p in (run / "memory").glob("checkpoint-*.pt")], default=0)


def test_scoring_continues_where_it_was_killed(memup):
    memup("collect", "tmaze", "--length", 300000, "--episodes", 12, "--test-episodes", 2, "--run", "run")
    memup("score", "--run", "run", "--updates", 200)
    whole = files_of(memup.folder / "run" / "scores")
    chunks = sorted((memup.folder / "run" / "scores/quantile/train/0000.zarr/score").glob("c.*"))
    assert len(chunks) == 24
    for chunk in chunks[5:]:
        chunk.unlink()
    kept = chunks[0].stat().st_mtime_ns
    manifest = memup.folder / "run" / "manifest.json"
    shutil.copy(memup.folder / "run" / "manifest.previous.json", manifest)
    memup("score", "--run", "run", "--updates", 200)
    assert files_of(memup.folder / "run" / "scores") == whole
    assert chunks[0].stat().st_mtime_ns == kept, "what was scored is not scored again"


def test_a_loss_that_is_not_finite_stops_and_keeps_the_good_checkpoint(memup, run):
    bad = ["--lr", 1e30, "--clip", 1e30, "--checkpoint-every", 1]
    failed = memup("train-memory", "--run", "run", *bad, code=65)
    assert "no longer finite" in failed.err
    assert "learning rate" in failed.err
    assert "the last good checkpoint, of update 1, is kept" in failed.err
    (kept,) = (run / "memory").glob("checkpoint-*.pt")
    assert all(torch.isfinite(w).all() for w in torch.load(kept, weights_only=True)["model"].values())
    entry = memup("status", "--run", "run", "--json").json["stages"]["train-memory"]
    assert entry["status"] == "failed"
    assert "finite" in entry["problem"]


def test_stages_ask_for_what_they_need(memup):
    assert "memup collect" in memup("score", "--run", "run", code=3).err
    memup(*COLLECT)
    assert "memup score" in memup("train-memory", "--run", "run", code=3).err
    assert "memup train-memory" in memup("evaluate", "memory", "--run", "run", code=3).err
    memup("train-memory", "--run", "run", "--select", "uniform", "--updates", 5)
    memup("score", "--run", "run", "--updates", 50)
    memup(*COLLECT[:3], 45, *COLLECT[4:], "--restart")
    assert "memup score" in memup("train-memory", "--run", "run", "--restart", code=3).err


def test_changed_data_make_later_stages_stale(memup, run):
    memup("train-memory", "--run", "run", "--updates", 5)
    memup("score", "--run", "run", "--updates", 300, "--seed", 9, "--restart")
    assert "stale" in memup("status", "--run", "run").out
    refused = memup("evaluate", "memory", "--run", "run", code=3)
    assert "scores changed" in refused.err
    assert "scores changed" in memup("train-memory", "--run", "run", "--updates", 5, code=3).err
    memup("train-memory", "--run", "run", "--updates", 5, "--restart")
    memup("evaluate", "memory", "--run", "run")


def test_other_options_are_refused_until_restart(memup, run):
    memup("train-memory", "--run", "run", "--updates", 5)
    assert (
        "hidden was 64 and is now 32"
        in memup("train-memory", "--run", "run", "--updates", 5, "--hidden", 32, code=2).err
    )
    memup("train-memory", "--run", "run", "--updates", 5, "--hidden", 32, "--restart")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
@pytest.mark.parametrize("command", [["score"], ["train-memory"], ["evaluate", "memory"]])
def test_cuda_without_cuda_is_a_clear_message(memup, run, command):
    assert "CUDA" in memup(*command, "--run", "run", "--device", "cuda", code=2).err


def test_a_hostile_checkpoint_is_refused(memup, run):
    class Hostile:
        def __reduce__(self):
            return (Path.touch, (memup.folder / "pwned",))

    memup(*TRAIN[:5], "--updates", 20)
    record = json.loads((run / "manifest.json").read_text())
    assert record["stages"]["train-memory"]["status"] == "complete"
    shutil.copy(run / "manifest.previous.json", run / "manifest.json")
    buffer = io.BytesIO()
    torch.save({"update": Hostile()}, buffer)
    (run / "memory" / checkpoint.file_name(10, buffer.getvalue())).write_bytes(buffer.getvalue())
    refused = memup(*TRAIN[:5], "--updates", 20, code=77)
    assert "not a weights-only file" in refused.err
    assert not (memup.folder / "pwned").exists()


def test_a_torn_checkpoint_falls_back_to_the_one_before(memup, run):
    process = memup.start(*TRAIN)
    while process.poll() is None and newest(run) < 90:
        pass
    process.kill()
    process.communicate()
    found = sorted((run / "memory").glob("checkpoint-*.pt"))
    assert len(found) >= 2
    found[-1].write_bytes(found[-1].read_bytes()[:1000])
    done = memup(*TRAIN)
    assert f"resuming at update {int(found[-2].stem.split('-')[1])}" in done.err.replace(",", "")


def test_two_trainings_of_one_run_do_not_mix(memup, run):
    process = memup.start(*TRAIN)
    while process.poll() is None and newest(run) < 30:
        pass
    process.send_signal(signal.SIGSTOP)
    try:
        assert f"process {process.pid}" in memup(*TRAIN, code=75).err
    finally:
        process.send_signal(signal.SIGCONT)
    _, err = process.communicate()
    assert process.returncode == 0, err


def test_a_run_without_test_episodes_is_refused(memup):
    memup("collect", "copy", "--episodes", 20, "--test-episodes", 0, "--run", "run")
    assert "--test-episodes" in memup("train-memory", "--run", "run", "--scores", "online", code=2).err


def test_damaged_weights_and_scores_are_named_with_the_way_out(memup, run):
    memup("train-memory", "--run", "run", "--updates", 20)
    whole = (run / "memory/last.safetensors").read_bytes()
    for broken in (whole[:-4], whole[:500] + bytes([whole[500] ^ 1]) + whole[501:], b""):
        (run / "memory/last.safetensors").write_bytes(broken)
        assert "memup train-memory --run run --restart" in memup("evaluate", "memory", "--run", "run", code=65).err
    scores = run / "scores/quantile/train/0000.zarr/score/c.0"
    scores.write_bytes(scores.read_bytes()[:-9])
    refused = memup("train-memory", "--run", "run", "--updates", 20, "--restart", code=65)
    assert "`memup score` with --restart" in refused.err
    scores.unlink()
    memup("score", "--run", "run", "--updates", 600)
    memup("train-memory", "--run", "run", "--updates", 20, "--restart")
    memup("evaluate", "memory", "--run", "run")


def test_a_detector_that_does_not_fit_is_refused_before_anything_is_lost(memup, run):
    before = files_of(run)
    assert (
        "quantile or regression" in memup("score", "--run", "run", "--detector", "classifier", "--restart", code=2).err
    )
    for bad in (["--lr", "inf"], ["--temperature", "inf"], ["--rollout", 10**20], ["--hidden", 10**6]):
        memup("train-memory", "--run", "run", *bad, code=2)
    assert files_of(run) == before


def test_a_killed_stage_is_not_called_running_and_its_hint_does_not_discard_it(memup, run):
    process = memup.start(*TRAIN, "--restart")
    while process.poll() is None and newest(run) < 30:
        pass
    assert memup("status", "--run", "run", "--json").json["stages"]["train-memory"]["status"] == "running"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert "--restart" not in err
    process = memup.start(*TRAIN)
    while process.poll() is None and newest(run) < 150:
        pass
    process.kill()
    process.communicate()
    assert memup("status", "--run", "run", "--json").json["stages"]["train-memory"]["status"] == "interrupted"


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
def test_training_on_cuda_solves_the_maze(memup, run):
    assert rmse(memup, "--rollout", 4, "--updates", 4000, "--until-rmse", 0.1, "--device", "cuda") < 0.1


def test_a_batch_log_gets_lines_not_bars(memup, run):
    shown = memup("train-memory", "--run", "run", "--updates", 60)
    assert "━" not in shown.err
    assert "Next: memup evaluate memory" in shown.out
