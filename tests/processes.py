"""Processes of memup as tests start them: forked from a server that has imported everything, or new interpreters."""

import atexit
import functools
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-m", "memup_cli"]
SHIM = Path(__file__).with_name("shim.c")


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without MEMUP_* options; warnings are errors in the command, too.

    One thread each: tests run side by side, and what they train is too small to share.
    """
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MEMUP_")}
    return {"OMP_NUM_THREADS": "1", **kept, "PYTHONWARNINGS": "error", **(more or {})}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@functools.cache
def shim() -> str:
    """The library that injects faults, built when it is first needed; see shim.c."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.fail("the tests build a small library: install a C compiler (gcc or clang, as cc)")
    folder = Path(tempfile.mkdtemp(prefix="memup-shim-"))
    atexit.register(shutil.rmtree, folder)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", folder / "shim.so", SHIM, "-ldl"], check=True)
    return str(folder / "shim.so")


@dataclass(frozen=True)
class Running:
    """A command that was started and not waited for yet."""

    pid: int
    _server: "Forks"
    _out: Path
    _err: Path

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> Outcome:
        """kill -9, also of a command that is stopped."""
        self.send_signal(signal.SIGKILL)
        return self.wait()

    def resume(self) -> Outcome:
        """Let a stopped command go on to its end."""
        self.send_signal(signal.SIGCONT)
        return self.wait()

    def interrupt(self, number: int = signal.SIGTERM) -> Outcome:
        """A signal that finds a stopped command when it goes on."""
        self.send_signal(number)
        return self.resume()

    def is_stopped(self) -> bool:
        """Wait until it is stopped; False if it has ended instead."""
        return bool(self._server.ask("stopped", pid=self.pid))

    def ends_within(self, seconds: float) -> bool:
        return ended(self.pid, seconds)

    def die_unburied(self) -> None:
        """Kill it, and nobody asks for its exit code until wait()."""
        self.send_signal(signal.SIGKILL)
        self._server.ask("unburied", pid=self.pid)

    def wait(self) -> Outcome:
        code = self._server.ask("wait", pid=self.pid)
        return Outcome(code, self._out.read_text(), self._err.read_text())


class Forks:
    """Runs memup commands as children of a process that has imported everything: see forks.py."""

    def __init__(self) -> None:
        self._folder, self._numbers = Path(tempfile.mkdtemp(prefix="memup-output-")), itertools.count()
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"],
            cwd=Path(__file__).parents[1],
            env=environment({"LD_PRELOAD": shim()}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._server.communicate()
        shutil.rmtree(self._folder)

    def ask(self, wanted: str, **request: Any) -> int:
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps({"wanted": wanted, **request}) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def start(
        self, folder: Path, arguments: list[Any], env: dict[str, str] | None = None, group: bool = False, **shim: str
    ) -> Running:
        """Start memup in folder. With shim variables, calls that change a file below the folder are counted or fail."""
        number = next(self._numbers)
        out, err = (self._folder / f"{number}.{name}" for name in ("out", "err"))
        for file in (out, err):
            file.touch()  # what is killed at once has said nothing
        variables = {"SHIM_ROOT": str(folder), **shim} if shim else {}
        request = {"folder": str(folder), "arguments": [*map(str, arguments)], "group": group}
        request |= {"environment": environment({**variables, **(env or {})}), "out": str(out), "err": str(err)}
        return Running(self.ask("start", **request), self, out, err)

    def __call__(self, folder: Path, arguments: list[Any], **variables: Any) -> Outcome:
        return self.start(folder, arguments, **variables).wait()

    def held(self, folder: Path, arguments: list[Any], path: str, nth: int = 1, **options: Any) -> Running:
        """Start memup and wait until it stands still right after its nth call that changed a file of this path."""
        running = self.start(folder, arguments, SHIM_PATH=path, SHIM_AT=str(nth), SHIM_ACT="hold", **options)
        if not running.is_stopped():
            done = running.wait()
            pytest.fail(f"it never came to {path} a {nth}. time; exit {done.code}\n{done.out}\n{done.err}")
        return running

    def stopped(self, folder: Path, arguments: list[Any], at: int) -> Running:
        """Start memup and wait until it stands still before a call that changes a file, as on a node that hangs."""
        running = self.start(folder, arguments, SHIM_AT=str(at), SHIM_ACT="stop")
        if not running.is_stopped():
            pytest.fail(f"it made fewer than {at} calls: {running.wait()}")
        return running

    def with_fault(self, folder: Path, arguments: list[Any], at: int, action: str) -> Outcome:
        """Its call number `at` that changes a file goes wrong."""
        return self(folder, arguments, SHIM_AT=str(at), SHIM_ACT=action)

    def count_calls(self, folder: Path, arguments: list[Any]) -> int:
        """How many such calls an undisturbed run makes."""
        counter = self._folder / "count"
        counter.write_bytes(b"")
        done = self(folder, arguments, SHIM_COUNT=str(counter))
        assert done.code == 0, done.err
        return os.stat(counter).st_size


def ended(pid: int, seconds: float | None = None) -> bool:
    """Wait for the end of any process, perhaps not for ever."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready, _, _ = select.select([descriptor], [], [], seconds)
    os.close(descriptor)
    return bool(ready)


def workers_of(pid: int) -> list[int]:
    """The worker processes of a command."""
    children = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in children if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


@functools.cache
def forks() -> Forks:
    """The server of this process."""
    server = Forks()
    atexit.register(server.close)
    return server


class Told:
    """A pipe into which a command of any process below writes when it has changed a file of a certain path."""

    def __init__(self, folder: Path, path: str, nth: int) -> None:
        self._name = folder / f"told-{nth}.fifo"
        os.mkfifo(self._name)
        self.descriptor = os.open(self._name, os.O_RDONLY | os.O_NONBLOCK)
        self.variables = {"LD_PRELOAD": shim(), "SHIM_ROOT": str(folder), "SHIM_PATH": path, "SHIM_AT": str(nth)}
        self.variables |= {"SHIM_ACT": "tell", "SHIM_PIPE": str(self._name)}

    def wait(self, pid: int) -> None:
        """Until it is told; fails if the process ends first."""
        process = os.pidfd_open(pid)
        ready, _, _ = select.select([self.descriptor, process], [], [])
        os.close(process)
        assert self.descriptor in ready, "it ended before the moment came"


@contextmanager
def told(folder: Path, path: str, nth: int = 1) -> Iterator[Told]:
    pipe = Told(folder, path, nth)
    yield pipe
    os.close(pipe.descriptor)
    (folder / f"told-{nth}.fifo").unlink()
