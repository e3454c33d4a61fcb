"""Fixtures: the real command line, and small runs to look at, to go on with or to damage."""

import os
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli import COLLECT_MAZE, Memup


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As the commands have: networks of a few units take a hundred times as long with more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def memup(tmp_path: Path) -> Memup:
    """Runs memup in a folder of its own."""
    return Memup(tmp_path)


@pytest.fixture(scope="session")
def collected(tmp_path_factory) -> Path:
    """A finished run of several commit groups: 60 + 5 episodes of 40,000 steps, 26 to a group."""
    memup = Memup(tmp_path_factory.mktemp("collected"))
    memup("collect", "tmaze", "--length", 40000, "--episodes", 60, "--test-episodes", 5, "--run", "run")
    return memup.folder / "run"


@pytest.fixture
def run(memup: Memup, collected: Path) -> Path:
    """A copy of it, as run/ of this test."""
    shutil.copytree(collected, memup.folder / "run")
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


NO_TIME = "there was no time left for it"


def pytest_runtest_setup() -> None:
    """CI begins no test after a certain time."""
    if time.time() > float(os.environ.get("MEMUP_TESTS_UNTIL", "inf")):
        pytest.skip(NO_TIME)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Where everything that tests need can be installed, a test that asks for more than that has failed."""
    report = yield
    if report.skipped and NO_TIME not in str(call.excinfo) and os.environ.get("MEMUP_TESTS_SKIP_NOTHING"):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped: {call.excinfo}"
    return report
