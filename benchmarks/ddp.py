"""train-memory on several processes: updates per second of two ranks over those of one, the same global batch.

    python benchmarks/ddp.py [--ranks 2] [--updates 300]

speed_ratio    by batch and rollout. Both have one thread a process and make the same updates, in turns, so that a busy
               machine troubles both alike; their evaluations are not counted
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import show

MEMUP = [sys.executable, "-m", "memup_cli"]
SIZES = {"batch 64, r = 20": (64, 20), "batch 256, r = 20": (256, 20)}


def rate(run: Path, ranks: int, updates: int, batch: int, rollout: int) -> float:
    launcher = (
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={ranks}",
            "--no-python",
            "--",
        ]
        if ranks > 1
        else []
    )
    sizes = ["--updates", str(updates), "--batch", str(batch), "--rollout", str(rollout), "--hidden", "256"]
    command = [*launcher, *MEMUP, "train-memory", *sizes, "--run", str(run), "--restart", "--json", "--quiet"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["updates_per_second"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    ratios = {}
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        run = Path(name) / "run"
        collect = ["collect", "tmaze", "--length", "1000", "--episodes", "1000", "--test-episodes", "10"]
        for stage in (collect, ["score"]):
            subprocess.run([*MEMUP, *stage, "--run", str(run), "--quiet"], check=True, capture_output=True)
        for title, (batch, rollout) in SIZES.items():
            found = []
            for _ in range(options.turns):
                one, several = (rate(run, ranks, options.updates, batch, rollout) for ranks in (1, options.ranks))
                found.append(several / one)
            ratios[title] = round(float(np.median(found)), 2)
    show(ranks=options.ranks, speed_ratio=ratios)


if __name__ == "__main__":
    main()
