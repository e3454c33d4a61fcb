"""Fixtures of the fault tests, and the counts that are printed after them."""

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.faults.stages import Stage, fresh
from tests.processes import Forks

COUNTS = ("points", "faults", "lost", "wrong")
TALLY = "fault-tally"


@pytest.fixture(scope="session")
def places() -> Iterator[Path]:
    """A folder in RAM, if there is one: what is swept does not depend on the disk, and fsync costs nothing there."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="memup-faults-", dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def forks() -> Forks:
    return processes.forks()


@pytest.fixture(scope="session")
def prepare(places: Path, forks: Forks) -> Callable[[Stage], Path]:
    """A folder whose run/ is ready for a stage; made once, to be copied."""
    made: dict[tuple[tuple[str, ...], ...], Path] = {}

    def build(commands: tuple[list[str], ...]) -> Path:
        key = tuple(map(tuple, commands))
        if key not in made:
            folder = Path(tempfile.mkdtemp(prefix="ready-", dir=places))
            if commands:
                shutil.copytree(build(commands[:-1]), folder, dirs_exist_ok=True)
                done = forks(folder, commands[-1])
                assert done.code == 0, done.err
            made[key] = folder
        return made[key]

    return lambda stage: build(stage.before)


@pytest.fixture(scope="session")
def undisturbed(places: Path, forks: Forks, prepare: Callable[[Stage], Path]) -> Callable[[Stage], Any]:
    """How many calls a stage makes if left alone, and its result."""
    found: dict[str, tuple[int, dict[str, Any]]] = {}

    def measure(stage: Stage) -> tuple[int, dict[str, Any]]:
        if stage.name not in found:
            folder = fresh(places, prepare(stage))
            calls = forks.count_calls(folder, stage.command)
            found[stage.name] = calls, stage.result(folder / "run")
            shutil.rmtree(folder)
        return found[stage.name]

    return measure


@pytest.fixture
def tally(record_property: Callable[[str, Any], None]) -> Callable[..., None]:
    """tally(stage, points=, faults=, lost=, wrong=) adds to the counts that are printed in the end."""

    def add(stage: str, **counts: int) -> None:
        assert set(counts) <= set(COUNTS)
        record_property(TALLY, {"stage": stage, **counts})

    return add


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was done to which stage; properties of reports come through from xdist's workers, too."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    reports = [r for outcome in ("passed", "failed") for r in terminalreporter.getreports(outcome)]
    for report in reports:
        for name, value in getattr(report, "user_properties", []):
            if name == TALLY and report.when == "call":
                for key in COUNTS:
                    sums[value["stage"]][key] += value.get(key, 0)
                    sums["all"][key] += value.get(key, 0)
    if not sums:
        return
    terminalreporter.section("faults")
    titles = ("stage", "points swept", "faults injected", "episodes and updates lost", "wrong exit codes")
    terminalreporter.write_line("".join(f"{title:>26}" if i else f"{title:<16}" for i, title in enumerate(titles)))
    for stage in sorted(sums, key=lambda s: (s == "all", s)):
        counts = "".join(f"{sums[stage][key]:>26,}" for key in COUNTS)
        terminalreporter.write_line(f"{stage:<16}{counts}")
