"""Chunks of an array: read directly where they are as we wrote them, several times faster than through zarr's pipeline;
arrays that somebody rewrote with other codecs, chunks or shards go through the zarr API instead.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .codec import Array, decode, ending
from .errors import DamagedData
from .files import read_file
from .layout import Field, Layout


class Chunks(Protocol):
    def read(self, index: int, out: Array) -> None:
        """Fill out (chunk_steps, *row) with chunk number index."""


@dataclass(frozen=True)
class DirectChunks:
    """Chunk files as we wrote them."""

    folder: Path
    layout: Layout
    field: Field
    written: dict[str, str] | None = None  # chunk number -> ending(), where that is recorded

    def read(self, index: int, out: Array) -> None:
        path = self.folder / self.layout.chunk_key(self.field, index)
        try:
            data = read_file(path)
            if self.written is not None and self.written.get(str(index)) != ending(data):
                raise DamagedData("it is not the one that was written")
            decode(data, out)
        except FileNotFoundError:
            raise self._damage(index, path, "its file is missing") from None
        except DamagedData as error:
            raise self._damage(index, path, str(error)) from None

    def _damage(self, index: int, path: Path, problem: str) -> DamagedData:
        return DamagedData(
            f"chunk {index} of steps/{self.field.name} is damaged: {problem} ({path}). "
            "Run `memup verify --repair` to set its episodes aside and collect them again."
        )


class ZarrChunks:
    """The fall-back: any Zarr v3 array of the right shape, through the zarr API."""

    def __init__(self, folder: Path, layout: Layout, field: Field) -> None:
        import zarr

        self._array: Any = zarr.open_array(store=str(folder), mode="r")
        self._steps, self._where = layout.chunk_steps, folder
        if self._array.shape[1:] != field.shape or self._array.dtype != field.numpy:
            raise DamagedData(f"{folder} holds rows of another shape or dtype than the shard says")

    def read(self, index: int, out: Array) -> None:
        start = index * self._steps
        try:
            rows = self._array[start : start + self._steps]
        except Exception as error:  # zarr's codecs raise many types; all of them mean unreadable bytes
            raise DamagedData(f"chunk {index} of {self._where} cannot be read ({error})") from None
        if len(rows) != len(out):
            raise DamagedData(f"{self._where} ends before step {start + self._steps}")
        out[:] = rows
