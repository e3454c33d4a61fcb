"""Builds the fault shim and runs memup under it."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Outcome, environment

SOURCE = Path(__file__).with_name("shim.c")


@functools.cache
def shim() -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler to build the fault shim with")
    library = Path(tempfile.mkdtemp(prefix="memup-shim-")) / "shim.so"
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return str(library)


@dataclass(frozen=True)
class Running:
    """A command that was started and not waited for yet."""

    pid: int
    _ask: Callable[[Any], int]
    _out: Path
    _err: Path

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def state(self) -> str:
        """R or S while it runs, T if it is stopped, Z once it has ended."""
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def wait(self) -> Outcome:
        code = self._ask(self.pid)
        return Outcome(code, self._out.read_text(), self._err.read_text())


class Forks:
    """Runs memup commands as children of a process that has imported everything: see forks.py."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._started = folder, 0
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forks"],
            env=environment({"LD_PRELOAD": shim()}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._server.communicate()

    def _ask(self, request: Any) -> int:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def start(
        self, folder: Path, arguments: list[str], env: dict[str, str] | None = None, **shim_variables: str
    ) -> Running:
        """Start memup in folder. With shim variables, calls that change a file below the folder are counted or fail."""
        self._started += 1
        variables = {"SHIM_ROOT": str(folder), **shim_variables} if shim_variables else {}
        out, err = (self._folder / f"{self._started % 8}.{name}" for name in ("out", "err"))
        request = {"folder": str(folder), "arguments": arguments, "environment": {**variables, **(env or {})}}
        return Running(self._ask({**request, "out": str(out), "err": str(err)}), self._ask, out, err)

    def __call__(self, folder: Path, arguments: list[str], **variables: Any) -> Outcome:
        return self.start(folder, arguments, **variables).wait()

    def with_fault(self, folder: Path, arguments: list[str], at: int, action: str) -> Outcome:
        """Its call number `at` that changes a file goes wrong."""
        return self(folder, arguments, SHIM_AT=str(at), SHIM_ACT=action)

    def count_calls(self, folder: Path, arguments: list[str]) -> int:
        """How many such calls an undisturbed run makes."""
        counter = self._folder / "count"
        counter.write_bytes(b"")
        done = self(folder, arguments, SHIM_COUNT=str(counter))
        assert done.code == 0, done.err
        return os.stat(counter).st_size
