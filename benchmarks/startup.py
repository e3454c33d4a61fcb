"""The start of a stage: what a whole `memup train-memory --updates 1` takes beyond `import torch`.

    python benchmarks/startup.py [--repeats 7]

torch_cpu_seconds, torch_peak_rss_mb   of `python -c "import torch"`
more_cpu_seconds, more_peak_rss_mb     what the stage takes beyond that

Both are processes of their own, run in turns, and of each the least counts: CPU time, user and system, of one thread.
The stage runs on T-Maze-40, collected and scored, and trains, evaluates and saves as always. The first turn is not
counted: Python compiles the modules then, and keeps that for the others unless PYTHONDONTWRITEBYTECODE is set.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from measure import MEMUP, cost, show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        run = str(Path(name) / "run")
        collect = ["collect", "tmaze", "--length", "40", "--episodes", "300", "--test-episodes", "50"]
        for stage in (collect, ["score", "--updates", "600"]):
            cost([*MEMUP, *stage, "--run", run, "--quiet"])
        commands = (
            [sys.executable, "-c", "import torch"],
            [*MEMUP, "train-memory", "--updates", "1", "--run", run, "--restart", "--quiet"],
        )
        turns = [[cost(command) for command in commands] for _ in range(repeats + 1)][1:]
    torch, stage = ([min(figure) for figure in zip(*side, strict=True)] for side in zip(*turns, strict=True))
    show(
        torch_cpu_seconds=round(torch[0], 2),
        torch_peak_rss_mb=round(torch[1] / 1e6),
        more_cpu_seconds=round(stage[0] - torch[0], 2),
        more_peak_rss_mb=round((stage[1] - torch[1]) / 1e6),
    )


if __name__ == "__main__":
    main()
