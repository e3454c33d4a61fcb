"""What the machine and the control groups around this process leave to it: RAM and CPU cores."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def available_cpus() -> int:
    """Cores that this process can really use: those it may run on, or fewer if a control group gives it less time."""
    return usable_cores(PROC, CGROUPS, len(os.sched_getaffinity(0)))


def usable_cores(proc: Path, cgroups: Path, allowed: int) -> int:
    quotas = [share for folder, old in _groups(proc, cgroups, "cpu") for share in _cpu_share(folder, old)]
    return max(1, min([allowed, *(math.ceil(share) for share in quotas)]))


def free_ram(proc: Path = PROC, cgroups: Path = CGROUPS) -> int:
    """MemAvailable, or less if a control group (version 1 or 2) of this process or one around it allows less."""
    lines = (proc / "meminfo").read_text().splitlines()
    free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
    for folder, old in _groups(proc, cgroups, "memory"):
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if old else ("memory.max", "memory.current")
        free += _group_room(folder, *names)
    return max(0, min(free))


def _groups(proc: Path, cgroups: Path, controller: str) -> Iterator[tuple[Path, bool]]:
    """Folders of the control groups around this process that rule over something, and whether they are version 1."""
    if not (proc / "self" / "cgroup").exists():
        return
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, inner = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controllers
        place = root / inner.strip("/")
        for folder in (place, *place.parents):  # in a container only the root may be visible
            yield folder, bool(controllers)
            if folder == root:
                break


def _cpu_share(folder: Path, old: bool) -> list[float]:
    """Cores' worth of time that one control group gives, if it says so."""
    try:
        if old:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        else:
            quota, period = (folder / "cpu.max").read_text().split()
    except OSError:
        return []
    return [] if quota in ("max", "-1") else [int(quota) / int(period)]


def _group_room(folder: Path, limit: str, usage: str) -> list[int]:
    """Limit minus usage of one control group; file cache, which is given back on demand, is not counted as used."""
    try:
        most, used = ((folder / name).read_text().strip() for name in (limit, usage))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return []
    if most == "max":
        return []
    cache = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return [int(most) - int(used) + cache]
