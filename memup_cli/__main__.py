"""The command's entry point, and python -m memup_cli: a Ctrl-C while everything is being imported is no traceback."""

import sys


def main() -> None:
    try:
        from .app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
