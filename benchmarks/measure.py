"""Run a piece of work in a process of its own and measure it: the benchmarks' common tool."""

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

MEMUP = [sys.executable, "-m", "memup_cli"]


def in_child(work: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Result and peak RSS in bytes of work(*arguments) in a fresh process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, arguments).result()


def _measured(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, int]:
    result = work(*arguments)
    status = Path("/proc/self/status").read_text()  # ru_maxrss would include the parent's memory at the fork
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return result, int(peak.split()[1]) * 1024


def cost(command: list[str]) -> tuple[float, int]:
    """CPU seconds and peak RSS in bytes of a command."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def alternate(repeats: int, *works: Callable[[], Any]) -> list[float]:
    """Median seconds of each, run in turns so that a busy machine troubles all alike."""
    times = [[seconds(work) for work in works] for _ in range(repeats)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def show(**figures: Any) -> None:
    print(json.dumps(figures, indent=2))
