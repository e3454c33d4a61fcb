"""Noise that cannot be remembered: the probe's scores, and training by them, through the command line."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.selection.choosing import stored_scores
from memup_cli.selection.gains import SIGNIFICANT
from memup_cli.selection.utility import choice
from stores.manifest import Manifest
from stores.reader import Trajectories
from stores.schedule import Visit
from stores.scores import ScoreReader, score_path
from tests.cli import Memup

COLLECT = ["collect", "tmaze", "--length", 55, "--distractors", 3, "--episodes", 300, "--test-episodes", 20]
PROBE = ["score", "--run", "run", "--detector", "probe", "--updates", 500]
TRAIN = ["train-memory", "--run", "run", "--rollout", 1, "--updates", 60, "--checkpoint-every", 20]


@pytest.fixture(scope="module")
def probed(tmp_path_factory) -> Path:
    """A maze with three distractors, scored with the probe, to be copied."""
    memup = Memup(tmp_path_factory.mktemp("probed"))
    memup(*COLLECT, "--run", "run")
    memup(*PROBE)
    return memup.folder / "run"


@pytest.fixture
def noisy(memup, probed) -> Path:
    return Path(shutil.copytree(probed, memup.folder / "run"))


def trained(run: Path) -> bytes:
    return (run / "memory" / "last.safetensors").read_bytes()


def test_the_probe_tells_the_junction_from_noise(memup, noisy):
    found = {"utility": [], "surprise": [], "point": []}
    shard = Trajectories(noisy / "trajectories" / "test", 1).shards[0]
    for row, arrays in zip(shard.rows(0), Trajectories(noisy / "trajectories" / "test", 1), strict=True):
        found["point"].append(arrays["observation"][:, 1])
        for name, detector in (("utility", "probe"), ("surprise", "quantile")):
            found[name].append(ScoreReader(score_path(noisy, detector, shard), shard).episode(row))
    utility, surprise, point = (np.concatenate(found[name]) for name in ("utility", "surprise", "point"))
    assert utility[point == 1].min() > 0.7
    assert utility[point != 1].max() < 0.5
    assert surprise[point > 0].min() > 2, "by surprise alone they are all the same"
    shown = memup(*PROBE, "--json").json
    assert shown["outcome"] == "up to date"
    assert shown["probe"]["tells"]
    assert memup("verify", "--run", "run", "--json").json["ok"]
    (noisy / "scores/quantile/train/0000.zarr/score/c.0").unlink()
    assert "memup score" in memup("verify", "--run", "run", code=65).out
    assert "scored" in memup(*PROBE).out


def test_noise_is_no_event_for_the_plan(memup, noisy):
    def planned(*given: object) -> dict:
        found = memup("train-memory", "--run", "run", "--dry-run", "--json", *given).json["plan"]["choices"]
        return {choice["option"]: choice["value"] for choice in found}

    assert (planned()["select"], planned()["targets"]) == ("utility", 1)
    assert planned("--select", "surprise")["targets"] == 4, "the junction and three distractors"


def test_both_selections_train_from_the_probes_scores(memup, noisy):
    for select, detector in (("utility", "probe"), ("surprise", "quantile")):
        memup(*TRAIN, "--select", select, "--restart")
        config = Manifest.load(noisy).stages["train-memory"]["config"]
        assert config["detector"] == detector
        assert config.get("explore", 0.0) == (0.1 if select == "surprise" else 0.0)
    assert memup("evaluate", "memory", "--run", "run", "--json").json["episodes"] == 20


@pytest.mark.parametrize(("select", "detector"), [("surprise", "quantile"), ("utility", "probe")])
def test_surprise_is_drawn_with_a_temperature_in_units_of_its_spread(probed, select, detector):
    """Also on the visits on which a selection by utility explores: here, on all."""
    explore = float(select == "utility")
    manifest, options = open_run(probed), TrainMemoryOptions(select=select, explore=explore, temperature=0.3)
    shard = split_of(manifest, "train").shards[0]
    visits = [Visit(number, shard, 0, 0) for number in range(2000)]
    choose = choice(manifest, spec_of(manifest), options, detector, 0)
    drawn = np.array([choose(visit).at(np.array(0))[0] for visit in visits])
    scores = stored_scores(probed, "quantile")(visits[0])
    chances = np.exp(scores / (0.3 * manifest.stages["score"]["metrics"]["spread"]))
    surprising = scores > scores.max() / 2
    expected = chances[surprising].sum() / chances.sum()
    assert 0.2 < expected < 0.9
    assert surprising[drawn].mean() == pytest.approx(expected, abs=5 * 0.5 / len(visits) ** 0.5)  # standard deviations


def test_an_interrupted_training_by_utility_ends_with_the_same_weights(memup, probed):
    shutil.copytree(probed, memup.folder / "whole")
    memup(*(word if word != "run" else "whole" for word in TRAIN), "--select", "utility")
    run = Path(shutil.copytree(probed, memup.folder / "run"))
    memup.killed(*TRAIN, "--select", "utility", at="run/memory/checkpoint-*.pt")
    memup(*TRAIN, "--select", "utility")
    assert trained(run) == trained(memup.folder / "whole")


@pytest.mark.learning
def test_targets_drawn_by_the_running_gain_survive_an_interruption(memup):
    memup("collect", "tmaze", "--length", 20, "--episodes", 200, "--test-episodes", 10, "--run", "run")
    memup(*PROBE)
    shutil.copytree(memup.folder / "run", memup.folder / "whole")
    train = ["train-memory", "--select", "utility", "--explore", 1, "--rollout", 1, "--batch", 16, "--hidden", 16]
    train += ["--updates", 1200, "--checkpoint-every", 100, "--evaluate-every", 1200, "--run"]
    memup(*train, "whole")
    shutil.copytree(memup.folder / "whole/memoryless", memup.folder / "run/memoryless")  # not what this is about
    memup.killed(*train, "run", at="run/memory/checkpoint-*900-*.pt")
    path = max((memup.folder / "run/memory").glob("checkpoint-*.pt"))
    assert torch.load(path, weights_only=True)["learner"]["gains"]["networks"]["largest"] > SIGNIFICANT
    memup(*train, "run")
    assert trained(memup.folder / "run") == trained(memup.folder / "whole")


def test_where_order_matters_utility_falls_back_to_surprise(memup):
    memup("collect", "scattered-copy", "--length", 30, "--episodes", 300, "--test-episodes", 20, "--run", "run")
    scored = memup("score", "--run", "run", "--detector", "probe", "--updates", 150, "--hidden", 16, "--window", 2)
    assert "will select by surprise" in scored.out
    train = ["train-memory", "--run", "run", "--updates", 10, "--batch", 8]
    assert "selected by the surprise of the classifier" in memup(*train, "--select", "utility").err
    entry = json.loads((memup.folder / "run" / "manifest.json").read_text())["stages"]["train-memory"]
    assert (entry["config"]["select"], entry["config"]["detector"]) == ("utility", "classifier")
    by_utility = trained(memup.folder / "run")
    memup(*train, "--select", "surprise", "--restart")
    assert trained(memup.folder / "run") == by_utility


def test_utility_asks_for_the_probe(memup, maze):
    failed = memup("train-memory", "--run", "run", "--select", "utility", code=3)
    assert "memup score --detector probe --run run --restart" in failed.err
    utility = ["train-memory", "--run", "run", "--select", "utility"]
    assert "--scores online" in memup(*utility, "--scores", "online", code=2).err
    assert "of the probe" in memup(*utility, "--detector", "quantile", code=2).err
    memup("collect", "tmaze", "--length", 20, "--episodes", 5, "--test-episodes", 1, "--run", "few")
    failed = memup("train-memory", "--run", "few", "--select", "utility", code=3)
    assert "memup score --detector probe --run few" in failed.err
    assert "10 training episodes" in memup("score", "--run", "few", "--detector", "probe", code=2).err
