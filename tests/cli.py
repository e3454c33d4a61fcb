"""The real command line, as a test sees it."""

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stores.reader import Trajectories
from tests.processes import COMMAND, Outcome, Running, environment, forks

COLLECT_MAZE = ["collect", "tmaze", "--length", 40, "--episodes", 300, "--test-episodes", 50, "--run", "run"]


@dataclass(frozen=True)
class Memup:
    """Calls memup in a folder; fails the test if the exit code is not the expected one."""

    folder: Path

    def __call__(
        self, *arguments: object, code: int = 0, env: dict[str, str] | None = None, new_interpreter: bool = False
    ) -> Outcome:
        if new_interpreter:
            process = self.popen(*arguments, env=env)
            out, err = process.communicate()
            outcome = Outcome(process.returncode, out, err)
        else:
            outcome = forks()(self.folder, list(arguments), env=env)
        assert outcome.code == code, f"exit {outcome.code}, not {code}\n{outcome.out}\n{outcome.err}"
        if code not in (0, 1):
            assert "Traceback" not in outcome.err
            assert len(outcome.err.strip()) > 20 or outcome.out, "an error needs an explanation"
        return outcome

    def start(self, *arguments: object, env: dict[str, str] | None = None) -> Running:
        return forks().start(self.folder, list(arguments), env=env)

    def held(
        self, *arguments: object, at: str, nth: int = 1, env: dict[str, str] | None = None, group: bool = False
    ) -> Running:
        """Started, and standing still where a file of this path (a pattern) was changed the nth time."""
        return forks().held(self.folder, list(arguments), at, nth, env=env, group=group)

    def killed(self, *arguments: object, at: str, nth: int = 1) -> None:
        """Started, and killed there."""
        assert self.held(*arguments, at=at, nth=nth).kill().code == -signal.SIGKILL

    def popen(self, *arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """A process with an interpreter of its own."""
        return subprocess.Popen(
            [*COMMAND, *map(str, arguments)],
            cwd=self.folder,
            env=environment(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


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
