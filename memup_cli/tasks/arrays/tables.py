"""Tables of one row a step, CSV and Parquet, read in blocks of rows."""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...errors import BadInput, UsageProblem
from ...extras import needs
from .containers import told_of

CELLS = 1 << 17  # read together
Numbers = tuple[np.ndarray, np.ndarray]  # (rows, columns) float64, and where a cell is empty


class StepTable(Protocol):
    path: Path
    names: list[str]
    rows: int
    block: int  # rows that are best read together

    def numbers(self, start: int, stop: int, names: list[str]) -> Numbers:
        """Cells of rows [start, stop) as numbers, 0 where they are empty."""

    def texts(self, start: int, stop: int, name: str) -> list[str]:
        """Cells of one column as they are."""


def open_table(path: Path) -> StepTable:
    with told_of(str(path)):
        table: StepTable = CsvTable(path) if path.suffix.lower() == ".csv" else ParquetTable(path)
    if twice := sorted({name for name in table.names if table.names.count(name) > 1}):
        raise BadInput(f"{path} has more than one column {twice[0]!r}; columns are told apart by their names")
    if not table.rows:
        raise BadInput(f"{path} has no rows")
    return table


def block_rows(columns: int) -> int:
    return max(1, CELLS // max(1, columns))


def has(table: StepTable, option: str, name: str) -> str:
    """The name of a column that is there."""
    if name not in table.names:
        raise UsageProblem(f"{option} {name}: {table.path} has no such column. It has: {', '.join(table.names)}.")
    return name


class CsvTable:
    """Its first line names the columns. Lines without anything are no rows."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, 0
        self._places: list[int] = []  # where each block begins
        self._held: tuple[int, list[list[str]]] = (-1, [])
        with path.open("rb") as file:
            self.names = next(csv.reader([file.readline().decode("utf-8-sig").strip()]), [])
            self.names = [name.strip() for name in self.names]
            self.block = block_rows(len(self.names))
            place = file.tell()
            for line in file:
                if not line.isspace():
                    if self.rows % self.block == 0:
                        self._places.append(place)
                    self.rows += 1
                place += len(line)
        if not self.names or all(_is_number(name) for name in self.names):
            raise BadInput(f"{path} does not name its columns; its first line must, such as: id,a,b,label")

    def _block(self, number: int) -> list[list[str]]:
        """The cells of its rows; the last ones asked for are kept, as inputs and targets are read after each other."""
        if self._held[0] != number:
            count = min(self.block, self.rows - number * self.block)
            with self.path.open("rb") as file:
                file.seek(self._places[number])
                lines = (line.decode() for line in file if not line.isspace())
                rows = list(csv.reader(islice(lines, count)))
            for at, row in enumerate(rows, number * self.block):
                if len(row) != len(self.names):
                    raise BadInput(
                        f"{self.path}: row {at} (from 0) has {len(row)} cells, and the first line names "
                        f"{len(self.names)} columns"
                    )
            if len(rows) < count:
                raise BadInput(f"{self.path} has a line break within quotes; a row must be one line")
            self._held = number, rows
        return self._held[1]

    def _cells(self, start: int, stop: int, names: list[str]) -> list[str]:
        """Those of some rows and columns, row by row."""
        columns, found = [self.names.index(name) for name in names], []
        with told_of(str(self.path)):
            for number in range(start // self.block, -(-stop // self.block)):
                first = number * self.block
                rows = self._block(number)[max(start - first, 0) : stop - first]
                found += [row[column].strip() for row in rows for column in columns]
        return found

    def texts(self, start: int, stop: int, name: str) -> list[str]:
        return self._cells(start, stop, [name])

    def numbers(self, start: int, stop: int, names: list[str]) -> Numbers:
        cells = self._cells(start, stop, names)
        empty = np.fromiter(map(len, cells), np.int64, len(cells)) == 0
        try:
            values = np.fromiter((float(cell or 0) for cell in cells), np.float64, len(cells))
        except ValueError:
            at = next(i for i, cell in enumerate(cells) if cell and not _is_number(cell))
            row, column = start + at // len(names), names[at % len(names)]
            raise BadInput(
                f"{self.path}: row {row} (from 0) has {cells[at]!r:.40} in {column!r}, which is not a number. "
                "--columns names the columns that are inputs."
            ) from None
        return values.reshape(-1, len(names)), empty.reshape(-1, len(names))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


class ParquetTable:
    """A row group of it is held at a time, of the columns that are asked for."""

    def __init__(self, path: Path) -> None:
        with needs("arrays"):
            import pyarrow.parquet
        self.path = path
        self._file = pyarrow.parquet.ParquetFile(path)
        self.names: list[str] = list(self._file.schema_arrow.names)
        self.block = block_rows(len(self.names))
        groups = [self._file.metadata.row_group(i).num_rows for i in range(self._file.metadata.num_row_groups)]
        self._edges = np.cumsum([0, *groups])
        self.rows = int(self._edges[-1])
        self._held: tuple[int, list[str], Any] = (-1, [], None)

    def _columns(self, start: int, stop: int, names: list[str]) -> Iterator[Any]:
        """The parts of some rows that lie in one row group each, as tables of pyarrow."""
        first, last = np.searchsorted(self._edges, [start, stop - 1], "right") - 1
        for group in range(int(first), int(last) + 1):
            if self._held[:2] != (group, names):
                self._held = (group, names, self._file.read_row_group(group, columns=names))
            edge, following = int(self._edges[group]), int(self._edges[group + 1])
            begin = max(start, edge)
            yield self._held[2].slice(begin - edge, min(stop, following) - begin)

    def texts(self, start: int, stop: int, name: str) -> list[str]:
        with told_of(str(self.path)):
            found = [value for part in self._columns(start, stop, [name]) for value in part.column(name).to_pylist()]
        return ["" if value is None else str(value) for value in found]

    def numbers(self, start: int, stop: int, names: list[str]) -> Numbers:
        for name in names:
            kind = str(self._file.schema_arrow.field(name).type)
            if not kind.startswith(("int", "uint", "float", "double", "halffloat", "bool", "decimal")):
                raise BadInput(
                    f"{self.path}: the column {name!r} holds {kind}, not numbers. --columns names the columns that are "
                    "inputs."
                )
        with told_of(str(self.path)):
            parts = list(self._columns(start, stop, names))
            columns = [[part.column(name) for part in parts] for name in names]
            values = [np.concatenate([_floats(part) for part in column]) for column in columns]
            empty = [np.concatenate([part.is_null().to_numpy() for part in column]) for column in columns]
        return np.stack(values, 1), np.stack(empty, 1)


def _floats(column: Any) -> np.ndarray:
    found: np.ndarray = column.cast("float64").fill_null(0.0).to_numpy()
    return found
