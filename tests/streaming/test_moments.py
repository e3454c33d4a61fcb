"""What is rare is loud: the moments of inputs, and what a memory hears."""

import json
import shutil

import numpy as np
import pytest
import torch

from memup_cli.memory.cells import Shape, build_cell
from memup_cli.memory.standard import LOUD, LOUDEST, Standard
from memup_cli.records.opening import open_run, spec_of, split_of
from memup_cli.stages.memory.facts import target_moments
from memup_cli.streaming.moments import NAME, measure, moments_of
from memup_cli.streaming.targets import discounted_returns
from memup_cli.tasks.spec import PREVIOUS_ACTION, TaskSpec
from tests.cli import Memup

MAZE = ["collect", "tmaze", "--length", 30, "--episodes", 60, "--test-episodes", 5]


def expected(run) -> dict[str, dict[str, np.ndarray]]:
    """By brute force, over whole episodes in RAM."""
    manifest = open_run(run)
    spec, train = spec_of(manifest), list(split_of(manifest, "train"))
    assert spec.memory_input == ("observation", PREVIOUS_ACTION)
    seen = np.concatenate([arrays["observation"] for arrays in train]).astype(np.float64)
    none = spec.classes["action"]
    late = np.concatenate([np.concatenate([[none], arrays["action"][:-1]]) for arrays in train])
    actions = (late[:, None] == np.arange(none)).astype(np.float64)
    return {
        name: {"mean": values.mean(0), "sd": values.std(0)}
        for name, values in (("observation", seen), (PREVIOUS_ACTION, actions))
    }


def test_moments_are_those_of_the_training_episodes_in_however_many_shards(memup):
    memup(*MAZE, "--run", "run")
    for shard in range(3):
        memup(*MAZE, "--run", "shards", "--shard", f"{shard}/3")
    wanted = expected(memup.folder / "run")
    found = [
        measure(split_of(manifest, "train"), spec_of(manifest))
        for manifest in (open_run(memup.folder / name) for name in ("run", "shards"))
    ]
    assert found[0] == found[1]
    for name, moments in wanted.items():
        for which, values in moments.items():
            np.testing.assert_allclose(found[0][name][which], values, rtol=1e-12, atol=1e-15)


def test_moments_of_other_episodes_are_not_taken_however_many_there_are(memup):
    for run, seed in (("run", 0), ("other", 1)):
        memup(*MAZE, "--seed", seed, "--run", run)
    first, other = (open_run(memup.folder / run) for run in ("run", "other"))
    moments_of(first, spec_of(first), keep=True)
    shutil.copy(first.run / NAME, other.run / NAME)
    assert moments_of(other, spec_of(other)) == measure(split_of(other, "train"), spec_of(other))


def test_what_is_predicted_is_measured_on_validation_episodes(memup):
    memup(*MAZE, "--run", "run")
    manifest = open_run(memup.folder / "run")
    spec = spec_of(manifest)
    y = np.concatenate([discounted_returns(arrays["reward"], 0.9) for arrays in split_of(manifest, "validation")])
    assert target_moments(manifest, spec, "", 0.9) == pytest.approx((y.mean(), y.std()), rel=1e-5)


def test_a_large_mean_hides_no_small_spread(tmp_path):
    from memup_cli.streaming.moments import Sums

    values = 1e9 + np.arange(10.0)[:, None]
    sums = Sums(classes=0, image=False)
    sums.add(values, [0, 4])
    found = sums.result()
    assert found["mean"] == [1e9 + 4.5]
    assert found["sd"] == [pytest.approx(np.arange(10).std(), rel=1e-12)]


def test_what_is_rare_has_a_large_kurtosis_and_noise_has_not():
    from memup_cli.streaming.moments import Sums, rarest

    cue, noise = np.zeros(1000), np.random.default_rng(0).normal(size=1000)
    cue[500] = 1
    sums = Sums(classes=0, image=False)
    sums.add(np.stack([cue, noise], 1), [0])
    kurtosis = sums.result()["kurtosis"]
    assert kurtosis[0] == pytest.approx(998.0, rel=1e-3)
    assert kurtosis[1] == pytest.approx(3, abs=0.6)
    asked = {"mean": [0.0], "sd": [0.1], "kurtosis": [5000.0]}  # not an input of the memory
    spec = TaskSpec((), memory_input=("x",), query=("asked",), target="y", target_kind="scalar")
    assert rarest({"x": sums.result(), "asked": asked}, spec) == max(kurtosis)


def test_channels_of_images_have_their_own_moments():
    from memup_cli.streaming.moments import Sums

    images = np.random.default_rng(0).integers(0, 256, (7, 4, 5, 3)).astype(np.uint8)
    sums = Sums(classes=0, image=True)
    sums.add(images, [0, 3])
    pixels = images.reshape(-1, 3).astype(np.float64)
    found = sums.result()
    np.testing.assert_allclose(found["mean"], pixels.mean(0))
    np.testing.assert_allclose(found["sd"], pixels.std(0))


def test_what_is_rare_is_loud_and_what_never_varied_is_not_heard():
    standard = Standard(4)
    x = torch.tensor([[1.0, 2.0, 3.0, 0.5]])
    assert torch.equal(standard(x), x)  # before it is told
    sd, kurtosis = torch.tensor([0.01, 0.5, 0.0, 0.1]), torch.tensor([1e4, 3.0, 0.0, 100.0])
    standard.tell(torch.tensor([0.0, 2.0, 3.0, 0.001]), sd, kurtosis)
    heard = standard(torch.tensor([[1.0, 3.0, 1000.0, 1.0]]))[0]
    assert heard[:3].tolist() == pytest.approx([LOUD, 2.0, 0.0])
    assert heard[3] == pytest.approx(9.99)
    assert standard(torch.tensor([[2.0, 2.0, 3.0, 0.0]]))[0, 0] == pytest.approx(2 * LOUD), "it tells how large it is"
    assert standard(torch.tensor([[9.0, 2.0, 3.0, 0.0]]))[0, 0] == LOUDEST


def test_what_varies_no_more_than_numbers_are_rounded_is_not_heard():
    standard = Standard(2)
    standard.tell(torch.tensor([1000.0, 0.0]), torch.tensor([1e-4, 1e-4]), torch.ones(2))
    assert standard(torch.tensor([[1001.0, 0.001]]))[0].tolist() == pytest.approx([0.0, 10.0])


@pytest.mark.parametrize("cell", ["lstm", "mingru"])
def test_noise_leaves_a_new_memory_alone_and_something_loud_gets_in(cell):
    """What a cue changes is still there 500 steps later, and is more than what noise does to the state meanwhile."""
    torch.manual_seed(0)
    memory = build_cell(cell, 6, Shape(64, standard=True, closed=True), 1000)
    noise = torch.randn(64, 501, 6)
    noise[..., 0] = 0
    seen = noise.clone()
    seen[:, 0] = torch.tensor([28.0, 0, 0, 0, 0, 0])
    with torch.no_grad():
        (without, _), (after, _) = (memory(x, memory.initial(64)) for x in (noise, seen))
    change = (after[:, -1] - without[:, -1]).mean(0)  # of each unit, over noise
    spread = without[:, -1].std(0)
    assert (change.abs() > 2 * spread).float().mean() > 0.2


def test_weights_carry_the_moments_and_a_run_keeps_them(memup: Memup):
    memup(*MAZE, "--run", "run")
    memup("score", "--run", "run", "--updates", 20)
    memup("train-memory", "--run", "run", "--updates", 2)
    path = memup.folder / "run" / "moments.json"
    kept = json.loads(path.read_text())
    from safetensors.torch import load_file

    weights = load_file(memup.folder / "run/memory/last.safetensors")
    means = [*kept["moments"]["observation"]["mean"], *kept["moments"][PREVIOUS_ACTION]["mean"]]
    np.testing.assert_allclose(weights["memory.standard.mean"], means, rtol=1e-6)
    for name, found in expected(memup.folder / "run").items():  # of training episodes, and of no others
        np.testing.assert_allclose(kept["moments"][name]["mean"], found["mean"], rtol=1e-9, atol=1e-12)
    before = path.read_bytes()
    path.write_text("{damaged")
    memup("train-memory", "--run", "run", "--updates", 2, "--restart")
    assert path.read_bytes() == before
