"""Builds the fault shim and runs memup under it."""

import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.cli import COMMAND, environment

SOURCE = Path(__file__).with_name("shim.c")


@functools.cache
def shim() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler to build the fault shim with")
    library = Path(tempfile.mkdtemp(prefix="memup-shim-")) / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return str(library)


def run_with_fault(folder: Path, arguments: list[str], at: int, action: str) -> subprocess.CompletedProcess[str]:
    """Run memup in folder; its call number `at` that changes a file below folder goes wrong."""
    faults = {"LD_PRELOAD": shim(), "SHIM_ROOT": str(folder), "SHIM_AT": str(at), "SHIM_ACT": action}
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment({**faults, "PYTHONDONTWRITEBYTECODE": "1"}),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def count_calls(folder: Path, arguments: list[str], counter: Path) -> int:
    """How many such calls an undisturbed run makes."""
    faults = {"LD_PRELOAD": shim(), "SHIM_ROOT": str(folder), "SHIM_COUNT": str(counter)}
    subprocess.run([*COMMAND, *arguments], cwd=folder, env=environment(faults), check=True, capture_output=True)
    return os.stat(counter).st_size
