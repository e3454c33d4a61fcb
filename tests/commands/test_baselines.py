"""train-baseline and evaluate baselines through the command line, on sequences short enough for a test."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from memup_cli.baselines.baseline_evaluation import predict_baseline
from memup_cli.learning.weights import load_baseline
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.selection.importance import Matters
from tests.cli import COLLECT_MAZE, Memup, files_of

SMALL = ["train-baseline", "--run", "run", "--hidden", 16, "--batch", 8, "--updates", 20, "--quiet"]
MODELS = ["lstm", "srnn", "transformer"]


@pytest.fixture(scope="session")
def copied(tmp_path_factory) -> Path:
    """A collected copy-24, to be copied."""
    memup = Memup(tmp_path_factory.mktemp("copied"))
    memup("collect", "copy", "--length", 24, "--episodes", 2000, "--test-episodes", 50, "--run", "run")
    return memup.folder / "run"


@pytest.fixture
def run(memup, copied) -> Path:
    shutil.copytree(copied, memup.folder / "run")
    return memup.folder / "run"


def test_an_srnn_learns_to_copy_a_whole_sequence(memup, run):
    options = ["--model", "srnn", "--lr", 0.003, "--batch", 32, "--evaluate-every", 50, "--until", "accuracy>=0.9"]
    done = memup("train-baseline", "--run", "run", *options, "--updates", 800, "--json").json
    assert done["accuracy"] >= 0.9  # chance is 1/8
    assert done["updates"] < 800
    found = memup("evaluate", "baselines", "--run", "run", "--json").json["rows"]
    assert found[0]["accuracy"] > 0.85
    curve = [json.loads(x) for x in (run / "logs/train-baseline/srnn/metrics.jsonl").read_text().splitlines()]
    assert {"loss", "updates_per_second", "data_wait_share"} <= set(curve[0])


def test_clipped_to_next_to_nothing_gradients_change_next_to_nothing(memup, run):
    def weights(updates: int, clip: float) -> torch.Tensor:
        memup(*SMALL, "--model", "lstm", "--truncate", 6, "--updates", updates, "--clip", clip, "--restart")
        found = load_file(run / "baseline/lstm-tr6/last.safetensors")
        return torch.cat([found[name].flatten() for name in sorted(found)])

    before = weights(1, 1e-30)
    assert (weights(5, 1e-30) - before).abs().max() < 1e-9
    assert (weights(5, 1.0) - before).abs().max() > 1e-3


def test_a_baseline_is_judged_by_validation_episodes_while_it_trains(memup, run):
    done = memup(*SMALL, "--model", "lstm", "--truncate", 6, "--json").json
    manifest = open_run(run)
    spec, config = spec_of(manifest), manifest.stages["train-baseline/lstm-tr6"]["config"]
    model, matters = load_baseline(manifest, "lstm-tr6", "last"), Matters(manifest, spec, config)

    def judged_by(split: str) -> dict[str, float]:
        count = config["evaluate_episodes"]
        return predict_baseline(model, config, split_of(manifest, split), spec, 0.0, matters, count).metrics()

    assert {name: done[name] for name in ("accuracy", "nll")} == pytest.approx(judged_by("validation"), rel=1e-5)
    assert done["nll"] != pytest.approx(judged_by("test")["nll"], rel=1e-5)


def test_baselines_stand_side_by_side_with_the_memory(memup, run):
    memup("train-memory", "--run", "run", "--scores", "online", "--updates", 20, "--rollout", 6)
    for model in MODELS:
        done = memup(*SMALL, "--model", model, "--json").json
        assert done["outcome"] == "trained"
        assert done["saved_tensor_bytes"] > 0
        short = memup(*SMALL, "--model", model, "--truncate", 6, "--json").json
        assert short["saved_tensor_bytes"] < done["saved_tensor_bytes"] / 2
    memup(*SMALL, "--model", "transformer", "--truncate", 12, "--batch", 64, "--memory-limit", 1)
    found = memup("evaluate", "baselines", "--run", "run", "--json").json
    rows = {row["method"]: row for row in found["rows"]}
    assert list(rows) == ["memup", "lstm", "lstm-tr6", "srnn", "srnn-tr6"] + [
        f"transformer{end}" for end in ("", "-tr12", "-tr6")
    ]
    assert rows["memup"]["ratio_to_memup"] == 1
    for name in ("lstm", "srnn-tr6", "transformer-tr6"):
        assert rows[name]["interval"][0] <= rows[name]["accuracy"] <= rows[name]["interval"][1]
        assert rows[name]["updates"] == 20
        assert rows[name]["ratio_to_memup"] > 0
    assert rows["transformer-tr12"]["outcome"] == "out of memory"
    assert json.loads((run / "evaluation/baselines.json").read_text())["rows"] == found["rows"]
    shown = memup("evaluate", "baselines", "--run", "run", "--checkpoint", "best").out
    assert re.search(r"transformer-tr12.*out of memory", shown)
    stages = memup("status", "--run", "run", "--json").json["stages"]
    assert {"train-baseline/lstm", "train-baseline/lstm-tr6", "evaluate/baselines"} <= set(stages)
    assert {stage["status"] for stage in stages.values()} == {"complete"}


def test_out_of_memory_is_a_result_and_more_memory_changes_it(memup, run):
    big = [*SMALL, "--batch", 64]
    refused = memup(*big, "--memory-limit", 1, "--json").json
    assert refused["outcome"] == "out of memory"
    assert refused["predicted_bytes"] > refused["limit_bytes"] == 10**6
    assert not list((run / "baseline/lstm").glob("*.safetensors"))
    assert "out of memory" in memup(*big, "--memory-limit", 1).out
    assert "nothing was trained" in memup("status", "--run", "run").out
    memup("verify", "--run", "run")
    planned = memup(*big, "--dry-run", "--json").json
    assert planned["predicted_bytes"] == refused["predicted_bytes"] < planned["limit_bytes"]
    assert memup(*big, "--memory-limit", 1000, "--json").json["outcome"] == "trained"
    assert memup(*big, "--memory-limit", 1, "--json").json["outcome"] == "up to date"


@pytest.mark.parametrize("options", [["lstm", "--truncate", 6], ["srnn"], ["transformer"]])
def test_an_interrupted_baseline_ends_with_the_same_weights(memup, copied, options):
    train = [*SMALL[:-3], "--updates", 300, "--checkpoint-every", 10, "--evaluate-every", 60, "--model", *options]
    name = options[0] + "-tr6" * (len(options) > 1)
    run = memup.folder / "run"
    shutil.copytree(copied, run)
    memup(*train)
    expected = weights(run, name)
    shutil.rmtree(run)
    shutil.copytree(copied, run)
    for number in (signal.SIGKILL, signal.SIGTERM):
        done = memup.held(*train, at=f"run/baseline/{name}/checkpoint-*.pt", nth=2).interrupt(number)
        assert done.code == (75 if number == signal.SIGTERM else -signal.SIGKILL), done.err
        assert memup("status", "--run", "run", "--json").json["stages"][f"train-baseline/{name}"]["status"] == (
            "interrupted"
        )
    assert "hidden was 16 and is now 8" in memup(*train, "--hidden", 8, code=2).err
    assert "resuming at update" in memup(*train).err
    assert weights(run, name) == expected
    before = files_of(run)
    assert "up to date" in memup(*train).out
    assert files_of(run) == before


def weights(run: Path, name: str) -> list[bytes]:
    return [(run / "baseline" / name / f"{which}.safetensors").read_bytes() for which in ("best", "last")]


def test_a_loss_that_is_not_finite_stops_and_keeps_the_good_checkpoint(memup, run):
    failed = memup(*SMALL, "--lr", 1e30, "--clip", 1e30, "--checkpoint-every", 1, code=65)
    assert "no longer finite" in failed.err
    assert "the last good checkpoint, of update 1, is kept" in failed.err
    (kept,) = (run / "baseline/lstm").glob("checkpoint-*.pt")
    assert all(torch.isfinite(w).all() for w in torch.load(kept, weights_only=True)["learner"]["model"].values())
    assert memup("status", "--run", "run", "--json").json["stages"]["train-baseline/lstm"]["status"] == "failed"


def test_damaged_weights_are_named_and_made_again(memup, run):
    train = [*SMALL, "--truncate", 6, "--checkpoint-every", 10]
    memup(*train)
    whole = weights(run, "lstm-tr6")
    (run / "baseline/lstm-tr6/last.safetensors").write_bytes(b"no")
    shown = memup("verify", "--run", "run", code=65).out
    assert "baseline/lstm-tr6/last.safetensors" in shown
    assert "memup train-baseline --hidden 16" in shown
    assert "--truncate 6" in memup("evaluate", "baselines", "--run", "run", code=65).err
    memup(*train)
    assert weights(run, "lstm-tr6") == whole
    memup("verify", "--run", "run")


def test_numbers_and_actions_train_too(memup):
    memup(*COLLECT_MAZE)
    for options in (["--model", "srnn"], ["--model", "transformer", "--truncate", 10]):
        done = memup(*SMALL, *options, "--json").json
        assert done["mse"] == pytest.approx(done["rmse"] ** 2)
    assert re.search(r"srnn .*\d to \d", memup("evaluate", "baselines", "--run", "run").out)
    assert 'numbers; use "rmse<0.1" or "mse<0.001"' in memup(*SMALL, "--until", "accuracy>=0.5", code=2).err


def test_what_cannot_be_done_is_refused(memup, run):
    assert "memup collect" in memup("train-baseline", "--run", "elsewhere", code=3).err
    assert "memup train-baseline" in memup("evaluate", "baselines", "--run", "run", code=3).err
    assert "does not divide" in memup(*SMALL, "--model", "transformer", "--heads", 3, code=2).err
    assert 'classes; use "accuracy>0.99"' in memup(*SMALL, "--until", "mse<0.1", code=2).err
    outside = memup.folder / "outside"
    outside.mkdir()
    (run / "baseline").symlink_to(outside)
    assert "symbolic link" in memup(*SMALL, code=77).err
    assert list(outside.iterdir()) == []


def test_whole_sequences_that_do_not_fit_the_slab_say_how_much_they_need(memup):
    memup("collect", "tmaze", "--length", 20000, "--episodes", 4, "--test-episodes", 1, "--run", "run")
    failed = memup(*SMALL, "--batch", 64, "--slab-memory", 30, "--memory-limit", 1_000_000, code=2).err
    needed = int(re.search(r"give it (\d+)", failed)[1])
    assert 30 < needed < 100
