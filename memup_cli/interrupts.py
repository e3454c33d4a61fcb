"""Signals set a flag that work loops read at their next safe point; a second signal changes nothing."""

import signal
from types import FrameType

from .errors import Interrupted, MemupError, Stopped
from .ranks import rank

SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)


class StopFlag:
    """Truthy once a stop was asked for. Use as a context manager around the work."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __enter__(self) -> "StopFlag":
        self._earlier = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        if rank().size > 1:
            return  # torchrun signals those that are left when one has died: they still have to say why they stop
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def __bool__(self) -> bool:
        return self.signal is not None

    def _ask(self, number: int, _: FrameType | None) -> None:
        self.signal = self.signal or signal.Signals(number)

    def error(self, where: str, command: str) -> MemupError:
        """The exception that ends a stopped stage: exit 75, or 130 after Ctrl-C."""
        kind = Interrupted if self.signal == signal.SIGINT else Stopped
        return kind(f"stopped by {self.signal.name if self.signal else 'request'}; {where}. To continue: {command}")
