"""The real command line, as a test sees it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stores.reader import Trajectories

COMMAND = [sys.executable, "-m", "memup_cli"]

COLLECT_MAZE = ["collect", "tmaze", "--length", 40, "--episodes", 300, "--test-episodes", 50, "--run", "run"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@dataclass(frozen=True)
class Memup:
    """Calls memup in a folder; fails the test if the exit code is not the expected one."""

    folder: Path

    def __call__(self, *arguments: object, code: int = 0, env: dict[str, str] | None = None) -> Outcome:
        done = subprocess.run(
            [*COMMAND, *map(str, arguments)],
            cwd=self.folder,
            env=environment(env),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        outcome = Outcome(done.returncode, done.stdout, done.stderr)
        assert outcome.code == code, f"exit {outcome.code}, not {code}\n{outcome.out}\n{outcome.err}"
        if code not in (0, 1):
            assert "Traceback" not in outcome.err
            assert len(outcome.err.strip()) > 20 or outcome.out, "an error needs an explanation"
        return outcome

    def start(
        self, *arguments: object, env: dict[str, str] | None = None, own_group: bool = False
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=self.folder,
            env=environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0 if own_group else None,
        )


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """The caller's environment without MEMUP_* options; warnings are errors in the command, too."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MEMUP_")}
    return {**kept, "PYTHONWARNINGS": "error", **(more or {})}


def episodes(run: Path, split: str = "train", shards: int = 1) -> list[dict[str, np.ndarray]]:
    return list(Trajectories(run / "trajectories" / split, shards))


def assert_same_episodes(left: list[dict[str, np.ndarray]], right: list[dict[str, np.ndarray]]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            np.testing.assert_array_equal(a[name], b[name])


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by relative path."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
