"""What is installed from a wheel works by itself: no file of the source tree is missing from it."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.processes import environment

ROOT = Path(__file__).parent.parent
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the sdist and the wheel made from what git has; the working tree is left alone."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).exists():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    for kind in ("build_sdist", "build_wheel"):
        done = subprocess.run(
            [sys.executable, "-c", BUILD, kind, str(made)], cwd=source, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return made


def test_an_installed_wheel_runs_in_another_folder(built, tmp_path):
    target, elsewhere = tmp_path / "target", tmp_path / "elsewhere"
    elsewhere.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", target, *built.glob("*.whl")], check=True, capture_output=True)
    env = environment({"PYTHONPATH": str(target)})

    def run(*arguments: object) -> str:
        program = [sys.executable, "-P", "-m", "memup_cli", *map(str, arguments)]
        return subprocess.run(program, cwd=elsewhere, env=env, check=True, capture_output=True, text=True).stdout

    where = "import memup_cli, stores; print(memup_cli.__file__, stores.__file__)"
    found = subprocess.run([sys.executable, "-P", "-c", where], cwd=elsewhere, env=env, capture_output=True, text=True)
    assert all(path.startswith(str(target)) for path in found.stdout.split())
    assert "train-memory" in run("--help")
    run("collect", "copy", "--episodes", 12, "--test-episodes", 2, "--run", "run")
    run("report", "run")
    assert "<script>" in (elsewhere / "run" / "report.html").read_text()
    packaged = {str(path.relative_to(target)) for path in target.rglob("*") if path.suffix in (".wad", ".css", ".js")}
    assert {"memup_cli/tasks/two_colors/two_colors.wad", "memup_cli/reports/page.css"} <= packaged
    assert not (target / "tests").exists()


def test_the_source_package_has_what_a_checkout_has(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as package:
        names = {os.path.join(*Path(name).parts[1:]) for name in package.getnames() if "/" in name}
    wanted = {
        *("Makefile", "constraints.txt", "CHANGELOG.md", "LICENSE", "pyproject.toml", "docs/pictures/concepts.svg"),
        *(
            "docs/generate.py",
            "examples/slurm/submit.sh",
            "tests/cli.py",
            "tests/shim.c",
            "benchmarks/measure.py",
        ),
        *("memup_cli/reports/page.html", "memup_cli/tasks/two_colors/two_colors.wad", "stores/slab.py"),
    }
    assert wanted <= names
    assert not [name for name in names if "__pycache__" in name or name.startswith(".")]
