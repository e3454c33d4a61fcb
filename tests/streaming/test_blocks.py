"""Scoring in blocks of steps: the same to the last bit as with whole episodes in RAM, in RAM that does not grow."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from memup_cli.detector import uncertainty
from memup_cli.detector.detection import ScoreConfig
from memup_cli.records.opening import open_run, spec_of
from memup_cli.stages.scoring import score
from memup_cli.streaming import blocks
from memup_cli.tasks.spec import default_detector
from stores.groups import Episode
from stores.layout import Field, Layout
from stores.reader import Shard
from tests.cli import Memup, files_of
from tests.processes import COMMAND, environment
from tests.stores.test_roundtrip import write

WHOLE = 1 << 40  # steps of a block: more than any episode has
LENGTHS = 500_000, 4_000_000  # chunks of the same size: two, and sixteen to an episode
PEAK = """
import json, resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, capture_output=True)
print(json.dumps(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


@pytest.fixture(scope="module")
def long_runs(tmp_path_factory) -> Path:
    """Episodes of several chunks: more than a block, and than some batches."""
    memup = Memup(tmp_path_factory.mktemp("long"))
    sizes = {"tmaze": 300_000, "copy": 1_200_000, "scattered-copy": 1_200_000, "add": 300_000}
    for task, length in sizes.items():
        memup("collect", task, "--length", length, "--episodes", 2, "--test-episodes", 1, "--run", task)
    enough = ("--length", 300_000, "--episodes", 20, "--test-episodes", 1)  # as the probe needs
    memup("collect", "tmaze", *enough, "--run", "probed")
    return memup.folder


def scored(run: Path, config: ScoreConfig) -> tuple[dict, dict[str, bytes]]:
    """What the stage prints and writes, made anew."""
    found = score(run, config, torch.device("cpu"), restart=True, quiet=True)
    names = {"scores": files_of(run / "scores"), "detector": files_of(run / "detector")}
    return found, {f"{top}/{name}": data for top, files in names.items() for name, data in files.items()}


@pytest.mark.parametrize(
    ("name", "detector", "gamma", "window"),
    [
        ("tmaze", None, 0.0, 1),
        ("tmaze", "regression", 0.9999, 2),
        ("probed", "probe", 0.5, 2),
        ("copy", None, 0.0, 10),
        ("scattered-copy", None, 0.0, 1),
        ("add", None, 0.0, 3),
    ],
)
def test_blocks_change_no_bit_of_the_scores(long_runs, monkeypatch, name, detector, gamma, window):
    run = long_runs / name
    kind = detector or default_detector(spec_of(open_run(run)))
    config = ScoreConfig(kind, gamma, window, hidden=8, updates=3, score="nll", seed=0)
    in_blocks = scored(run, config)
    monkeypatch.setattr(blocks, "BLOCK_STEPS", WHOLE)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", WHOLE)
    assert scored(run, config) == in_blocks


def small_shard(path: Path, lengths: list[int]) -> Shard:
    """Chunks of 8 steps, three episodes to a group; x is the number of the step on the time axis."""
    fields = (Field("x", "int64"),)
    layout = Layout(fields, 8, 3)
    first = np.cumsum([0, *lengths])
    write(path, layout, [Episode({"x": first[i] + np.arange(n)}, i) for i, n in enumerate(lengths)])
    return Shard(path)


@pytest.mark.parametrize("multiple", [1, 5, 100])
@pytest.mark.parametrize("steps", [8, 24, WHOLE])
def test_windows_reach_back_over_blocks_and_never_over_episodes(tmp_path, monkeypatch, steps, multiple):
    monkeypatch.setattr(blocks, "BLOCK_STEPS", steps)
    lengths = [3, 40, 1]
    shard = small_shard(tmp_path / "0000.zarr", lengths)
    expected = [[x for x in range(end - 3, end + 1) if x >= start] for start, end in _places(lengths)]
    found = []
    for part in blocks.blocks(shard, 0, ("x",), lead=3, multiple=multiple):
        assert part.first % multiple == 0
        windows, real = part.windows(np.arange(len(part)), 4, ("x",))
        found += [values[exists].tolist() for values, exists in zip(windows["x"], real, strict=True)]
    assert found == expected


def _places(lengths: list[int]) -> list[tuple[int, int]]:
    """Of every step: where its episode starts, and where it is."""
    starts = np.cumsum([0, *lengths])
    return [(int(starts[i]), int(starts[i]) + k) for i, n in enumerate(lengths) for k in range(n)]


def test_a_score_that_is_not_finite_leaves_no_scores_of_its_group(long_runs, monkeypatch):
    """Found in the last block, when the chunks of those before it are written."""
    run = long_runs / "tmaze"
    real = uncertainty.score_steps

    def spoiled(detector, steps, *rest):
        found = real(detector, steps, *rest)
        found[-1] = np.nan if len(found) % uncertainty.BATCH_STEPS else found[-1]  # the last block is no whole batch
        return found

    monkeypatch.setattr(uncertainty, "score_steps", spoiled)
    config = ScoreConfig("quantile", 0.0, 1, hidden=8, updates=1, score="nll", seed=1)
    with pytest.raises(uncertainty.BadInput, match=r"commit group 0 of .* is not finite"):
        score(run, config, torch.device("cpu"), restart=True, quiet=True)
    assert [name for name in files_of(run / "scores" / "quantile") if "/c." in name] == []


def test_peak_memory_does_not_grow_with_the_length(memup):
    short, long = (_peak(memup, length, 2, "--gamma", 0.99) for length in LENGTHS)
    assert long < 1.2 * short


@pytest.mark.learning
def test_peak_memory_of_the_probe_does_not_grow_with_the_length(memup):
    short, long = (_peak(memup, length, 20, "--detector", "probe") for length in LENGTHS)
    assert long < 1.2 * short


def _peak(memup: Memup, length: int, episodes: int, *options: object) -> int:
    """Peak RSS of the stage, in a process whose parent is small: a fork begins with its parent's peak."""
    run = memup.folder / str(length)
    memup("collect", "tmaze", "--length", length, "--episodes", episodes, "--test-episodes", 1, "--run", run)
    command = [*COMMAND, "score", "--run", run, "--updates", 3, "--quiet", *options]
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, command)], env=environment(), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)
