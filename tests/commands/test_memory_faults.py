"""What happens to scores and training when jobs are killed, files are damaged and options change."""

import io
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch

from memup_cli.records import checkpoint
from tests.cli import files_of

TRAIN = ["train-memory", "--run", "run", "--rollout", 5, "--updates", 180, "--checkpoint-every", 30]
TRAIN += ["--evaluate-every", 60, "--hidden", 16, "--predictor-hidden", 16, "--batch", 16]


def weights(run: Path) -> bytes:
    return (run / "memory" / "last.safetensors").read_bytes()


PRIORITY = ["--rollout-sampling", "priority", "--stretch", 3, "--starts", 0.25, "--replay", 0.25]


@pytest.mark.parametrize("how", [["--scores", "stored"], ["--scores", "online"], PRIORITY], ids=lambda how: how[1])
def test_an_interrupted_training_ends_with_the_same_weights(memup, scored, how):
    shutil.copytree(scored, memup.folder / "run")
    memup(*TRAIN, *how)
    expected = weights(memup.folder / "run")
    curve = (memup.folder / "run/logs/train-memory/metrics.jsonl").read_text()
    shutil.rmtree(memup.folder / "run")
    shutil.copytree(scored, memup.folder / "run")
    for number, update in ((signal.SIGKILL, 60), (signal.SIGTERM, 90), (signal.SIGKILL, 150)):
        stopped = memup.held(*TRAIN, *how, at=f"run/memory/checkpoint-{update:09d}-*.pt").interrupt(number)
        if number == signal.SIGTERM:
            assert stopped.code == 75, stopped.err
            assert re.search(r"checkpoint saved at update \d+", stopped.err)
            assert "memup train-memory" in stopped.err
        assert memup("status", "--run", "run", "--json").json["stages"]["train-memory"]["status"] == "interrupted"
    done = memup(*TRAIN, *how)
    assert "resuming at update 150" in done.err
    assert weights(memup.folder / "run") == expected
    strip = re.compile(r'"(updates_per_second|data_wait_share)": [^,}]+')
    resumed = (memup.folder / "run/logs/train-memory/metrics.jsonl").read_text()
    assert strip.sub("", resumed) == strip.sub("", curve)
    assert "up to date" in memup(*TRAIN, *how).out


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


def test_a_loss_that_is_not_finite_stops_and_keeps_the_good_checkpoint(memup, maze):
    bad = ["--updates", 100, "--lr", 1e30, "--clip", 1e30, "--checkpoint-every", 1]
    failed = memup("train-memory", "--run", "run", *bad, code=65)
    assert "no longer finite" in failed.err
    assert "learning rate" in failed.err
    assert "the last good checkpoint, of update 1, is kept" in failed.err
    (kept,) = (maze / "memory").glob("checkpoint-*.pt")
    assert all(torch.isfinite(w).all() for w in torch.load(kept, weights_only=True)["learner"]["model"].values())
    entry = memup("status", "--run", "run", "--json").json["stages"]["train-memory"]
    assert entry["status"] == "failed"
    assert "finite" in entry["problem"]


def test_changed_data_make_later_stages_stale(memup, maze):
    memup("train-memory", "--run", "run", "--updates", 5)
    memup("score", "--run", "run", "--updates", 300, "--seed", 9, "--restart")
    assert "stale" in memup("status", "--run", "run").out
    refused = memup("evaluate", "memory", "--run", "run", code=3)
    assert "scores changed" in refused.err
    assert "scores changed" in memup("train-memory", "--run", "run", "--updates", 5, code=3).err
    memup("train-memory", "--run", "run", "--updates", 5, "--restart")
    memup("evaluate", "memory", "--run", "run")


def test_other_options_are_refused_until_restart(memup, maze):
    memup("train-memory", "--run", "run", "--updates", 5)
    assert (
        "hidden was 64 and is now 32"
        in memup("train-memory", "--run", "run", "--updates", 5, "--hidden", 32, code=2).err
    )
    memup("train-memory", "--run", "run", "--updates", 5, "--hidden", 32, "--restart")


def test_a_hostile_checkpoint_is_refused(memup, maze):
    class Hostile:
        def __reduce__(self):
            return (Path.touch, (memup.folder / "pwned",))

    memup(*TRAIN[:5], "--updates", 20)
    record = json.loads((maze / "manifest.json").read_text())
    assert record["stages"]["train-memory"]["status"] == "complete"
    shutil.copy(maze / "manifest.previous.json", maze / "manifest.json")
    buffer = io.BytesIO()
    torch.save({"update": Hostile()}, buffer)
    (maze / "memory" / checkpoint.file_name(99, buffer.getvalue())).write_bytes(buffer.getvalue())
    refused = memup(*TRAIN[:5], "--updates", 20, code=77)
    assert "not a weights-only file" in refused.err
    assert not (memup.folder / "pwned").exists()


def test_a_torn_checkpoint_falls_back_to_the_one_before(memup, maze):
    memup.killed(*TRAIN, at="run/memory/checkpoint-000000090-*.pt")
    found = sorted((maze / "memory").glob("checkpoint-*.pt"))
    assert [int(path.stem.split("-")[1]) for path in found] == [30, 60, 90]  # the oldest was about to go
    found[-1].write_bytes(found[-1].read_bytes()[:1000])
    done = memup(*TRAIN)
    assert "resuming at update 60" in done.err


def test_two_trainings_of_one_run_do_not_mix(memup, maze):
    process = memup.held(*TRAIN, at="run/memory/checkpoint-000000030-*.pt")
    assert f"process {process.pid}" in memup(*TRAIN, code=75).err
    done = process.resume()
    assert done.code == 0, done.err


def test_damaged_weights_and_scores_are_named_with_the_way_out(memup, maze):
    memup("train-memory", "--run", "run", "--updates", 20)
    whole = (maze / "memory/best.safetensors").read_bytes()
    for broken in (whole[:-4], whole[:500] + bytes([whole[500] ^ 1]) + whole[501:], b""):
        (maze / "memory/best.safetensors").write_bytes(broken)
        assert (
            "memup train-memory --updates 20 --run run --restart"
            in memup("evaluate", "memory", "--run", "run", code=65).err
        )
        assert "memup train-memory --updates 20 --run run --restart" in memup("verify", "--run", "run", code=65).out
    (maze / "memory/best.safetensors").write_bytes(whole)
    scores = maze / "scores/quantile/train/0000.zarr/score/c.0"
    scores.write_bytes(scores.read_bytes()[:-9])
    refused = memup("train-memory", "--run", "run", "--updates", 20, "--restart", code=65)
    assert "`memup verify --repair`" in refused.err
    assert "memup score --updates 600 --run run" in memup("verify", "--run", "run", code=65).out
    (place,) = memup("verify", "--run", "run", "--repair", "--json").json["quarantined"]
    assert (maze / place / "score/c.0").exists()
    memup("score", "--run", "run", "--updates", 600)
    memup("verify", "--run", "run")
    memup("train-memory", "--run", "run", "--updates", 20, "--restart")
    memup("evaluate", "memory", "--run", "run")


@pytest.mark.parametrize("which", ["best", "last"])
def test_weights_that_are_damaged_or_gone_are_not_up_to_date_and_not_repaired(memup, maze, which):
    train = ["train-memory", "--run", "run", "--updates", 5]
    memup(*train)
    path, again = maze / f"memory/{which}.safetensors", "memup train-memory --updates 5 --run run --restart"
    path.write_bytes(path.read_bytes()[:-4] + b"....")
    for harm in (lambda: None, path.unlink):
        harm()
        assert again in memup(*train, code=65).err
        assert again in memup("verify", "--run", "run", "--repair", code=65).out
    memup(*train, "--restart")
    assert "up to date" in memup(*train).out


def test_a_killed_stage_is_not_called_running_and_its_hint_does_not_discard_it(memup, maze):
    process = memup.held(*TRAIN, "--restart", at="run/memory/checkpoint-000000030-*.pt")
    assert memup("status", "--run", "run", "--json").json["stages"]["train-memory"]["status"] == "running"
    assert "--restart" not in process.interrupt().err
    memup.killed(*TRAIN, at="run/memory/checkpoint-000000150-*.pt")
    assert memup("status", "--run", "run", "--json").json["stages"]["train-memory"]["status"] == "interrupted"


def test_scores_in_the_wrong_place_are_refused_and_made_again(memup):
    memup("collect", "tmaze", "--length", 300000, "--episodes", 4, "--test-episodes", 1, "--run", "run")
    memup("score", "--run", "run", "--updates", 200)
    whole = files_of(memup.folder / "run" / "scores")
    folder = memup.folder / "run" / "scores/quantile/train/0000.zarr/score"
    shutil.copy(folder / "c.1", folder / "c.2")
    assert memup("verify", "--run", "run", "--json", code=65).json["damaged"][0]["chunk"] == 2
    refused = memup("train-memory", "--run", "run", "--updates", 5, code=65)
    assert "`memup verify --repair`" in refused.err
    assert "To make it again: memup score --updates 200 --run run" in memup("verify", "--run", "run", "--repair").out
    memup("score", "--run", "run", "--updates", 200)
    assert files_of(memup.folder / "run" / "scores") == whole


def test_best_weights_that_were_damaged_meanwhile_are_not_taken_for_good(memup, maze):
    memup(*TRAIN[:5], "--updates", 20, "--checkpoint-every", 10)
    shutil.copy(maze / "manifest.previous.json", maze / "manifest.json")
    data = bytearray((maze / "memory/best.safetensors").read_bytes())
    data[-3] ^= 4
    (maze / "memory/best.safetensors").write_bytes(data)
    refused = memup(*TRAIN[:5], "--updates", 20, "--checkpoint-every", 10, code=65)
    assert "best.safetensors" in refused.err
    assert "--restart" in refused.err
