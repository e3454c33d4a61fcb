"""A small run with everything that can be exported, and what its logs say, read without memup's own reader."""

import json
import math
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli import Memup

collect_ignore = [] if find_spec("trackio") else ["test_trackio.py"]  # which says why


@pytest.fixture(scope="session")
def finished(tmp_path_factory, scored) -> Path:
    """A trained and evaluated memory, and an agent on it."""
    memup = Memup(tmp_path_factory.mktemp("finished"))
    shutil.copytree(scored, memup.folder / "run")
    memup("train-memory", "--run", "run", "--updates", 120, "--hidden", 16)
    memup("evaluate", "memory", "--run", "run")
    memup("train-agent", "--run", "run", "--steps", 1500, "--iteration-steps", 500)
    memup("evaluate", "agent", "--run", "run", "--episodes", 10)
    return memup.folder / "run"


@pytest.fixture
def trained(memup, finished) -> Path:
    """A copy of it, as run/ of this test."""
    shutil.copytree(finished, memup.folder / "run")
    return memup.folder / "run"


LOGS = {"train-memory": ("train-memory", "update"), "train-agent-ppo": ("train-agent/ppo", "steps")}


def curves(run: Path) -> dict[tuple[str, int], float]:
    """Every finite number that the stages logged: {(stage/name, step): value}."""
    found = {}
    for folder, (stage, axis) in LOGS.items():
        for line in (run / "logs" / folder / "metrics.jsonl").read_text().splitlines():
            row = json.loads(line)
            numbers = {name: v for name, v in row.items() if name not in ("update", "steps") and math.isfinite(v)}
            found |= {(f"{stage}/{name}", row[axis]): v for name, v in numbers.items()}
    assert len(found) > 20
    return found


def evaluated(run: Path) -> dict[str, float]:
    """Some figures of the evaluations, by the names that trackers get."""
    memory, agent = (json.loads((run / f"evaluation/{name}.json").read_text()) for name in ("memory", "agent-ppo"))
    return {
        "evaluate/rmse": memory["rmse"],
        "evaluate/interval_high": memory["interval"][1],
        "evaluate/explained": memory["explained"],
        "evaluate/memoryless/rmse": memory["memoryless"]["rmse"],
        "evaluate/ppo/success_rate": agent["greedy"]["success_rate"],
        "evaluate/ppo/return_interval_low": agent["greedy"]["return_interval"][0],
    }
