"""Whether Doom starts: a game for real, in a process that is ended after a time limit."""

import time

from ..compute.workers import worker_processes
from ..errors import BadInput
from ..interrupts import StopFlag
from ..tasks.two_colors.engine import sweep
from .findings import Finding

LIMIT = 60.0  # seconds
ADVICE = "Only two-colors needs it; everything else works. It wants Linux, /dev/shm and a writable TMPDIR."


def check_game(stop: StopFlag) -> Finding:
    """Start a game, play a step, end it; nothing is left, whatever happens to it."""
    try:
        with worker_processes(1, stop) as workers:
            seconds = workers.submit(_play).result(timeout=LIMIT)
    except TimeoutError:
        raise BadInput(f"the Doom engine did not start within {LIMIT:.0f} seconds") from None
    finally:
        sweep()
    return Finding("Doom engine", "ok", f"started, played and ended in {seconds:.1f} s", data={"seconds": seconds})


def _play() -> float:
    from ..tasks.two_colors.environment import TwoColorsEnv

    began = time.perf_counter()
    env = TwoColorsEnv()
    try:
        env.reset(seed=0)
        env.step(0)
    finally:
        env.close()
    return time.perf_counter() - began
