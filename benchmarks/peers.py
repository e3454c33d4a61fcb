"""MemUP beside networks that are trained on whole sequences, or on windows, of T-Maze of growing length.

    python benchmarks/peers.py [--lengths 50 100 200] [--updates 1000] [--seconds 120] [--ram 2000] [--figure peers.png]
    python benchmarks/peers.py --lengths 100 1000 10000 100000 --updates 20000 --seconds 300 --figure peers.png

Each is a command of its own in a process of its own, with --seconds of CPU time and --ram (MB) to itself. Per length:

outcome            solved (test RMSE below 0.1), not solved within --updates, out of time, or out of memory, which is
                   predicted before an update is made; who did not solve a length is not tried on longer ones
updates            made until then, and the lowest test RMSE (rmse) that was seen
ms_per_update      without evaluations, in the median
rss_mb, kept_mb    all that the process took at most, and of that what one update keeps for its backward pass
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
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
PANELS = {"rss_mb": "peak RAM, MB", "ms_per_update": "ms per update", "updates": "updates to solve"}


def within(seconds: float, arguments: tuple[object, ...]) -> tuple[dict | None, int]:
    """What a memup command prints, None if its CPU time was up; and its peak RSS in bytes."""
    command = [sys.executable, "-m", "memup_cli", *map(str, arguments), "--quiet", "--json"]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err)
        over = False
        while not (found := os.wait4(child.pid, os.WNOHANG))[0]:  # this child's own figures
            if not over and _cpu_seconds(child.pid) > seconds:
                over = True
                child.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        _, status, used = found
        child.returncode = os.waitstatus_to_exitcode(status)
        for text in (out, err):
            text.seek(0)
        if child.returncode not in (0, 75):
            raise subprocess.CalledProcessError(child.returncode, command, stderr=err.read())
        return json.loads(out.read()) if child.returncode == 0 else None, used.ru_maxrss * 1024


def _cpu_seconds(pid: int) -> float:
    """Of a running process, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(peer: str, run: Path, options: argparse.Namespace) -> dict:
    command, *arguments = PEERS[peer]
    shutil.rmtree(run / "logs", ignore_errors=True)
    limit = ("--memory-limit", options.ram) if command == "train-baseline" else ()
    goal = ("--until", "rmse<0.1", "--updates", options.updates, "--evaluate-every", options.every, "--restart")
    done, rss = within(options.seconds, (command, "--run", run, *arguments, *limit, *goal))
    if done is not None and done["outcome"] == "out of memory":
        return {"outcome": "out of memory", "kept_mb": round(done["predicted_bytes"] / 1e6, 1)}
    lines = [line for log in run.glob("logs/**/metrics.jsonl") for line in map(json.loads, log.open())]
    rates = [line["updates_per_second"] for line in lines if "updates_per_second" in line]
    errors = [line["test_rmse"] for line in lines if "test_rmse" in line]
    found = {
        "outcome": "out of time" if done is None else "solved" if done["rmse"] < 0.1 else "not solved",
        "updates": max((line["update"] for line in lines), default=0),
        "ms_per_update": round(1e3 / statistics.median(rates), 1) if rates else None,
        "rss_mb": round(rss / 1e6),
        "rmse": round(min(errors), 3) if errors else None,
    }
    return found if done is None else found | {"kept_mb": round(done["saved_tensor_bytes"] / 1e6, 2)}


def draw(found: dict[str, dict[str, dict]], longest: dict[str, int], budget: str, path: Path) -> None:
    """Each figure by length, with a cross where a peer did not solve the maze; the longest that each solved."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(PANELS) + 1, figsize=(17, 4.2), layout="constrained")
    for panel, (key, title) in zip(panels, PANELS.items(), strict=False):
        for peer, rows in found.items():
            shown = {int(n): r[key] for n, r in rows.items() if r.get(key) and (key != "updates" or _solved(r))}
            (line,) = panel.plot(list(shown), list(shown.values()), label=peer)
            for n, value in shown.items():
                panel.plot(n, value, marker="o" if _solved(rows[str(n)]) else "x", color=line.get_color())
        if any(len(line.get_xdata()) for line in panel.lines):
            panel.set(xscale="log", yscale="log")
        else:  # log of nothing fails
            panel.text(0.5, 0.5, "none solved", ha="center", transform=panel.transAxes)
        panel.set(xlabel="length of the maze", title=title)
    panels[0].legend()
    names = list(found)[::-1]
    panels[-1].barh(names, [max(longest[name], 1) for name in names], color="#8899aa")
    for place, name in enumerate(names):
        panels[-1].text(max(longest[name], 1), place, f" {longest[name]:,}" if longest[name] else " none", va="center")
    panels[-1].set(xscale="log", title="longest maze solved", xlim=(1, 40 * max(longest.values(), default=1) + 10))
    figure.suptitle(f"T-Maze, with {budget} each. Circle: solved (test RMSE below 0.1). Cross: not solved")
    figure.savefig(path, dpi=110)


def _solved(row: dict) -> bool:
    return row["outcome"] == "solved"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 100, 200], help="of the mazes")
    parser.add_argument("--updates", type=int, default=1000, help="at most")
    parser.add_argument("--every", type=int, default=100, help="updates between looks at the test error")
    parser.add_argument("--seconds", type=float, default=120, help="of CPU time, at most")
    parser.add_argument("--ram", type=int, default=2000, help="MB of what an update keeps, at most")
    parser.add_argument(
        "--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="NAME", help=f"some of {list(PEERS)}"
    )
    parser.add_argument("--figure", type=Path, help="where to draw it, a .png")
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
                    print(f"{peer}, {length:,}: {rows[str(length)]}", file=sys.stderr, flush=True)
    longest = {peer: max((int(n) for n, r in rows.items() if _solved(r)), default=0) for peer, rows in found.items()}
    show(peers=found, longest_solved=longest)
    if options.figure:
        budget = f"{options.seconds:g} s of CPU time, {options.ram:,} MB and {options.updates:,} updates"
        draw(found, longest, budget, options.figure)


if __name__ == "__main__":
    main()
