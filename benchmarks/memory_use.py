"""RAM of memory training: flat in the number of episodes, bounded for very long ones, no activation grows with T.

    python benchmarks/memory_use.py [--only episodes|long|activations|million]

episodes      peak RSS of `memup train-memory` on 400 and on 4000 episodes of 20,000 steps
long          peak RSS of 300 updates on 64 episodes of 1,000,000 steps
activations   bytes kept for the backward pass of an update at T = 1,000 and T = 100,000
million       peak RSS and time of an update at T = 1,000,000 against T = 10,000, rollouts drawn by priority
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import show


def memup(*arguments: object) -> dict:
    done = subprocess.run(
        [sys.executable, "-m", "memup_cli", *map(str, arguments), "--quiet", "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)


def train(folder: Path, length: int, episodes: int, updates: int = 300, *more: object) -> dict:
    run = folder / f"{length}x{episodes}"
    memup("collect", "tmaze", "--length", length, "--episodes", episodes, "--test-episodes", 8, "--run", run)
    memup("score", "--run", run, "--updates", 500)
    return memup("train-memory", "--run", run, "--updates", updates, "--evaluate-every", updates, *more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["episodes", "long", "activations", "million"])
    only = parser.parse_args().only
    figures: dict = {}
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        folder = Path(name)
        if only in (None, "episodes"):
            few, many = (train(folder, 20_000, n)["peak_rss_bytes"] for n in (400, 4000))
            figures["episodes"] = {
                "peak_rss_mb": {"400": round(few / 1e6), "4000": round(many / 1e6)},
                "ratio": round(many / few, 3),
            }
        if only in (None, "long"):
            figures["long"] = {"peak_rss_mb": round(train(folder, 1_000_000, 64)["peak_rss_bytes"] / 1e6)}
        if only in (None, "activations"):
            short, long = (train(folder, n, 64)["saved_tensor_bytes"] for n in (1000, 100_000))
            figures["activations"] = {"bytes": {"1000": short, "100000": long}}
        if only in (None, "million"):
            how = ("--rollout-sampling", "priority", "--starts", 0.5)
            short, long = (train(folder, n, e, 300, *how) for n, e in ((10_000, 1000), (1_000_000, 64)))
            figures["million"] = {
                "peak_rss_mb": {
                    "10000": round(short["peak_rss_bytes"] / 1e6),
                    "1000000": round(long["peak_rss_bytes"] / 1e6),
                },
                "rss_ratio": round(long["peak_rss_bytes"] / short["peak_rss_bytes"], 3),
                "time_ratio": round(short["updates_per_second"] / long["updates_per_second"], 3),
            }
    show(**figures)


if __name__ == "__main__":
    main()
