"""LeRobot data sets of format v3.0 on disk: what they say of themselves, and their frames, a batch of rows at a time.

meta/info.json names the features, meta/episodes says how long each episode is and in which file of data/ it lies, and
such a file has the frames of several episodes, one after the other. LeRobot itself is not needed.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadInput, UsageProblem
from ...extras import needs
from .arrow_columns import PIXELS, numbers, pictures
from .containers import told_of

FRAME, EPISODE = "frame_index", "episode_index"
PLACES = [EPISODE, "length", "data/chunk_index", "data/file_index"]  # columns of meta/episodes
BYTES = 4 << 20  # of frames read together
MOST_FRAMES = 1 << 16


@dataclass(frozen=True)
class Feature:
    name: str
    kind: str  # a type of numpy, or: image, video, string ...
    shape: tuple[int, ...]  # of images: (height, width, channels)

    @property
    def is_numbers(self) -> bool:
        return self.kind == "bool" or self.kind.rstrip("0123456789") in ("float", "int", "uint")

    @property
    def is_whole(self) -> bool:
        return self.is_numbers and not self.kind.startswith("float")

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class LeRobotFiles:
    folder: Path
    features: dict[str, Feature]
    paths: list[Path]  # files of data/
    where: np.ndarray  # (N,) in which of them an episode lies
    rows: np.ndarray  # (N,) at which row it begins there
    lengths: np.ndarray  # (N,) frames

    def check(self, names: list[str]) -> None:
        """BadInput if a file is missing, or has other rows or columns than it should."""
        for number, path in enumerate(self.paths):
            file, frames = _opened(path), int(self.lengths[self.where == number].sum())
            if file.metadata.num_rows != frames:
                raise BadInput(
                    f"{path} has {file.metadata.num_rows:,} frames; meta/episodes says that the episodes in it have "
                    f"{frames:,}. Get both again from the same version of the data set."
                )
            for name in (EPISODE, FRAME, *names):
                if name not in file.schema_arrow.names:
                    raise BadInput(
                        f"{path} has no column {name!r}, which meta/info.json names. It has: "
                        f"{', '.join(file.schema_arrow.names)}."
                    )


class Frames:
    """The frames of episodes, of the features that are asked for; quickest if episodes are read in their order."""

    def __init__(self, files: LeRobotFiles, names: list[str]) -> None:
        self._files, self._names = files, names
        row = sum(8 * files.features[name].size for name in names) + 1
        self._batch = max(1, min(MOST_FRAMES, BYTES // row))
        self._open: tuple[int, _Rows] | None = None

    def episode(self, number: int) -> dict[str, np.ndarray]:
        """Its features (T, *shape); BadInput if the frames are not those of this episode, or odd in any way."""
        files, columns = self._files, list(dict.fromkeys([EPISODE, FRAME, *self._names]))
        which, first, length = (int(found[number]) for found in (files.where, files.rows, files.lengths))
        path = files.paths[which]
        if self._open is None or self._open[0] != which:
            self._open = which, _Rows(path, columns, self._batch)
        one = Feature("", "int64", (1,))
        with told_of(str(path)):
            parts = self._open[1].read(first, first + length)
            own, frame = (self._joined(path, parts, one, name)[:, 0] for name in (EPISODE, FRAME))
            if (own != number).any() or (frame != np.arange(length)).any():
                raise BadInput(
                    f"{path}: the rows from {first:,} to {first + length - 1:,} should be the frames of episode "
                    f"{number}, in order, as meta/episodes says; they are not. Get both again from the same version of "
                    "the data set."
                )
            return {name: self._joined(path, parts, files.features[name], name) for name in self._names}

    def _joined(self, path: Path, parts: list[Any], feature: Feature, name: str) -> np.ndarray:
        values = pictures if feature.kind == "image" else numbers
        try:
            return np.concatenate([values(part.column(name), feature.shape) for part in parts])
        except BadInput as error:
            raise BadInput(f"{path}: the column {name!r} {error}") from None


class _Rows:
    """Rows of a Parquet file, read on from where the last ones ended: a batch is in RAM."""

    def __init__(self, path: Path, columns: list[str], size: int) -> None:
        self._file, self._columns, self._size = _opened(path), columns, size
        groups = [self._file.metadata.row_group(i).num_rows for i in range(self._file.metadata.num_row_groups)]
        self._edges = np.cumsum([0, *groups])
        self._first, self._held, self._batches = 0, None, iter(())

    def read(self, start: int, stop: int) -> list[Any]:
        """[start, stop) as batches of pyarrow."""
        parts: list[Any] = []
        while start < stop:
            if self._held is None or not self._first <= start < self._first + self._held.num_rows:
                self._go_on(start)
                continue
            parts.append(self._held.slice(start - self._first, stop - start))
            start += parts[-1].num_rows
        return parts

    def _go_on(self, start: int) -> None:
        """To the next batch, or to the row group of a row that is elsewhere."""
        after = self._first + (self._held.num_rows if self._held is not None else 0)
        group = int(np.searchsorted(self._edges, start, "right")) - 1
        if self._held is None or start < self._first or self._edges[group] > after:
            left = list(range(group, len(self._edges) - 1))
            self._batches = self._file.iter_batches(self._size, left, self._columns, use_threads=False)
            after = int(self._edges[group])
        self._first, self._held = after, next(self._batches)


def open_lerobot(folder: Path) -> LeRobotFiles:
    """UsageProblem if there is no data set, BadInput if it is not as the format says."""
    if not (folder / "meta" / "info.json").is_file():
        raise UsageProblem(
            f"{folder} is no LeRobot data set: it has no meta/info.json. Name the folder that has meta and data in it."
        )
    about = f"the LeRobot data set {folder}"
    with told_of(str(folder / "meta" / "info.json")):
        info = json.loads((folder / "meta" / "info.json").read_bytes())
        version = str(info["codebase_version"])
        if not version.startswith("v3."):
            raise BadInput(
                f"{about} is of the format {version[:20]}; memup reads v3.0. LeRobot has programs that convert data "
                "sets, such as convert_dataset_v21_to_v30."
            )
        if info.get("storage_format", "parquet") != "parquet":
            raise BadInput(f"{about} is stored as {info['storage_format']}; memup reads Parquet files. Convert it.")
        features = {name: _feature(name, found) for name, found in info["features"].items()}
        told = int(info["total_episodes"]), int(info["total_frames"])
    found = _places(folder)
    number, length, chunk, file = found.T
    found_in_all = len(found), int(length.sum())
    if (number != np.arange(len(found))).any() or found_in_all != told:
        raise BadInput(
            f"{about} does not fit together: meta/info.json counts {told[0]:,} episodes with {told[1]:,} frames, "
            f"meta/episodes has {found_in_all[0]:,} with {found_in_all[1]:,}, which must be numbered from 0 without "
            "gaps. Get both again from the same version of the data set."
        )
    if not len(found) or length.min() < 1:
        raise BadInput(f"{about} has {'an episode without frames' if len(found) else 'no episodes'}")
    named, where = np.unique(np.stack([chunk, file], 1), axis=0, return_inverse=True)
    paths = [folder / f"data/chunk-{chunk:03d}/file-{file:03d}.parquet" for chunk, file in named.tolist()]
    rows = np.zeros(len(found), np.int64)
    for number in range(len(paths)):
        own = where == number
        rows[own] = np.cumsum(length[own]) - length[own]
    return LeRobotFiles(folder, features, paths, where, rows, length)


def _feature(name: str, found: dict[str, Any]) -> Feature:
    kind, shape = str(found["dtype"]), tuple(int(size) for size in found.get("shape") or ())
    if kind == "image" and len(shape) == 3 and shape[0] in PIXELS.values() and shape[2] not in PIXELS.values():
        shape = (*shape[1:], shape[0])  # whatever order is told, pictures are rows of pixels
    return Feature(name, kind, shape)


def _places(folder: Path) -> np.ndarray:
    """Number, length, chunk and file of all episodes (N, 4), by their numbers."""
    paths = sorted((folder / "meta" / "episodes").glob("*/*.parquet"))
    if not paths:
        raise BadInput(f"{folder} has no meta/episodes/chunk-000/file-000.parquet. Is the download complete?")
    parts = []
    for path in paths:
        file = _opened(path)
        if absent := [name for name in PLACES if name not in file.schema_arrow.names]:
            raise BadInput(f"{path} has no column {absent[0]!r}, which says where episodes are")
        with told_of(str(path)):
            table = file.read(PLACES)
            parts.append(np.stack([numbers(c.combine_chunks(), ()) for c in table.columns], 1).astype(np.int64))
    found = np.concatenate(parts)
    return found[np.argsort(found[:, 0], kind="stable")]


def _opened(path: Path) -> Any:
    with needs("arrays"):
        import pyarrow.parquet
    if not path.is_file():
        raise BadInput(f"{path} is missing, and episodes lie in it. Is the download of the data set complete?")
    with path.open("rb") as file:
        if file.read(4) != b"PAR1":
            raise BadInput(f"{path} is no Parquet file. If Git LFS left a pointer there, `git lfs pull` gets the file.")
    with told_of(str(path)):
        return pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20)
