"""Rows of some steps of an episode, and the different ones among many."""

import numpy as np

from .reading import ReadEpisode


def rows_at(name: str, steps: np.ndarray, block: int, length: int, read: ReadEpisode) -> np.ndarray:
    """Rows of some steps (M,) in ascending order, a block of steps at a time."""
    parts = []
    for b in np.unique(steps // block) if len(steps) else [0]:
        first = int(b) * block
        parts.append(read(name, first, min(first + block, length))[steps[steps // block == b] - first])
    return np.concatenate(parts)


def distinct(query: dict[str, np.ndarray], leading: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The different rows among query arrays with `leading` common dimensions, and which one each place has (flat).

    Windows before the same kind of event are often equal; an encoder has to see each only once.
    """
    flat = {name: values.reshape(-1, *values.shape[leading:]) for name, values in query.items()}
    count = len(next(iter(flat.values())))
    parts = [np.ascontiguousarray(v).reshape(count, -1).view(np.uint8).reshape(count, -1) for v in flat.values()]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1))
    _, first, which = np.unique(rows.view(f"V{rows.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return {name: values[first] for name, values in flat.items()}, which.ravel()
