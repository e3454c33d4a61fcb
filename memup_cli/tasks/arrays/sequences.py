"""Sequences in arrays or tables: how many, how long, and the inputs and targets of each, a block at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import BadInput, UsageProblem
from .containers import TABLES, StoredArray, ending, locate, open_array
from .tables import StepTable, has, open_table

BYTES = 4 << 20  # of a block
SPLITS = ("train", "validation", "test")
Read = Callable[[int, int], Any]


class Blocks:
    """Rows of something long, of which one block is in RAM."""

    def __init__(self, read: Read, total: int, size: int) -> None:
        self._read, self._total, self._size = read, total, size
        self._held: tuple[int, Any] = (-1, None)

    def __call__(self, start: int, stop: int) -> np.ndarray:
        parts = []
        for first in range(start - start % self._size, stop, self._size):
            if self._held[0] != first:
                self._held = first, self._read(first, min(first + self._size, self._total))
            parts.append(self._held[1][max(start - first, 0) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


@dataclass(frozen=True)
class Sequences:
    starts: np.ndarray  # (N + 1,) where each begins on the axis of all steps, and where the last one ends
    row: tuple[int, ...]  # shape of the inputs of a step
    bytes_: bool  # inputs are bytes, and stay so
    inputs: Read  # of steps [start, stop), counted over all sequences
    targets: Read  # of the same, or of sequences [first, stop); NaN where there is no label
    each: bool  # one target per sequence: that of its last step
    named: np.ndarray | None = None  # (N,) the split of each, as a number of SPLITS
    held: tuple[str, ...] = ()  # files that are in RAM as a whole

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.starts)

    def place(self, at: int) -> str:
        """Where target number `at` is, in words."""
        if self.each:
            return f"sequence {at}"
        sequence = int(np.searchsorted(self.starts, at, "right")) - 1
        return f"step {at - int(self.starts[sequence])} of sequence {sequence}"

    def step_targets(self, number: int) -> np.ndarray:
        """The targets of the steps of a sequence (T,), NaN where there is none."""
        start, stop = int(self.starts[number]), int(self.starts[number + 1])
        if not self.each:
            found: np.ndarray = self.targets(start, stop)
            return found
        values = np.full(stop - start, np.nan)
        values[-1] = self.targets(number, number + 1)[0]
        return values


def open_sequences(options: Any) -> Sequences:
    """What the options of `memup import arrays` name."""
    path, key = locate("--inputs", options.inputs)
    if ending(path) in TABLES:
        if key:
            raise UsageProblem(f"--inputs {path}:{key}: a table has no keys; name its columns with --columns")
        return _of_table(open_table(path), options)
    for name in ("columns", "target_column", "episode_column", "split_column"):
        if getattr(options, name) is not None:
            raise UsageProblem(f"--{name.replace('_', '-')} is for tables (.csv, .parquet); {path} is none")
    if options.targets is None:
        raise UsageProblem("--targets is required: the file with one target per sequence, or one per step")
    array = open_array("--inputs", options.inputs)
    _refuse_empty(array)
    if options.lengths is None and len(array.shape) < 2:
        raise UsageProblem(
            f"{array.name} has shape {array.shape}. Inputs must be (sequences, steps, ...); or (all steps, ...), with "
            "--lengths, which says how many of them belong to each sequence."
        )
    starts = (
        _starts(options.lengths, array.shape[0], array.name)
        if options.lengths is not None
        else np.arange(array.shape[0] + 1) * array.shape[1]
    )
    row = array.shape[1 if options.lengths is not None else 2 :]
    inputs = _steps(array, 0 if options.lengths is not None else array.shape[1])
    targets, each, held = _targets(options.targets, starts, options.lengths is None)
    is_bytes = array.dtype in (np.dtype(np.uint8), np.dtype(bool))
    files = (*([array.name] if array.held else []), *held)
    return Sequences(starts, row, is_bytes, inputs, targets, each, held=files)


def _refuse_empty(array: StoredArray) -> None:
    if not array.shape:
        raise BadInput(f"{array.name} is a single number; sequences are needed")
    if 0 in array.shape:
        raise BadInput(f"{array.name} is empty: its shape is {array.shape}")


def _steps(array: StoredArray, width: int) -> Read:
    """Reads steps of an array (sequences, width, ...), or with width 0 of one that has a row a step."""
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    chunks = max(1, BYTES // max(1, array.chunk * row_bytes))
    blocks = Blocks(array.read, array.shape[0], chunks * array.chunk)
    if not width:
        return blocks

    def read(start: int, stop: int) -> np.ndarray:
        first, last = start // width, -(-stop // width)
        found = blocks(first, last)
        return found.reshape(-1, *found.shape[2:])[start - first * width : stop - first * width]

    return read


def _starts(where: str, total: int, inputs: str) -> np.ndarray:
    array = open_array("--lengths", where)
    _refuse_empty(array)
    if len(array.shape) != 1 or array.dtype.kind not in "iu":
        raise BadInput(f"{array.name} must be whole numbers, one per sequence; it is {array.dtype} {array.shape}")
    lengths = array.read(0, array.shape[0]).astype(np.int64)
    if lengths.min() < 1:
        number = int(lengths.argmin())
        raise BadInput(f"{array.name} has length {lengths[number]} for sequence {number}; every sequence needs a step")
    if lengths.sum() != total:
        raise BadInput(f"the lengths in {array.name} add up to {lengths.sum():,} steps; {inputs} has {total:,}")
    return np.concatenate([[0], np.cumsum(lengths)])


def _targets(where: str, starts: np.ndarray, equal: bool) -> tuple[Read, bool, list[str]]:
    """Targets, whether there is one per sequence, and what of them is in RAM."""
    array, count, total = open_array("--targets", where), len(starts) - 1, int(starts[-1])
    _refuse_empty(array)
    held = [array.name] if array.held else []
    width = total // count if equal else 0  # steps of each, if they all have as many
    by_step = (count, width) if equal else (total,)
    if array.shape == (count,):
        return _finite(_steps(array, 0)), True, held
    if array.shape == by_step:
        return _finite(_steps(array, width)), False, held
    raise BadInput(
        f"{array.name} has shape {array.shape}, which does not go with the inputs: there are {count:,} sequences of "
        f"{total:,} steps in all. Targets must be {(count,)}, one per sequence, or {by_step}, one per step."
    )


def _finite(read: Read) -> Read:
    """What is not finite must not pass for a missing label: infinity stands for both until it is told."""

    def found(start: int, stop: int) -> np.ndarray:
        values = read(start, stop).astype(np.float64)
        return np.where(np.isfinite(values), values, np.inf)

    return found


def _of_table(table: StepTable, options: Any) -> Sequences:
    special = {}
    for name in ("target_column", "episode_column", "split_column"):
        if (column := getattr(options, name)) is not None:
            special[name] = has(table, f"--{name.replace('_', '-')}", column)
    if (options.targets is None) == ("target_column" not in special):
        raise UsageProblem("say where the targets are, with either --target-column or --targets")
    if (options.lengths is None) == ("episode_column" not in special):
        raise UsageProblem("say which rows are a sequence, with either --episode-column or --lengths")
    given = [name.strip() for name in options.columns.split(",")] if options.columns is not None else []
    names = [has(table, "--columns", name) for name in given]
    names = names or [name for name in table.names if name not in special.values()]
    if special.get("target_column") in names:
        raise UsageProblem(f"--columns {options.columns}: one is the target, which no step may show; leave it out")
    if not names:
        raise UsageProblem(f"{table.path} has no columns left to be inputs")
    if "episode_column" in special:
        starts = _episodes(table, special["episode_column"])
    else:
        starts = _starts(options.lengths, table.rows, str(table.path))
    named = _named(table, special["split_column"], starts) if "split_column" in special else None

    def inputs(start: int, stop: int) -> np.ndarray:
        values, empty = table.numbers(start, stop, names)
        values[empty] = np.nan
        return values

    def target(start: int, stop: int) -> np.ndarray:
        values, empty = (found[:, 0] for found in table.numbers(start, stop, [special["target_column"]]))
        return np.where(empty, np.nan, np.where(np.isfinite(values), values, np.inf))

    read = Blocks(inputs, table.rows, table.block)
    if options.targets is not None:
        targets, each, held = _targets(options.targets, starts, False)
        return Sequences(starts, (len(names),), False, read, targets, each, named, tuple(held))
    return Sequences(starts, (len(names),), False, read, Blocks(target, table.rows, table.block), False, named)


def _episodes(table: StepTable, column: str) -> np.ndarray:
    """Where each episode begins: rows of one value that follow each other."""
    starts, seen, last = [], set(), None
    for first in range(0, table.rows, table.block):
        for row, value in enumerate(table.texts(first, min(first + table.block, table.rows), column), first):
            if value == last:
                continue
            if value in seen:
                raise BadInput(
                    f"{table.path}: row {row} (from 0) belongs to {column} {value!r} again, after rows of others. All "
                    f"rows of a sequence must follow each other; sort the table by {column} and step."
                )
            seen.add(value)
            starts.append(row)
            last = value
    return np.array([*starts, table.rows])


def _named(table: StepTable, column: str, starts: np.ndarray) -> np.ndarray:
    """The split that the rows of each sequence name (N,)."""
    named = np.zeros(len(starts) - 1, np.uint8)
    for first in range(0, table.rows, table.block):
        texts = table.texts(first, min(first + table.block, table.rows), column)
        if others := set(texts) - set(SPLITS):
            at = min(texts.index(text) for text in others)
            raise BadInput(
                f"{table.path}: row {first + at} (from 0) has {texts[at]!r:.40} in {column!r}; it can be: "
                f"{', '.join(SPLITS)}"
            )
        found, rows = np.array([SPLITS.index(text) for text in texts]), np.arange(first, first + len(texts))
        sequence = np.searchsorted(starts, rows, "right") - 1
        begins = rows == starts[sequence]
        named[sequence[begins]] = found[begins]
        if (other := found != named[sequence]).any():
            number = sequence[other.argmax()]
            raise BadInput(f"{table.path}: sequence {number} has rows of more than one split in {column!r}")
    return named
