"""File systems for tests: small, read-only, or on an image that can be copied as a power cut would leave it."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, *options: object) -> Iterator[Path]:
    """Mount something on a folder, made if need be; the test is skipped where mounting is not allowed."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *map(str, options), folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    with mounted(folder, "--bind", folder):
        done = subprocess.run(["mount", "-o", "remount,bind,ro", folder], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"read-only mounts are not allowed here: {done.stderr.strip()}")
        yield


@contextlib.contextmanager
def fragile_disk(places: Path, megabytes: int = 48) -> Iterator[tuple[Path, Path]]:
    """An ext4 on an image, which writes nothing of its own accord: (where it is mounted, the image)."""
    if not shutil.which("mkfs.ext4"):
        pytest.skip("there is no mkfs.ext4")
    image = places / "disk.img"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with mounted(places / "live", "-o", "loop,commit=300", image) as live:
        yield live, image
    image.unlink()


@contextlib.contextmanager
def after_power_cut(image: Path) -> Iterator[Path]:
    """What a machine would find that lost power now: the image as it is, mounted elsewhere."""
    copy = image.with_name("after.img")
    subprocess.run(["cp", "--sparse=always", image, copy], check=True)
    with mounted(image.with_name("after"), "-o", "loop", copy) as after:
        yield after
    copy.unlink()
