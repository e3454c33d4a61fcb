"""The scripts of the paper's experiments: cells, figure, table and report through their command lines."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import files_of
from tests.processes import environment

FOLDER = Path(__file__).parents[1] / "examples" / "experiments"
PNG = b"\x89PNG\r\n\x1a\n"


def script(name: str, folder: Path, *options: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", FOLDER / name, *options],
        cwd=folder,
        env=environment({"PATH": path, **variables}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, f"{name}: exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
    return done


def assert_shown(out: Path, *words: str) -> None:
    """A picture, a table with these words, and the report."""
    assert (out / "figure.png").read_bytes().startswith(PNG)
    table = (out / "table.md").read_text()
    assert all(word in table for word in words), table
    assert "<html" in (out / "report.html").read_text()


def test_cells_become_a_figure_and_are_skipped_when_finished_even_if_one_fails(tmp_path):
    few = {"LENGTHS": "5 30", "MODELS": "lstm"}  # no copy has 5 steps
    done = script("space.sh", tmp_path, "--tiny", "--local", code=1, **few)
    assert "1 of 2 cells failed: 0" in done.stderr
    out = tmp_path / "runs" / "space-tiny"
    assert_shown(out, "T = 30", "MemUP", "LSTM")
    before = files_of(out / "copy-30-seed0")
    again = script("space.sh", tmp_path, "--tiny", "--cell", "1", **few)
    assert again.stderr.count("up to date") == 3  # collect, train-memory, train-baseline
    assert files_of(out / "copy-30-seed0") == before


SUITES = ["../suites/popgym", "../suites/minigrid", "../suites/memory_gym"]


@pytest.mark.parametrize(
    "name",
    ["ablation", "memory_size", "noisy_tv", "plan_ablation", "scaling", "space", "supervised_table", "tmaze", *SUITES],
)
def test_every_script_lists_its_cells_and_refuses_others(name, tmp_path):
    for size in ((), ("--small",), ("--tiny",)):
        lines = script(f"{name}.sh", tmp_path, *size, "--list").stdout.splitlines()
        assert [line.split()[0] for line in lines] == [str(number) for number in range(len(lines))]
        assert len({line.split(maxsplit=1)[1] for line in lines}) == len(lines) > 0
        refused = script(f"{name}.sh", tmp_path, *size, "--cell", str(len(lines)), code=2)
        assert f"0 to {len(lines) - 1}" in refused.stderr
    assert "--figure" in script(f"{name}.sh", tmp_path, "--help").stdout
    assert "no runs below" in script(f"{name}.sh", tmp_path, "--figure", code=3).stderr
    script(f"{name}.sh", tmp_path, "--smal", code=2)


@pytest.mark.learning
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ablation", ["MemUP (surprise)", "Rnd-Pred (uniform)", "Default (current)", "r = 5"]),
        ("memory_size", ["add-20", "8 units", "16 units"]),
        ("noisy_tv", ["K = 1", "K = 2", "D = 1", "not in 4"]),
        ("plan_ablation", ["as planned", "no plan", "match", "recent", "tmaze"]),
        ("scaling", ["T-Maze-20", "T-Maze-40", "success"]),
        ("space", ["T = 30", "T = 60", "MemUP", "LSTM", "SRNN", "Transformer"]),
        ("supervised_table", ["copy-24", "MemUP", "Transformer truncated"]),
        ("tmaze", ["MemUP + PPO", "amrl (r = 8)", "gtrxl (attention = 8)"]),
    ],
)
def test_every_experiment_runs_at_its_tiniest_size(name, words, tmp_path):
    script(f"{name}.sh", tmp_path, "--tiny", "--local", OUT="out")
    assert_shown(tmp_path / "out", *words)


# In the place of a suite's package: its ids, and a card that is asked for again.
PACKAGE = """
import gymnasium
import numpy

class Repeat(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.card, self.left = int(self.np_random.integers(4)), 9
        return self.card, {}

    def step(self, action):
        self.left -= 1
        return 0, float(action == self.card), self.left == 0, False, {}

for name in ("popgym-RepeatFirstEasy", "MiniGrid-MemoryS7", "MysteryPath-Grid"):
    gymnasium.register(name + "-v0", Repeat)
"""


@pytest.mark.learning
@pytest.mark.parametrize(
    ("name", "package", "task"),
    [
        ("popgym", "popgym", "RepeatFirstEasy"),
        ("minigrid", "minigrid", "MemoryS7"),
        ("memory_gym", "memory_gym", "MysteryPath-Grid"),
    ],
)
def test_every_suite_runs_at_its_tiniest_size(name, package, task, tmp_path):
    (tmp_path / f"{package}.py").write_text(PACKAGE)
    script(f"../suites/{name}.sh", tmp_path, "--tiny", "--local", OUT="out")
    assert_shown(tmp_path / "out", f"| {task} | 1 |", "MemUP + PPO", "PPO-LSTM")


@pytest.mark.learning
def test_a_suite_shows_the_tasks_that_it_could_play_and_goes_on_where_it_was(tmp_path):
    (tmp_path / "popgym.py").write_text(PACKAGE)
    some = {"OUT": "out", "TASKS": "RepeatFirstEasy Battleship"}
    failed = script("../suites/popgym.sh", tmp_path, "--tiny", "--local", code=1, **some)
    assert "1 of 2 cells failed: 1" in failed.stderr
    assert_shown(tmp_path / "out", "| RepeatFirstEasy | 1 |")
    trained = files_of(tmp_path / "out" / "RepeatFirstEasy-seed0" / "agent")
    again = script("../suites/popgym.sh", tmp_path, "--tiny", "--cell", "0", **some)
    assert again.stderr.count("up to date") >= 4  # collect, train-memory, both agents
    assert files_of(tmp_path / "out" / "RepeatFirstEasy-seed0" / "agent") == trained


@pytest.mark.learning
def test_one_row_of_the_supervised_table(tmp_path):
    few = {"METHODS": "srnn", "UPDATES": "4", "BASELINE_UPDATES": "2", "SEED": "1"}
    done = script("../supervised.sh", tmp_path, "copy", "24", **few)
    assert "srnn" in done.stdout
    assert (tmp_path / "runs" / "supervised" / "copy-24-seed1" / "evaluation" / "baselines.json").exists()


@pytest.mark.learning
def test_the_way_to_a_million_steps_in_a_short_maze(tmp_path):
    done = script(
        "../million.sh",
        tmp_path,
        LENGTH="20",
        MEMUP_TRAIN_MEMORY_UPDATES="20",
        MEMUP_SCORE_UPDATES="20",
        MEMUP_TRAIN_AGENT_STEPS="2000",
    )
    assert "success" in done.stdout
    assert (tmp_path / "runs" / "tmaze-20" / "report.html").exists()
