"""MemUP beside networks that are trained on whole sequences, or on windows, of T-Maze of growing length.

    python benchmarks/peers.py [--lengths 50 100 200] [--updates 1000] [--seconds 120] [--ram 2000] [--figure peers.png]

Each is a command of its own in a process of its own, with --seconds and --ram (MB) to itself. Per length:

outcome            solved (test RMSE below 0.1), not solved within --updates, out of time, or out of memory, which is
                   predicted before an update is made; who did not solve a length is not tried on longer ones
updates            made until then
ms_per_update      without evaluations
kept_mb, rss_mb    what one update keeps for its backward pass, and all that the process took at most
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from measure import show
from memory_use import memup

WINDOW = 20  # of the truncated ones, and MemUP's rollout
ONE_SIZE = ("--hidden", 64, "--layers", 1)
PEERS = {
    "LSTM": ("train-baseline", "--model", "lstm", *ONE_SIZE),
    "minGRU": ("train-baseline", "--model", "mingru", *ONE_SIZE),
    "LSTM, truncated": ("train-baseline", "--model", "lstm", *ONE_SIZE, "--truncate", WINDOW),
    "GTrXL": ("train-baseline", "--model", "gtrxl", "--hidden", 64, "--layers", 2, "--truncate", WINDOW),
    "MemUP": ("train-memory", *ONE_SIZE, "--rollout", WINDOW),
    "MemUP, minGRU": ("train-memory", "--cell", "mingru", *ONE_SIZE, "--rollout", WINDOW),
}
PANELS = {"kept_mb": "kept for backward, MB", "ms_per_update": "ms per update", "updates": "updates to solve"}


def within(seconds: float, arguments: tuple[object, ...]) -> tuple[dict | None, int]:
    """What a memup command prints, None if it was out of time; and its peak RSS in bytes."""
    command = [sys.executable, "-m", "memup_cli", *map(str, arguments), "--quiet", "--json"]
    with tempfile.TemporaryFile("w+") as out:
        child = subprocess.Popen(command, stdout=out)
        timer = threading.Timer(seconds, child.send_signal, [signal.SIGTERM])
        timer.start()
        _, status, used = os.wait4(child.pid, 0)  # this child's own figures
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode not in (0, 75):
            raise subprocess.CalledProcessError(child.returncode, command)
        out.seek(0)
        return json.loads(out.read()) if child.returncode == 0 else None, used.ru_maxrss * 1024


def measure(peer: str, run: Path, options: argparse.Namespace) -> dict:
    command, *arguments = PEERS[peer]
    limit = ("--memory-limit", options.ram) if command == "train-baseline" else ()
    goal = ("--until-rmse", 0.1, "--updates", options.updates, "--evaluate-every", 100, "--restart")
    done, rss = within(options.seconds, (command, "--run", run, *arguments, *limit, *goal))
    if done is None:
        return {"outcome": "out of time", "rss_mb": round(rss / 1e6)}
    if done["outcome"] == "out of memory":
        return {"outcome": "out of memory", "kept_mb": round(done["predicted_bytes"] / 1e6, 1)}
    return {
        "outcome": "solved" if done["rmse"] < 0.1 else "not solved",
        "updates": done["updates"],
        "ms_per_update": round(1e3 / done["updates_per_second"], 1),
        "kept_mb": round(done["saved_tensor_bytes"] / 1e6, 2),
        "rss_mb": round(rss / 1e6),
    }


def draw(found: dict[str, dict[str, dict]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(PANELS), figsize=(13, 4), layout="constrained")
    for panel, (key, title) in zip(panels, PANELS.items(), strict=True):
        for peer, rows in found.items():
            shown = {int(n): r[key] for n, r in rows.items() if key in r and (key != "updates" or _solved(r))}
            panel.plot(list(shown), list(shown.values()), marker="o", label=peer)
        scale = "log" if any(len(line.get_xdata()) for line in panel.lines) else "linear"  # log of nothing fails
        panel.set(xscale=scale, yscale=scale, xlabel="length of the maze", title=title)
    panels[0].legend()
    figure.savefig(path)


def _solved(row: dict) -> bool:
    return row["outcome"] == "solved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--ram", type=int, default=2000, help="MB")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[str, dict]] = {peer: {} for peer in options.peers}
    with tempfile.TemporaryDirectory(prefix="memup-bench-") as name:
        for length in sorted(options.lengths):
            run = Path(name) / str(length)
            memup("collect", "tmaze", "--length", length, "--run", run)
            memup("score", "--run", run, "--updates", 1000)
            for peer, rows in found.items():
                if all(map(_solved, rows.values())):
                    rows[str(length)] = measure(peer, run, options)
    longest = {peer: max((int(n) for n, r in rows.items() if _solved(r)), default=0) for peer, rows in found.items()}
    show(peers=found, longest_solved=longest)
    if options.figure:
        draw(found, options.figure)


if __name__ == "__main__":
    main()
