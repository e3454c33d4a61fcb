"""The command's entry point, and python -m memup_cli: a signal while everything is being imported is no traceback."""

import os
import signal
import sys
from types import FrameType


def _not_begun(number: int, frame: FrameType | None) -> None:
    os.write(2, b"memup: stopped before there was anything to save; run the same command again\n")
    os._exit(75)


def main() -> None:
    for number in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(number, _not_begun)
    try:
        from .app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
