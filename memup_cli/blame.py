"""What went wrong in code that is not memup's: the exception, and the line of the user's that it came from."""

import sysconfig
import traceback
from pathlib import Path

import stores

OWN = (Path(__file__).parent, Path(stores.__file__).parent)
LIBRARY = Path(sysconfig.get_path("stdlib"))
PACKAGES = {"site-packages", "dist-packages"}


def described(error: BaseException) -> str:
    """An exception in one line: its type, its message, and the file and line that raised it."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{type(error).__name__}({error.msg!r}) in {_short(error.filename)}, line {error.lineno}"
    frames = [(name, line) for name, line in _frames(error) if not _is_below(name, *OWN)]
    if not frames:
        return repr(error)
    name, line = next((frame for frame in reversed(frames) if not _is_installed(frame[0])), frames[-1])
    return f"{error!r} in {_short(name)}, line {line}"


def _frames(error: BaseException) -> list[tuple[str, int]]:
    """File and line of every call on the way to the error, the innermost last."""
    found = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line) for frame, line in found if not frame.f_code.co_filename.startswith("<")]


def _is_installed(name: str) -> bool:
    return _is_below(name, LIBRARY) or bool(PACKAGES & set(Path(name).parts))


def _is_below(name: str, *folders: Path) -> bool:
    return any(Path(name).is_relative_to(folder) for folder in folders)


def _short(name: str) -> str:
    path = Path(name)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
