"""The README's examples are true: every command and program in it runs, in the order in which it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.cli import environment

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_every_example_runs(tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = environment({"PATH": path})
    commands = [block for block in blocks("sh") if not block.startswith("make")]
    programs = blocks("python")
    assert len(commands) >= 4
    assert len(programs) >= 3
    for block in commands:
        done = subprocess.run(
            ["bash", "-euc", block], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"
    for block in programs:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_every_make_target_exists():
    wanted = set(re.findall(r"^make (\S+)", README, re.M)) | set(re.findall(r"`make ([\w-]+)", README))
    assert {"demo", "test"} <= wanted
    defined = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert wanted <= defined


def test_every_link_leads_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
