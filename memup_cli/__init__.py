"""memup: long-term memory for very long sequences, trained by predicting their uncertain outcomes (MemUP)."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stores.reader import open_trajectories

    from .agents.acting import load_agent
    from .agents.play.wrappers import MemoryVectorWrapper, MemoryWrapper, load_memory

__version__ = "0.2.0"
__all__ = ["MemoryVectorWrapper", "MemoryWrapper", "load_agent", "load_memory", "open_trajectories"]


def __getattr__(name: str) -> Any:
    """The Python API, loaded on first use: it needs torch, and `memup --help` should not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "open_trajectories":
        from stores.reader import open_trajectories

        return open_trajectories
    from .agents import acting
    from .agents.play import wrappers

    return getattr(acting if name == "load_agent" else wrappers, name)
