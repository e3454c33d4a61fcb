"""One thing that was looked at, and how it is."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import MemupError

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """ok; note: memup runs, but mind the advice; problem: no stage could run, and `code` is doctor's exit code."""

    name: str
    level: Level
    found: str
    advice: str = ""
    code: int = 0
    data: dict[str, Any] = field(default_factory=dict)


def guarded(name: str, look: Callable[[], Finding], level: Level, advice: str, code: int = 0) -> Finding:
    """What look() says; if it raises, that is the finding. A doctor must not die of what it looks at."""
    try:
        return look()
    except Exception as error:
        reason = str(error) if isinstance(error, MemupError) else repr(error)
        return Finding(name, level, reason, advice, code if level == "problem" else 0)
