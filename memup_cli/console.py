"""What people see: results on stdout; progress, notes and errors on stderr."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LINE_EVERY = 30.0  # seconds between two progress lines in a batch log

WIDTH = 120  # of tables that go to a file or a pipe


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


stdout = _Console(highlight=False, width=None if sys.stdout and sys.stdout.isatty() else WIDTH)
stderr = _Console(stderr=True, highlight=False, soft_wrap=True)


def hush() -> None:
    """For all but the first of several processes: only an error of its own is heard."""
    stdout.quiet = stderr.quiet = True


@contextmanager
def results_only() -> Iterator[None]:
    """What the user's code prints goes to stderr: stdout is for results."""
    with redirect_stdout(sys.stderr):
        yield


def note(message: str, quiet: bool = False) -> None:
    if not quiet:
        stderr.print(message, markup=False)


def resuming(stage: str, where: str, quiet: bool) -> None:
    note(f"{stage}: resuming at {where}", quiet)


def result(data: dict[str, Any], as_json: bool, table: Callable[[], Any]) -> None:
    """Print a command's result: one JSON object, or what table() builds."""
    if stdout.quiet:
        return
    if as_json:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
        sys.stdout.flush()
    else:
        shown = table()
        stdout.print(shown, markup=False, soft_wrap=isinstance(shown, str))


def human_range(first: int, last: int) -> str:
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


def human_bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} TB"


def human_time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _bar(unit: str) -> "Bar":
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit}s"),
        TextColumn("{task.fields[extra]}"),
        TimeRemainingColumn(),
        console=stderr,
    )


def percent(share: float) -> str:
    """What is explained: anything below -100% is just bad."""
    return f"{share:.1%}" if share >= -1 else "less than -100%"


class Progress:
    """A live bar on a terminal; in a batch log one line every 30 seconds; nothing when quiet."""

    def __init__(self, title: str, unit: str, total: int, done: int = 0, quiet: bool = False) -> None:
        self._title, self._unit, self._total, self._done, self._first = title, unit, total, done, done
        self._began = self._said = time.monotonic()
        self._quiet, self._extra = quiet, ""
        self._bar: Bar | None = None
        if not quiet and stderr.is_terminal:
            self._bar = _bar(unit)
            self._task = self._bar.add_task(title, total=total, completed=done, extra="")

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    @property
    def done(self) -> int:
        return self._done

    def advance(self, count: int, extra: str = "") -> None:
        self._done += count
        self._extra = extra or self._extra
        if self._bar:
            self._bar.update(self._task, completed=self._done, extra=self._extra)
        elif not self._quiet and time.monotonic() - self._said >= LINE_EVERY:
            self._said = time.monotonic()
            stderr.print(self._line(), markup=False)

    def _line(self) -> str:
        rate = (self._done - self._first) / max(time.monotonic() - self._began, 1e-9)
        left = human_time(max(self._total - self._done, 0) / rate) if rate else "unknown"
        share = self._done / max(self._total, 1)
        extra = f", {self._extra}" if self._extra else ""
        return (
            f"{self._title}: {self._done:,} of {self._total:,} {self._unit}s ({share:.0%}), "
            f"{rate:,.1f} {self._unit}s/s{extra}, {left} left"
        )
