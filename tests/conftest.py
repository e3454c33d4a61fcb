"""Fixtures: the real command line, and a small finished run to look at or to damage."""

from pathlib import Path

import pytest

from tests.cli import Memup


@pytest.fixture
def memup(tmp_path: Path) -> Memup:
    """Runs memup in a folder of its own."""
    return Memup(tmp_path)


@pytest.fixture
def run(memup: Memup) -> Path:
    """A finished run of several commit groups: 60 + 5 episodes of 40,000 steps, 26 to a group."""
    memup("collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5, "--run", "run")
    return memup.folder / "run"
