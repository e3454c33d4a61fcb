"""Stores at a URL: read through fsspec, never written.

A RemotePath can be given wherever a store or a run is read. It goes the same way as a local path, and through the same
checksums: only the bytes come from elsewhere.
"""

import re
from collections.abc import Generator
from pathlib import Path, PosixPath
from typing import Any

from .errors import PackageMissing, StoreIO

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.S)  # two letters at least: C:/ is a drive

NOT_FOUND = (404, 410)  # answers of http


def is_url(where: str | Path) -> bool:
    """Whether this is no local path but, say, s3://bucket/run; of which Path() makes s3:/bucket/run."""
    found = _URL.match(str(where))
    return bool(found) and not Path(where).exists()


def open_place(where: str | Path) -> Path:
    """A local path, or what stands for it at a URL (http, https, s3, memory: whatever fsspec has)."""
    return RemotePath(where) if is_url(where) else Path(where)


class RemotePath(PosixPath):
    """A file or folder at a URL, with what the readers use of pathlib.Path."""

    def __str__(self) -> str:
        found = _URL.match(super().__str__())
        return f"{found[1]}://{found[2]}" if found else super().__str__()

    def _file_system(self) -> tuple[Any, str]:
        try:
            import fsspec

            found: tuple[Any, str] = fsspec.core.url_to_fs(str(self))
        except ImportError as error:
            raise PackageMissing(
                f"cannot read {self}: {error}; `pip install 'memup[remote]'` brings http and https"
            ) from error
        except ValueError as error:
            raise StoreIO(f"cannot read {self}: {error}; check the address") from None
        return found

    def read_bytes(self) -> bytes:
        """All bytes of a file; FileNotFoundError passes through."""
        system, path = self._file_system()
        try:
            data: bytes = system.cat_file(path)
        except FileNotFoundError:
            raise
        except Exception as error:  # of whatever library the file system uses
            raise StoreIO(f"cannot read {self}: {error!r}; check the address and the network") from error
        return data

    def exists(self, **_: Any) -> bool:
        """A server that does not answer is an error, not a missing file."""
        system, path = self._file_system()
        try:
            system.info(path)
        except FileNotFoundError as error:
            cause = error.__cause__  # http wraps all its errors
            if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", 0) in NOT_FOUND:
                return False
            raise StoreIO(f"cannot read {self}: {cause!r}; check the address and the network") from error
        except Exception as error:
            raise StoreIO(f"cannot read {self}: {error!r}; check the address and the network") from error
        return True

    def is_symlink(self) -> bool:
        return False

    def is_file(self, **_: Any) -> bool:
        return self.exists() and not self.is_dir()

    def is_dir(self, **_: Any) -> bool:
        system, path = self._file_system()
        return bool(system.isdir(path))

    def iterdir(self) -> Generator["RemotePath", None, None]:
        """What the server lists; not all of them do."""
        system, path = self._file_system()
        for name in system.ls(path, detail=False):
            if name.rstrip("/") != path.rstrip("/"):
                yield RemotePath(system.unstrip_protocol(name.rstrip("/")))

    def glob(self, pattern: str, **_: Any) -> Generator["RemotePath", None, None]:
        """As iterdir()."""
        system, path = self._file_system()
        for name in system.glob(f"{path}/{pattern}"):
            yield RemotePath(system.unstrip_protocol(name))

    def size(self) -> int:
        system, path = self._file_system()
        return int(system.size(path) or 0)
