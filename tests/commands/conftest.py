"""Fixtures for the stages after collect: a small maze, collected and scored."""

import shutil
from pathlib import Path

import pytest

from tests.cli import COLLECT_MAZE, Memup


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
