"""Durable writes and safe paths: the only module that creates, renames or deletes files."""

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import DamagedData, StoreIO, UnsafePath
from .remote import RemotePath

PARTIAL = ".partial"
_OWN = f".{secrets.token_hex(4)}{PARTIAL}"  # two processes that write the same file must not share a temporary one
MAX_OPEN = 192  # files at a time, well below the usual limit of 1024 descriptors

_ADVICE = {
    errno.ENOSPC: "free some space and run the same command again; all that was committed is kept",
    errno.EDQUOT: "your quota is used up; free some space and run the same command again",
    errno.EROFS: "the file system is read-only; choose another folder with --run",
    errno.EACCES: "the folder is not writable for you; choose another one with --run",
    errno.EPERM: "the folder is not writable for you; choose another one with --run",
}


@contextlib.contextmanager
def io_errors(path: Path, need: int = 0) -> Iterator[None]:
    """Turn the operating system's errors into one paragraph with the path and what to do."""
    try:
        yield
    except OSError as error:
        amount = f" ({need:,} bytes needed)" if need else ""
        advice = _ADVICE.get(error.errno or 0, "check the file system, then run the same command again")
        raise StoreIO(f"cannot write {path}{amount}: {error.strerror or error}; {advice}") from error


def write_all(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def rename(source: Path, target: Path) -> None:
    """Rename, also where the server did it but answered that it failed (seen on NFS after a retry)."""
    expected = os.stat(source)
    try:
        os.replace(source, target)
    except FileNotFoundError:
        found = os.stat(target)
        if (found.st_ino, found.st_size) != (expected.st_ino, expected.st_size):
            raise


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + _OWN)


def drop_partials(folder: Path) -> None:
    """Remove what killed attempts left half-written directly in a folder."""
    for left in folder.glob("*" + PARTIAL):
        with io_errors(left):
            left.unlink(missing_ok=True)


def allowed() -> None:
    """The check of writers that nobody can overtake."""


class PendingFiles:
    """Files written under a temporary name, made durable and renamed together.

    One batch costs about as much as one file: the first fsync carries the journal of all. The check is made after the
    fsyncs, right before the first rename: an attempt that lost its lease meanwhile raises there and changes nothing.
    """

    def __init__(self, check: Callable[[], None] = allowed) -> None:
        self._check = check
        self._open: list[tuple[int, Path]] = []
        self._synced: list[Path] = []

    def write(self, path: Path, data: bytes) -> None:
        if len(self._open) >= MAX_OPEN:
            self.publish()
        with io_errors(path, len(data)):
            fd = os.open(_temporary(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
            self._open.append((fd, path))
            write_all(fd, data)

    def publish(self) -> None:
        """Sync every file, check, give each its final name, then sync the folders."""
        folders: dict[Path, None] = {}
        while self._open:
            fd, path = self._open[0]
            with io_errors(path):
                try:
                    os.fsync(fd)
                finally:
                    self._open.pop(0)
                    self._synced.append(path)
                    os.close(fd)
        self._check()
        while self._synced:
            path = self._synced[0]
            with io_errors(path):
                rename(_temporary(path), path)
            self._synced.pop(0)
            folders[path.parent] = None
        for folder in folders:
            with io_errors(folder):
                sync_folder(folder)

    def discard(self) -> None:
        while self._open:
            fd, path = self._open.pop()
            self._synced.append(path)
            with contextlib.suppress(OSError):
                os.close(fd)
        while self._synced:
            with contextlib.suppress(OSError):
                _temporary(self._synced.pop()).unlink()


def write_durably(path: Path, data: bytes, check: Callable[[], None] = allowed) -> None:
    """Replace the file at path by data: after a crash it holds either the old bytes or the new ones."""
    pending = PendingFiles(check)
    try:
        pending.write(path, data)
        pending.publish()
    except BaseException:
        pending.discard()
        raise


def begin_again(path: Path, keep: Callable[[bytes], bytes], check: Callable[[], None]) -> int:
    """A new file in place of a log, with what is kept of it; its descriptor, for appending.

    Who turns out to be overtaken puts the log back as it was, even if it is overtaken between the check and the rename:
    nothing is replaced that was not looked at, because the old log is set aside first, and a link never replaces.
    """
    aside, own = path.with_name(path.name + ".old"), _temporary(path)
    with io_errors(path):
        if aside.exists() and not path.exists():  # killed in between
            os.rename(aside, path)
        data = keep(read_file(path) if path.exists() else b"")
        fd = os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        try:
            write_all(fd, data)
            os.fsync(fd)
            check()
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, aside)
            try:
                check()
                _place(own, path, check)
            except BaseException:
                with contextlib.suppress(FileExistsError, FileNotFoundError):
                    os.link(aside, path)
                aside.unlink(missing_ok=True)
                raise
            aside.unlink(missing_ok=True)
            sync_folder(path.parent)
        except BaseException:
            os.close(fd)
            own.unlink(missing_ok=True)
            raise
    return fd


def _place(own: Path, path: Path, check: Callable[[], None]) -> None:
    """Give a file its name unless there is another one of that name."""
    try:
        os.link(own, path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOENT):
            check()  # somebody came meanwhile, and it says who
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):  # a file system without links
            raise
        os.rename(own, path)
    else:
        own.unlink()


def make_folder(path: Path) -> None:
    if isinstance(path, RemotePath):
        raise StoreIO(f"cannot write {path}: stores are written to local or shared folders only")
    with io_errors(path):
        missing = []
        folder = path
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        if not folder.is_dir():
            raise StoreIO(
                f"{folder} is a file, but {path} needs a folder of that name; move it out of the way, then "
                "run the same command again"
            )
        path.mkdir(parents=True, exist_ok=True)
        for made in reversed(missing):
            sync_folder(made.parent)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there."""
    path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Delete a folder; it is renamed first so that a half-deleted one never looks like a whole one."""
    if path.is_symlink():
        raise UnsafePath(f"{path} is a symbolic link; refusing to delete through it. Remove the link yourself.")
    doomed = path.with_name(path.name + ".deleting")
    with io_errors(path):
        if doomed.exists():
            shutil.rmtree(doomed)
        if path.exists():
            os.rename(path, doomed)
            shutil.rmtree(doomed)
            sync_folder(path.parent)


def move(source: Path, target: Path) -> None:
    """Move a file or folder within a file system, durably."""
    make_folder(target.parent)
    with io_errors(target):
        os.rename(source, target)
        sync_folder(target.parent)
        sync_folder(source.parent)


def inside(root: Path, relative: str, field: str) -> Path:
    """The path of a relative name below root; absolute names, '..' and symbolic links are refused."""
    pure = PurePosixPath(relative)
    if pure.is_absolute() or ".." in pure.parts or "\\" in relative or "\0" in relative or not pure.parts:
        raise UnsafePath(
            f"{field} names {relative!r}, which is not a plain relative path below {root}; "
            "nothing was read or written. The file was changed by hand or comes from somebody you should ask."
        )
    path = root
    for part in pure.parts:
        path = path / part
        refuse_link(path)
    return path


def refuse_link(path: Path) -> None:
    if path.is_symlink():
        raise UnsafePath(
            f"{path} is a symbolic link; links inside a run are refused because they can lead out of it. "
            "Replace it by the real file or folder."
        )


def read_file(path: Path) -> bytes:
    """The bytes of a regular file; FileNotFoundError passes through, links are refused."""
    if isinstance(path, RemotePath):
        return path.read_bytes()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # opening a pipe would wait for a writer
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        if isinstance(error, FileNotFoundError):
            raise
        raise StoreIO(f"cannot read {path}: {error.strerror}; check its permissions and the disk") from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StoreIO(f"cannot read {path}: it is not a file. Move it out of the way.")
        with open(fd, "rb", buffering=0, closefd=False) as file:
            return file.read()
    except OSError as error:
        raise StoreIO(f"cannot read {path}: {error.strerror}; check its permissions and the disk") from error
    finally:
        os.close(fd)


def file_size(path: Path) -> int:
    return path.size() if isinstance(path, RemotePath) else path.stat().st_size


def read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(read_file(path))
    except FileNotFoundError:
        raise DamagedData(f"{path} is missing") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DamagedData(f"{path} is not valid JSON ({error})") from None
    if not isinstance(data, dict):
        raise DamagedData(f"{path} holds no JSON object")
    return data


def to_json(data: object) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()
