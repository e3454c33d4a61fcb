"""Agents in slow environments: steps per second of `train-agent --env-workers N` over those of one process.

    python benchmarks/env_workers.py [--workers 2] [--milliseconds 5] [--envs 16] [--steps 4000] [--repeats 3]

waiting   in an environment that sleeps in every step: N processes wait side by side, whatever else the machine does
busy      in one that computes for as long; this needs N quiet cores
in_worker the same two, with one worker process over none: what asking another process costs
by_itself how many processes the command chooses for each of these environments, and for a T-Maze

Learning, which goes on in one process, is among the time that is measured; the start of the processes is, too.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import show

from memup_cli.agents.play.environments import open_arena
from memup_cli.agents.play.spread import SLOW, step_seconds
from memup_cli.limits import available_cpus
from memup_cli.tasks import load_task

HERE = Path(__file__).parent


def memup(*arguments: object) -> dict:
    command = [sys.executable, "-m", "memup_cli", *map(str, arguments), "--quiet", "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def prepare(run: Path, milliseconds: float, busy: bool) -> None:
    """A run with an untrained memory, which is as fast as a trained one."""
    slow = ["--env-arg", f"milliseconds={milliseconds}", "--env-arg", f"busy={json.dumps(busy)}"]
    where = ["gym", "--import", HERE / "slow_environment.py", "--env-id", "Slow-v0", *slow]
    memup("collect", *where, "--episodes", 20, "--test-episodes", 1, "--run", run)
    memup("train-memory", "--select", "uniform", "--updates", 1, "--run", run)


def rate(run: Path, envs: int, steps: int, workers: int) -> float:
    size = ["--envs", envs, "--steps", steps, "--iteration-steps", steps // 4, "--env-workers", workers]
    return float(memup("train-agent", *size, "--restart", "--run", run)["steps_per_second"])


def chosen(name: str, options: dict) -> int:
    built = load_task(name)(load_task(name).Options(**options))
    arena = open_arena({"name": name, "options": options}, built.spec, 1)
    return available_cpus() if step_seconds(arena) >= SLOW else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--milliseconds", type=float, default=5.0)
    parser.add_argument("--envs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    counts = (0, 1, given.workers)
    by_itself = {"T-Maze": chosen("tmaze", {"length": 1000})}
    found: dict[str, dict] = {"rates": {}, "in_worker": {}}
    for name in ("waiting", "busy"):
        with tempfile.TemporaryDirectory(prefix="memup-bench-") as folder:
            run = Path(folder) / "run"
            prepare(run, given.milliseconds, name == "busy")
            options = json.loads((run / "manifest.json").read_text())["task"]["options"]
            by_itself[name] = chosen("gym", options)
            # In turns, so that a busy machine troubles all alike.
            rates = [[rate(run, given.envs, given.steps, count) for count in counts] for _ in range(given.repeats)]
        alone, one, several = (statistics.median(column) for column in zip(*rates, strict=True))
        found["rates"][name] = {count: round(r, 1) for count, r in zip(counts, (alone, one, several), strict=True)}
        found["in_worker"][name] = round(one / alone, 3)
        found[name] = {"over_none": round(several / alone, 2), "over_one": round(several / one, 2)}
    show(by_itself=by_itself, **found)


if __name__ == "__main__":
    main()
