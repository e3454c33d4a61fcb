"""Supervised tasks on the real command line: contexts, replay, plans, and data that cannot be trained on."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli import Memup

SMALL = ["--episodes", 300, "--test-episodes", 40, "--run", "run"]
QUICK = ["--hidden", 16, "--predictor-hidden", 16, "--batch", 16]
QUICK += ["--evaluate-every", 60, "--checkpoint-every", 30, "--evaluate-episodes", 10]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> dict[str, Path]:
    """Small copies of the tasks, collected and scored."""
    found = {}
    for task, length in (("copy", 24), ("scattered-copy", 40), ("add", 20)):
        memup = Memup(tmp_path_factory.mktemp(task))
        memup("collect", task, "--length", length, *SMALL)
        memup("score", "--run", "run", "--updates", 200)
        found[task] = memup.folder / "run"
    return found


def entry(memup: Memup, stage: str) -> dict:
    return json.loads((memup.folder / "run/manifest.json").read_text())["stages"][stage]


@pytest.mark.learning
def test_digits_are_copied_over_more_steps_than_gradients_flow_through(memup):
    """Six rollouts of 5 steps lie between the first digit and the last recall."""
    memup("collect", "copy", "--length", 30, "--episodes", 3000, "--test-episodes", 200, "--run", "run")
    memup("score", "--run", "run", "--updates", 200)
    options = ["--rollout", 5, "--hidden", 64, "--updates", 1500, "--evaluate-every", 500]
    done = memup("train-memory", "--run", "run", *options, "--until", "accuracy>=0.6", "--json").json
    assert done["accuracy"] > 0.35  # chance: 0.125; many steps more make it 1
    found = memup("evaluate", "memory", "--run", "run", "--json").json
    assert found["accuracy"] == pytest.approx(done["accuracy"], abs=0.05)  # of other episodes
    assert found["steps"] == 2000


VARIANTS = {
    "window, online": ("copy", ["--scores", "online", "--context", "window", "--context-hidden", 16]),
    "carried": ("scattered-copy", ["--context", "carried"]),
    "carried, online": ("scattered-copy", ["--context", "carried", "--scores", "online"]),
    "totals": ("scattered-copy", ["--context", "totals"]),
    "totals, online": ("scattered-copy", ["--scores", "online", "--context", "totals"]),
    "learned spread": ("add", ["--spread", "learned"]),
    "paper": ("add", ["--preset", "paper", "--select", "uniform"]),
}


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=pytest.mark.learning if "online" in name else ()) for name in VARIANTS]
)
def test_an_interrupted_training_ends_with_the_same_weights(memup, prepared, variant):
    task, options = VARIANTS[variant]
    command = ["train-memory", "--run", "run", "--updates", 90, *QUICK, *options]
    shutil.copytree(prepared[task], memup.folder / "run")
    memup(*command)
    expected = (memup.folder / "run/memory/last.safetensors").read_bytes()
    shutil.rmtree(memup.folder / "run")
    shutil.copytree(prepared[task], memup.folder / "run")
    memup.killed(*command, at="run/memory/checkpoint-*.pt")
    assert "resuming at update 30" in memup(*command).err
    assert (memup.folder / "run/memory/last.safetensors").read_bytes() == expected


def test_what_is_not_given_comes_from_the_plan_or_from_the_paper(memup, prepared):
    shutil.copytree(prepared["scattered-copy"], memup.folder / "run")
    plan = ["train-memory", "--run", "run", "--dry-run", "--json"]
    planned = memup(*plan).json["config"]
    assert (planned["predictor"], planned["average"]) == ("gated", 0.05)
    paper = memup(*plan, "--preset", "paper").json["config"]
    assert (paper["layers"], paper["hidden"], paper["dropout"], paper["predictor"]) == (2, 128, 0.1, "mlp")
    assert memup(*plan, "--preset", "paper", "--layers", 1).json["config"]["layers"] == 1
    assert memup(*plan, "--select", "current").json["config"]["context"] == "point"
    assert "--context point" in memup(*plan, "--select", "current", "--context", "window", code=2).err
    assert "accuracy>0.99" in memup(*plan, "--until", "rmse<0.1", code=2).err
    assert "--spread learned" in memup(*plan, "--spread", "learned", code=2).err
    assert "use classifier" in memup(*plan, "--detector", "quantile", code=2).err
    assert "leave none of the batch" in memup(*plan, "--starts", 0.6, "--replay", 0.5, code=2).err


def test_a_handful_of_steps_can_be_scored(memup):
    memup("collect", "add", "--length", 3, "--episodes", 5, "--test-episodes", 1, "--run", "run")
    found = memup("score", "--run", "run", "--updates", 5, "--json").json
    assert found["summarised"] == {"episodes": 3, "of": 3}  # two are for validation
    assert sum(found["histogram"]["counts"]) == 9


def test_sequences_shorter_than_the_context_window_are_padded(memup):
    memup("collect", "add", "--length", 3, "--episodes", 50, "--test-episodes", 10, "--run", "run")
    memup("score", "--run", "run", "--updates", 20)
    done = memup("train-memory", "--run", "run", "--updates", 20, *QUICK, "--context", "window", "--json").json
    assert done["rmse"] < 10


PLUGIN = """
import numpy as np
from memup_cli.tasks.copying import Copy, CopyOptions

class Wrong(CopyOptions):
    problem: str = "class"

class Broken(Copy):
    Options, checked, name = Wrong, False, "broken"
    @property
    def spec(self):
        from dataclasses import replace
        from stores.layout import Field
        spec = super().spec
        return replace(spec, fields=(*spec.fields, Field("noise", "float32")), memory_input=("input", "noise"))
    def episode(self, seed):
        episode = super().episode(seed)
        episode.arrays["noise"] = np.zeros(len(episode.arrays["input"]), np.float32)
        if self.options.problem == "class":
            episode.arrays["target"][5] = 77
        elif self.options.problem == "nan":
            episode.arrays["noise"][7] = np.nan
        return episode
"""


def test_classes_out_of_range_and_numbers_that_are_not_finite_are_refused(memup):
    package = memup.folder / "site"
    (package / "plugin-1.0.dist-info").mkdir(parents=True)
    (package / "plugin-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (package / "plugin-1.0.dist-info" / "entry_points.txt").write_text("[memup.tasks]\nbroken = plugin:Broken\n")
    (package / "plugin.py").write_text(PLUGIN)
    path = {"PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])}
    collect = ["collect", "broken", "--length", 24, "--episodes", 4, "--test-episodes", 1, "--problem"]
    refused = memup(*collect, "class", code=65, env=path).err
    assert "class 77 in `target` at step 5" in refused
    assert "episode 0 of the train split" in refused
    assert "`noise` at step 7" in memup(*collect, "nan", "--run", "b", code=65, env=path).err
    memup(*collect, "none", "--run", "c", env=path)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ([], {"rollout_sampling": "priority", "stretch": 20, "novelty_gates": True}),
        (["--preset", "paper"], {"rollout_sampling": "all", "context": "carried", "layers": 2}),
        (["--context", "carried"], {"rollout_sampling": "all", "novelty_gates": True}),
        (["--cell", "gru"], {"rollout_sampling": "priority", "cell": "gru"}),
    ],
)
def test_of_the_plan_for_long_sequences_only_what_fits_the_options_is_used(memup, given, used):
    memup("collect", "scattered-copy", "--length", 2000, "--episodes", 20, "--test-episodes", 2, "--run", "run")
    memup("score", "--run", "run", "--updates", 5)
    config = memup("train-memory", "--run", "run", *given, "--dry-run", "--json").json["config"]
    assert {name: config[name] for name in used} == used
    assert config.get("novelty_gates", False) == used.get("novelty_gates", False)
