"""Checks of the folder that runs go to: what it lies on, and whether writing, renaming and locking work there."""

import fcntl
import os
import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stores.errors import StoreIO
from stores.files import io_errors, write_durably

from .. import console
from .findings import Finding

REFUSED = 74  # exit code: the file system does not do what every stage needs
PREFIX = ".memup-doctor-"
PIECE, PIECES, SECONDS = 8_000_000, 8, 2.0  # of the speed test, which ends with whichever comes first
LITTLE_SPACE = 10**9
SLOW_COMMIT, SLOW_WRITING = 0.2, 20e6  # seconds; bytes a second
ELSEWHERE = "Choose another folder with --run."

NOTES = {
    "network": "Shared with other machines: give every attempt at a run the same path, and look at job ids in `memup "
    "status`; a lease of another host is taken over, not waited for.",
    "overlay": "A container's own layer: it is gone with the container. Mount a folder for runs.",
    "memory": "It lies in RAM: it is gone after a reboot, and what it holds is missing from the RAM for training.",
    "foreign": "Not a native Linux file system: sync and rename may promise more than they hold after a power cut.",
}
KINDS = {
    **dict.fromkeys(("nfs", "nfs4", "cifs", "smb3", "afs", "ceph", "lustre", "gpfs", "beegfs"), "network"),
    **dict.fromkeys(("overlay", "aufs"), "overlay"),
    **dict.fromkeys(("tmpfs", "ramfs"), "memory"),
    **dict.fromkeys(("vfat", "exfat", "ntfs3", "fuseblk", "9p", "drvfs"), "foreign"),
}


def nearest_folder(wanted: Path) -> Path:
    """The folder itself, or the nearest one above it: nothing is created for a look."""
    place = wanted.absolute()
    while not place.is_dir():
        if place.exists() or place.is_symlink():
            raise StoreIO(f"{place} is not a folder")
        place = place.parent
    return place


def check_folder(wanted: Path, quick: bool) -> Iterator[Finding]:
    """All checks of one folder; the later ones are left out if nothing can be written there."""
    try:
        folder = nearest_folder(wanted)
        yield check_kind(folder)
        yield check_space(folder)
        with io_errors(folder):
            place = tempfile.TemporaryDirectory(prefix=PREFIX, dir=folder)
        with place as name:
            yield check_writing(Path(name), quick)
            yield check_locks(Path(name))
    except (StoreIO, OSError) as error:
        yield Finding("folder", "problem", str(error), ELSEWHERE, REFUSED)


def check_kind(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> Finding:
    kind, where = file_system(folder.resolve(), mounts.read_text())
    data = {"folder": str(folder), "kind": kind, "mounted_on": where}
    note = NOTES.get(KINDS.get(kind.removeprefix("fuse."), ""), "")
    return Finding("file system", "note" if note else "ok", f"{folder} is on {kind} ({where})", note, data=data)


def file_system(folder: Path, mountinfo: str) -> tuple[str, str]:
    """(kind, mount point) of what a folder lies on, from the kernel's list of mounts."""
    best = ("unknown", "/")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), before.split()[4])
        if folder.is_relative_to(point) and len(point) >= len(best[1]):  # of equal ones the last lies on top
            best = (after.split()[0], point)
    return best


def check_space(folder: Path) -> Finding:
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    little = free < LITTLE_SPACE
    advice = "Little room for episodes; `memup collect TASK --dry-run` says how much they take." if little else ""
    text = f"{console.human_bytes(free)} free (a quota may allow less)"
    return Finding("space", "note" if little else "ok", text, advice, data={"free_bytes": free})


def check_writing(place: Path, quick: bool) -> Finding:
    """Commits as every stage makes them: write, sync, rename over what was there, sync the folder."""
    commits = []
    for i in range(5):
        began = time.perf_counter()
        write_durably(place / "commit", bytes([i]) * 4096)
        commits.append(time.perf_counter() - began)
    if (place / "commit").read_bytes() != bytes([4]) * 4096:
        return Finding("writing", "problem", "a file that was replaced still has its old contents", ELSEWHERE, REFUSED)
    seconds = statistics.median(commits)
    data = {"commit_seconds": seconds}
    found = f"a commit takes {1000 * seconds:.2g} ms"
    if not quick:
        data["bytes_per_second"] = _speed(place)
        found += f", writing and syncing goes at {console.human_bytes(data['bytes_per_second'])}/s"
    if seconds > SLOW_COMMIT or data.get("bytes_per_second", SLOW_WRITING) < SLOW_WRITING:
        advice = "Slow: a larger --commit-every and --checkpoint-every, or a disk of this machine, would help."
        return Finding("writing", "note", found, advice, data=data)
    return Finding("writing", "ok", found, data=data)


def _speed(place: Path) -> float:
    block = os.urandom(PIECE)  # nothing that a file system could compress
    began = time.perf_counter()
    written = 0
    for i in range(PIECES):
        write_durably(place / f"piece-{i}", block)
        written += PIECE
        if time.perf_counter() - began > SECONDS:
            break
    return written / (time.perf_counter() - began)


def check_locks(place: Path) -> Finding:
    advice = "memup goes on without locks: do not run two stages of one run at the same moment."
    path = place / "commit"
    with path.open("rb") as first, path.open("rb") as second:
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Finding("locks", "note", f"there are none: {error.strerror}", advice)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Finding("locks", "ok", "a lock keeps others out")
    return Finding("locks", "note", "a lock does not keep others out", advice)
