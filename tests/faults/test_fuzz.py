"""Damage at random places of a run is refused or harmless: see fuzz.py."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.processes import environment

ALL, PARTS, SAMPLE = 2000, 2, 60


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "bases"
    fuzz(folder)
    return folder


def fuzz(folder: Path, *numbers: int) -> list[dict[str, Any]]:
    """One result a mutation; a process of its own, because it forks."""
    command = [sys.executable, "-m", "tests.faults.fuzz", str(folder), *map(str, numbers)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check(found: list[dict[str, Any]], count: int) -> None:
    print(summary(found))
    wrong = [f"mutation {f['number']}, {f['change']} of {f['file']}: {w}" for f in found for w in f["wrong"]]
    assert not wrong, "\n".join(wrong[:20])
    assert len(found) == count


def summary(found: list[dict[str, Any]]) -> str:
    """Counts by kind of file, and the exit codes of all commands."""
    lines = []
    for kind in sorted({f["kind"] for f in found}):
        these = [f for f in found if f["kind"] == kind]
        refused = sum(f["refused"] for f in these)
        lines.append(f"{kind:20} {len(these):5} mutations, {refused:5} refused, {len(these) - refused:5} harmless")
    codes = Counter(code for f in found for code in f["codes"].values())
    lines.append(f"exit codes: {', '.join(f'{code}: {codes[code]}' for code in sorted(codes))}")
    return "\n".join(lines)


def test_a_sample_of_mutations_is_refused_or_harmless(bases):
    check(fuzz(bases, 0, SAMPLE), SAMPLE)


@pytest.mark.sweep
@pytest.mark.parametrize("part", range(PARTS))
def test_all_mutations_are_refused_or_harmless(bases, part):
    count = ALL // PARTS
    check(fuzz(bases, part * count, count), count)
