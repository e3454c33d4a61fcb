"""Who writes a shard. The token fences a zombie attempt's commits; host, pid and job are for people."""

import contextlib
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from .errors import DamagedData, Fenced, StoreError, StoreIO
from .files import make_folder, read_json, remove_file, to_json, write_durably

NAME = "lease.json"
MAX_PID = 1 << 22


@dataclass(frozen=True)
class Lease:
    token: str
    host: str
    pid: int
    born: str  # of the process, in clock ticks since boot: tells a reused pid from the owner
    job: str

    def describe(self) -> str:
        return f"process {self.pid} on {self.host}" + (f", job {self.job}" if self.job else "")


def job_id() -> str:
    """The batch system's name for this attempt, empty outside a queue."""
    if task := os.environ.get("SLURM_ARRAY_TASK_ID"):
        return f"{os.environ.get('SLURM_ARRAY_JOB_ID', '')}_{task}"
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID"):
        if value := os.environ.get(name):
            return value
    return ""


def take(shard: Path) -> tuple[Lease, Lease | None]:
    """Own the shard from now on: (our lease, that of an attempt that never finished)."""
    lease = Lease(secrets.token_hex(8), socket.gethostname(), os.getpid(), _born(os.getpid()), job_id())
    earlier = refuse_living(shard)
    try:
        write_durably(shard / NAME, to_json(asdict(lease)))
    except StoreIO as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        make_folder(shard)  # we hung, and whoever came meanwhile cleared our temporary file away: look again
        earlier = refuse_living(shard)
        write_durably(shard / NAME, to_json(asdict(lease)))
    return lease, earlier


def refuse_living(shard: Path) -> Lease | None:
    """Raise if somebody on this host is writing the shard; otherwise return the lease that a dead attempt left."""
    earlier = read(shard)
    if earlier is not None and is_alive(earlier):
        raise Fenced(
            f"{shard} is being written by {earlier.describe()}. Wait for it or stop it, then run this command again; "
            "nothing was changed."
        )
    return earlier


def check(shard: Path, lease: Lease) -> None:
    """Raise unless the shard is still ours."""
    found = read(shard)
    if found is None or found.token != lease.token:
        owner = found.describe() if found else "somebody who removed its lease"
        raise Fenced(
            f"{shard} was taken over by {owner}; this attempt (process {lease.pid} on {lease.host}) stops without "
            "committing anything more. Nothing is lost."
        )


def release(shard: Path, lease: Lease) -> None:
    with contextlib.suppress(OSError, StoreError):  # one that stays behind names a dead process, and stops nobody
        found = read(shard)
        if found is not None and found.token == lease.token:
            remove_file(shard / NAME)


def read(shard: Path) -> Lease | None:
    if not (shard / NAME).exists():
        return None
    try:
        found = Lease(**read_json(shard / NAME))
    except (DamagedData, TypeError):
        return None  # a lease is only a message: an unreadable one stops nobody
    texts = (found.token, found.host, found.born, found.job)
    sound = type(found.pid) is int and 0 < found.pid <= MAX_PID and all(isinstance(text, str) for text in texts)
    return found if sound else None


def _stat(pid: int) -> list[str]:
    """What Linux says of a process, its state first; nothing of one that is not there."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _born(pid: int) -> str:
    return "".join(_stat(pid)[19:20])


def is_alive(lease: Lease) -> bool:
    """Whether the owner still runs; of other hosts nothing is known, so their leases do not count."""
    if lease.host != socket.gethostname() or lease.pid == os.getpid():
        return False
    if stat := _stat(lease.pid):
        dead = stat[0] in "ZX"  # killed, and its parent has not asked for its exit code yet
        return not dead and lease.born in ("", *stat[19:20])
    try:
        os.kill(lease.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not lease.born
