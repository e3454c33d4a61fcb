"""Arrays in files, opened but not read: npy, npz, HDF5 and Zarr. Nothing that a file holds is ever unpickled."""

import json
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import BadInput, MemupError, UsageProblem
from ...extras import needs

TABLES = (".csv", ".parquet")
KINDS = "an array (.npy, .npz, .h5, .hdf5, a Zarr folder) or a table (.csv, .parquet)"
ODD = {"O": "Python objects", "c": "complex numbers", "S": "strings", "U": "strings", "T": "strings", "V": "records"}


@dataclass(frozen=True)
class StoredArray:
    name: str  # as it is called in messages
    rows: Any  # what can be sliced along the first axis
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk: int = 1  # rows that are decoded together
    held: bool = False  # it is in RAM as a whole

    def read(self, start: int, stop: int) -> np.ndarray:
        with told_of(self.name):
            return np.asarray(self.rows[start:stop])


@contextmanager
def told_of(name: str) -> Iterator[None]:
    """Whatever a library raises while it reads is about this file."""
    try:
        yield
    except (MemupError, MemoryError):
        raise
    except Exception as error:
        raise BadInput(
            f"{name} cannot be read: {error}. Is it complete, and of the kind that its ending says?"
        ) from error


def locate(option: str, where: str) -> tuple[Path, str]:
    """FILE[:KEY] as a path that exists and a key, which may be empty."""
    path, key = Path(where), ""
    if not path.exists():
        before, _, key = where.rpartition(":")
        path = Path(before)
        if not before or not path.exists():
            raise UsageProblem(f"{option} {where}: there is no such file or folder")
    return path, key.strip("/")


def ending(path: Path) -> str:
    return ".zarr" if path.is_dir() else path.suffix.lower()


def open_array(option: str, where: str) -> StoredArray:
    """The array of an option; UsageProblem if there is no such one, BadInput if it holds no numbers."""
    path, key = locate(option, where)
    if ending(path) in TABLES:
        raise UsageProblem(
            f"{option} {where}: a table can only be given as --inputs. Name its columns: --columns, --target-column, "
            "--episode-column."
        )
    if ending(path) not in OPENERS:
        raise UsageProblem(f"{option} {where}: what ends in {path.suffix!r} is not known; it must be {KINDS}")
    with told_of(str(path)):
        found = OPENERS[ending(path)](option, path, key)
    if (kind := found.dtype.kind) not in "biuf":
        what = ODD.get(kind, f"values of type {found.dtype}")
        raise BadInput(f"{found.name} holds {what}; memup takes numbers: floats, integers or booleans")
    return found


def _chosen(option: str, path: Path, key: str, names: list[str]) -> str:
    """The key, if there is such an array; left out, the only one."""
    shown = ", ".join(sorted(names)[:20]) or "none"
    if not key and len(names) == 1:
        return names[0]
    if not key:
        raise UsageProblem(f"{option} {path} has {len(names)} arrays; say which one: {path}:KEY. There are: {shown}.")
    if key not in names:
        raise UsageProblem(f"{option} {path}:{key}: there is no such array in it. There are: {shown}.")
    return key


@dataclass(frozen=True)
class FileRows:
    """Rows of an array in numpy's order. Read, not mapped: mapped pages would count as the command's memory."""

    path: Path
    start: int  # bytes before the first row
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __getitem__(self, which: slice) -> np.ndarray:
        row = math.prod(self.shape[1:])
        with self.path.open("rb") as file:
            file.seek(self.start + which.start * row * self.dtype.itemsize)
            found = np.fromfile(file, self.dtype, (which.stop - which.start) * row)
        return found.reshape(which.stop - which.start, *self.shape[1:])


def _npy(option: str, path: Path, key: str) -> StoredArray:
    if key:
        raise UsageProblem(f"{option} {path}:{key}: an .npy file is one array; leave out :{key}")
    with path.open("rb") as file:
        shape, fortran, dtype = _header(file, str(path))
        return _in_file(str(path), path, file.tell(), shape, fortran, dtype)


def _in_file(
    name: str, path: Path, start: int, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]
) -> StoredArray:
    if (there := path.stat().st_size - start) < (needed := math.prod(shape) * dtype.itemsize):
        raise BadInput(f"{name} cannot be read: it is cut off, {needed - there:,} bytes are missing. Write it again.")
    if fortran and len(shape) > 1 and needed:  # a row lies all over the file
        return StoredArray(name, np.memmap(path, dtype, "r", start, shape, "F"), shape, dtype)
    return StoredArray(name, FileRows(path, start, shape, dtype), shape, dtype)


def _header(file: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of what follows in a file of numpy's format."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise BadInput(f"{name} holds Python objects, which are never unpickled; save it as an array of numbers")
    return shape, fortran, dtype


def _npz(option: str, path: Path, key: str) -> StoredArray:
    """A member that is stored lies in the file as an .npy would; a compressed one has to be read whole."""
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        key = _chosen(option, path, key, names)
        name, member = f"{path}:{key}", archive.getinfo(f"{key}.npy")
        with archive.open(member) as file:
            shape, fortran, dtype = _header(file, name)
            header = file.tell()
        if member.compress_type != zipfile.ZIP_STORED:
            with archive.open(member) as file:
                rows = np.lib.format.read_array(file, allow_pickle=False)
            return StoredArray(name, rows, shape, dtype, held=True)
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)  # how long the name and the extra part are, which come before the data
        lengths = file.read(4)
    before = 30 + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    return _in_file(name, path, member.header_offset + before + header, shape, fortran, dtype)


def _hdf5(option: str, path: Path, key: str) -> StoredArray:
    with needs("arrays"):
        import h5py
    file, names = h5py.File(path, "r"), []

    def visit(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            names.append(name)

    file.visititems(visit)
    key = _chosen(option, path, key, names)
    rows = file[key]
    return StoredArray(f"{path}:{key}", rows, rows.shape, rows.dtype, rows.chunks[0] if rows.chunks else 1)


def _zarr(option: str, path: Path, key: str) -> StoredArray:
    import zarr

    marks = ("zarr.json", ".zarray", ".zgroup")
    if not any((path / mark).is_file() for mark in marks):
        raise UsageProblem(f"{option} {path} is a folder without a Zarr array or group; it must be {KINDS}")
    found = zarr.open(path, mode="r")
    name = f"{path}:{key}" if key else str(path)
    if isinstance(found, zarr.Group):
        names = [name for name, member in found.members(max_depth=None) if isinstance(member, zarr.Array)]
        key = _chosen(option, path, key, names)
        name, found = f"{path}:{key}", found[key]
    elif key:
        raise UsageProblem(f"{option} {path}:{key}: the folder is one array; leave out :{key}")
    assert isinstance(found, zarr.Array)
    codecs = {key: value for key, value in found.metadata.to_dict().items() if key != "attributes"}
    if "pickle" in json.dumps(codecs, default=str):
        raise BadInput(f"{name} holds Python objects, which are never unpickled; save it as an array of numbers")
    return StoredArray(name, found, found.shape, np.dtype(found.dtype), found.chunks[0] if found.chunks else 1)


OPENERS: dict[str, Callable[[str, Path, str], StoredArray]] = {
    ".npy": _npy,
    ".npz": _npz,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".zarr": _zarr,
}
