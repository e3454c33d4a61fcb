"""The command's entry point, and python -m memup_cli: a signal outside of the stages' work is no traceback."""

import os
import signal
import sys
from types import FrameType


def _nothing_to_save(number: int, frame: FrameType | None) -> None:
    os.write(2, b"memup: stopped with nothing to save; run the same command again\n")
    os._exit(75)


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, _nothing_to_save)
    try:
        from .app import main as run

        run()
    except KeyboardInterrupt:
        os.write(2, b"memup: stopped; to go on, run the same command again\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
