"""Packages with tasks of their own, as pip would leave them in a folder."""

import os
from pathlib import Path


def install(
    folder: Path, source: str, entries: dict[str, str], package: str = "plugin", group: str = "memup.tasks"
) -> dict[str, str]:
    """Write a package with these entry points below `folder`; returns the environment that finds it."""
    facts = folder / f"{package}-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {package}:{place}" for name, place in entries.items()]
    (facts / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]) + "\n")
    (folder / f"{package}.py").write_text(source)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
