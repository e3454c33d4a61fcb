"""The targets of all sequences, looked at once: how many classes there are, and whether each step has a label."""

from dataclasses import dataclass

import numpy as np

from ...errors import BadInput
from .sequences import Sequences

MOST_CLASSES = 65_535
BLOCK = 1 << 16  # targets looked at together


@dataclass(frozen=True)
class Labels:
    classes: int  # 0: targets are numbers
    everywhere: bool  # every step has one
    dtype: str  # of the stored target

    @property
    def none(self) -> int:
        """The target of a step without a label: a class beyond, or 0."""
        return self.classes

    @property
    def kinds(self) -> int:
        """How many classes the stored target has."""
        return self.classes + (not self.everywhere)


def look_at_labels(sequences: Sequences, classes: bool) -> Labels:
    """BadInput if they are not what was said of them."""
    count, seen, missing = sequences.count if sequences.each else int(sequences.starts[-1]), np.zeros(0, bool), False
    for first in range(0, count, BLOCK):
        values = sequences.targets(first, min(first + BLOCK, count))
        labelled = ~np.isnan(values)
        missing |= not labelled.all()
        _refuse(sequences, values, first, ~labelled | np.isfinite(values), "is not a finite number")
        if not classes:
            fits = ~labelled | (np.abs(values) <= np.finfo(np.float32).max)
            _refuse(sequences, values, first, fits, "is too large: targets are stored as float32")
            continue
        whole = np.where(labelled, values, 0)
        counted = "classes are whole numbers from 0 on; for others give --numbers instead of --classes"
        _refuse(sequences, values, first, whole == np.floor(whole), f"is a fraction; {counted}")
        _refuse(sequences, values, first, whole >= 0, f"is negative; {counted}")
        _refuse(sequences, values, first, whole < MOST_CLASSES, f"is too large; {counted}")
        found = np.unique(values[labelled]).astype(np.int64)
        seen = np.concatenate([seen, np.zeros(max(0, int(found.max(initial=-1)) + 1 - len(seen)), bool)])
        seen[found] = True
    if not classes:
        return Labels(0, not (missing or sequences.each), "float32")
    if len(seen) < 2:
        raise BadInput(
            "the targets are all of one class" + (f", {len(seen) - 1}" * bool(len(seen))) + "; there must be two"
        )
    if not seen.all():
        absent = np.flatnonzero(~seen)
        raise BadInput(
            f"there are targets of class {len(seen) - 1}, but none of class {absent[0]}"
            f"{f' and {len(absent) - 1:,} others' if len(absent) > 1 else ''}. Classes are counted from 0, without "
            "gaps: number them anew, or give --numbers instead of --classes."
        )
    return Labels(len(seen), not (missing or sequences.each), "uint8" if len(seen) < 256 else "uint16")


def _refuse(sequences: Sequences, values: np.ndarray, first: int, fits: np.ndarray, problem: str) -> None:
    if not fits.all():
        at = int((~fits).argmax())
        value = "" if np.isinf(values[at]) else f", {values[at]:.9g},"
        raise BadInput(f"the target of {sequences.place(first + at)}{value} {problem}")
