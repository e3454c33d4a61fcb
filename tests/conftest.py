"""Fixtures: the real command line, and small runs to look at, to go on with or to damage."""

import shutil
from pathlib import Path

import pytest

from tests.cli import COLLECT_MAZE, Memup


@pytest.fixture
def memup(tmp_path: Path) -> Memup:
    """Runs memup in a folder of its own."""
    return Memup(tmp_path)


@pytest.fixture
def run(memup: Memup) -> Path:
    """A finished run of several commit groups: 60 + 5 episodes of 40,000 steps, 26 to a group."""
    memup("collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5, "--run", "run")
    return memup.folder / "run"


@pytest.fixture(scope="session")
def scored(tmp_path_factory) -> Path:
    """A collected and scored T-Maze-40, to be copied."""
    memup = Memup(tmp_path_factory.mktemp("scored"))
    memup(*COLLECT_MAZE)
    memup("score", "--run", "run", "--updates", 600)
    return memup.folder / "run"


@pytest.fixture
def maze(memup, scored) -> Path:
    """A copy of it, as run/ of this test."""
    shutil.copytree(scored, memup.folder / "run")
    return memup.folder / "run"
