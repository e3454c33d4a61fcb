"""Checks of the machine: packages, devices, cores, RAM and the batch queue."""

import importlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stores.lease import job_id

from .. import console
from ..extras import EXTRAS, install
from ..limits import available_cpus, free_ram
from .findings import Finding, guarded

BROKEN = 1  # exit code: the installation does not work
REINSTALL = "Install memup again: pip install -c constraints.txt ."
LITTLE_RAM = 10**9
IMPORTED = ("numpy", "torch", "zarr", "numcodecs", "gymnasium")  # what every stage cannot do without


def check_machine() -> Iterator[Finding]:
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")
    yield guarded("packages", check_packages, "problem", REINSTALL, BROKEN)
    for name in IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a broken binary wheel raises
            yield Finding(name, "problem", f"it does not load: {error!r}", REINSTALL, BROKEN)
    yield guarded("extras", check_extras, "note", "memup runs without them.")
    yield guarded("devices", check_devices, "note", "Use --device cpu.")
    yield check_cores()
    yield guarded("RAM", check_ram, "note", "What is free is unknown; mind --slab-memory.")
    yield check_queue()


def check_packages() -> Finding:
    """Every package that memup asks for, against the versions it asks for."""
    versions, wrong = _versions()
    if wrong:
        return Finding("packages", "problem", "; ".join(wrong), REINSTALL, BROKEN, versions)
    return Finding("packages", "ok", ", ".join(f"{name} {found}" for name, found in versions.items()), data=versions)


def check_extras() -> Finding:
    """Which extras are there. Each is for one thing; all else works without."""
    lacks = {extra: _versions(extra)[1] for extra in EXTRAS}
    there = ", ".join(extra for extra in EXTRAS if not lacks[extra])
    gone = [extra for extra in EXTRAS if lacks[extra]]
    if not gone:
        return Finding("extras", "ok", there, data=lacks)
    found = f"{there or 'none'}; not {', '.join(f'{extra} (for {EXTRAS[extra]})' for extra in gone)}"
    return Finding("extras", "note", found, f"Only if you need that: {install(','.join(gone))}", data=lacks)


def _versions(extra: str = "") -> tuple[dict[str, str], list[str]]:
    """The packages that memup or one of its extras asks for, and what is wrong with them."""
    from packaging.requirements import Requirement

    versions, wrong = {}, []
    for line in importlib.metadata.requires("memup") or []:
        wanted = Requirement(line)
        if not (wanted.marker.evaluate({"extra": extra}) if wanted.marker else not extra):
            continue
        try:
            found = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name}{wanted.specifier} is missing")
            continue
        versions[wanted.name] = found
        if not wanted.specifier.contains(found, prereleases=True):
            wrong.append(f"{wanted.name} is {found}, not {wanted.specifier}")
    return versions, wrong


def check_devices() -> Finding:
    """The CPU, and CUDA devices that can really add two numbers."""
    import torch

    if not torch.cuda.is_available():
        data: dict[str, Any] = {"cuda": []}
        if Path("/dev/nvidiactl").exists():
            advice = "There is an NVIDIA driver; a torch build with CUDA that fits it would use its GPUs."
            return Finding("devices", "note", "cpu; torch sees no GPU", advice, data=data)
        return Finding("devices", "ok", "cpu", data=data)
    names = []
    for i in range(torch.cuda.device_count()):
        total = (torch.ones(2, device=f"cuda:{i}") + 1).sum().item()
        free = torch.cuda.mem_get_info(i)[0]
        names.append(f"cuda:{i} {torch.cuda.get_device_name(i)} ({console.human_bytes(free)} free)")
        if total != 4:
            return Finding("devices", "note", f"{names[-1]} does not add up", "Use another --device.")
    return Finding("devices", "ok", ", ".join(["cpu", *names]), data={"cuda": names})


def check_cores() -> Finding:
    usable, allowed, there = available_cpus(), len(os.sched_getaffinity(0)), os.cpu_count() or 1
    limits = [f"{there} in the machine"]
    limits += [f"{allowed} that this process may run on"] if allowed < there else []
    limits += ["a control group gives time for fewer"] if usable < allowed else []
    data = {"usable": usable, "affinity": allowed, "machine": there}
    return Finding("cores", "ok", f"{usable} usable ({', '.join(limits)})", data=data)


def check_ram() -> Finding:
    free = free_ram()
    data = {"free_bytes": free}
    found = f"{console.human_bytes(free)} free for this process"
    if free < LITTLE_RAM:
        return Finding("RAM", "note", found, "Lower --slab-memory and --buffer-memory, or ask for more.", data=data)
    return Finding("RAM", "ok", found, data=data)


def check_queue() -> Finding:
    sbatch, job = shutil.which("sbatch"), job_id()
    where = f"inside job {job}" if job else "not inside a job"
    found = f"sbatch at {sbatch}, {where}" if sbatch else f"no sbatch, {where}"
    return Finding("batch queue", "ok", found, data={"sbatch": sbatch, "job": job or None})
