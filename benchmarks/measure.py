"""Run a piece of work in a process of its own and measure it: the benchmarks' common tool."""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any


def in_child(work: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Result and peak RSS in bytes of work(*arguments) in a fresh process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, work, arguments).result()


def _measured(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, int]:
    result = work(*arguments)
    status = Path("/proc/self/status").read_text()  # ru_maxrss would include the parent's memory at the fork
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return result, int(peak.split()[1]) * 1024


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
