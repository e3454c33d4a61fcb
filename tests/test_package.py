"""What is installed from a wheel works by itself: no file of the source tree is missing from it."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from memup_cli.extras import EXTRAS
from tests.cli import Memup
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


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The wheel, unpacked."""
    target = tmp_path_factory.mktemp("target")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", target, *built.glob("*.whl")], check=True, capture_output=True)
    return target


def test_an_installed_wheel_runs_in_another_folder(installed, tmp_path):
    target, elsewhere = installed, tmp_path / "elsewhere"
    elsewhere.mkdir()
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


# Python runs this first: what is not in CORE can neither be imported nor found among what is installed.
PLAIN = """
import importlib.metadata, json, os, sys
from importlib.metadata import PackageNotFoundError

hidden, refused = map(set, json.loads(os.environ["HIDDEN"]))
real = importlib.metadata.distribution


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def distribution(name):
    if name in hidden:
        raise PackageNotFoundError(name)
    return real(name)


importlib.metadata.distribution = distribution
sys.meta_path.insert(0, Refusing())
"""


def brought_by_a_plain_install() -> set[str]:
    """Distributions that memup asks for, or that these ask for."""
    found, left = {"memup"}, ["memup"]
    while left:
        for line in importlib.metadata.requires(left.pop()) or []:
            wanted = Requirement(line)
            name = canonicalize_name(wanted.name)
            if name not in found and (not wanted.marker or wanted.marker.evaluate({"extra": ""})):
                found.add(name)
                left.append(name)
    return found


@pytest.fixture
def plain(memup: Memup, installed: Path, tmp_path_factory):
    """memup as a plain install has it, without any extra; in interpreters of their own."""
    core = brought_by_a_plain_install()
    modules = importlib.metadata.packages_distributions()
    there = {module: {*map(canonicalize_name, by)} for module, by in modules.items()}
    refused = [module for module, by in there.items() if not by & core]
    hidden = sorted({name for by in there.values() for name in by} - core)
    assert {"vizdoom", "PIL", "matplotlib", "tensorboard", "minari", "aiohttp", "h5py"} <= set(refused)
    first = tmp_path_factory.mktemp("first")
    (first / "sitecustomize.py").write_text(PLAIN)
    env = {"PYTHONPATH": os.pathsep.join(map(str, (first, installed))), "HIDDEN": json.dumps([hidden, refused])}

    def run(*arguments: object, code: int = 0):
        return memup(*arguments, code=code, env=env, new_interpreter=True)

    run.env = environment(env)
    return run


def test_a_plain_install_has_what_the_stages_need(memup, plain):
    plain("collect", "tmaze", "--length", 40, "--episodes", 30, "--test-episodes", 5, "--run", "run")
    plain("score", "--run", "run", "--updates", 10)
    plain("train-memory", "--run", "run", "--updates", 4)
    plain("evaluate", "memory", "--run", "run")
    plain("train-agent", "--run", "run", "--steps", 1, "--iteration-steps", 100)
    refused = plain("evaluate", "agent", "--run", "run", "--episodes", 2, "--record", "film.gif", code=2)
    assert "memup[film]" in refused.err
    assert not (memup.folder / "run" / "evaluation" / "agent-ppo.json").exists()  # it is said before anything is played
    plain("evaluate", "agent", "--run", "run", "--episodes", 2)
    (memup.folder / "run" / "play.png").write_bytes(b"a picture")  # as an earlier --record left it
    plain("report", "run")
    assert "memup[film]" in (memup.folder / "run" / "report.html").read_text()


def test_what_a_plain_install_lacks_is_named(memup, plain):
    assert "memup[doom]" in plain("collect", "two-colors", "--episodes", 2, "--run", "run", code=2).err
    (memup.folder / "a" / "data").mkdir(parents=True)
    about = {"observation_space": "", "action_space": "", "total_episodes": 1, "total_steps": 1}
    (memup.folder / "a" / "data" / "metadata.json").write_text(json.dumps(about))
    assert "memup[minari]" in plain("import", "minari", "a", "--run", "run", code=2).err
    assert "memup[minari]" in plain("export", "minari", "--run", "run", "--id", "a-v0", "--to", "b", code=2).err
    (memup.folder / "a" / "x.h5").write_bytes(b"")
    assert (
        "memup[arrays]"
        in plain("import", "arrays", "--inputs", "a/x.h5", "--targets", "a/x.h5", "--classes", code=2).err
    )
    (memup.folder / "a" / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    about = {"codebase_version": "v3.0", "total_episodes": 1, "total_frames": 1, "features": {}}
    (memup.folder / "a" / "meta" / "info.json").write_text(json.dumps(about))
    (memup.folder / "a" / "meta" / "episodes" / "chunk-000" / "file-000.parquet").write_bytes(b"PAR1")
    assert "memup[arrays]" in plain("import", "lerobot", "a", "--run", "run", code=2).err
    assert "memup[remote]" in plain("inspect", "--run", "http://127.0.0.1:9/run", code=2).err
    assert [path.name for path in memup.folder.iterdir()] == ["a"]


def test_games_can_be_learned_from_but_not_played_without_doom(memup, plain):
    memup("collect", "two-colors", "--policy", "random", "--episodes", 2, "--test-episodes", 1, "--run", "run")
    plain("inspect", "--run", "run")
    plain("score", "--run", "run", "--updates", 1)
    assert "memup[doom]" in plain("train-agent", "--agent", "amrl", "--run", "run", code=2).err


MAKE = """
import gymnasium, memup_cli.envs
from memup_cli.errors import UsageProblem

gymnasium.make("memup/TMaze-v0", length=10).reset(seed=0)
try:
    gymnasium.make("memup/TwoColors-v0")
except UsageProblem as problem:
    print(problem)
"""


def test_environments_are_registered_without_the_packages_of_all(memup, plain):
    program = [sys.executable, "-P", "-c", MAKE]
    done = subprocess.run(program, cwd=memup.folder, env=plain.env, check=True, capture_output=True, text=True)
    assert "memup[doom]" in done.stdout


def test_the_doctor_of_a_plain_install_notes_what_it_lacks(plain):
    shown = plain("doctor", "--json").json
    checks = {check["name"]: check for check in shown["checks"]}
    assert shown["ok"]
    assert checks["packages"]["level"] == "ok"
    assert checks["extras"]["level"] == checks["Doom engine"]["level"] == "note"
    assert all(checks["extras"]["data"][extra] for extra in EXTRAS)
    assert (
        "pip install 'memup[arrays,doom,film,minari,mlflow,plots,remote,tensorboard,trackio,wandb]'"
        in checks["extras"]["advice"]
    )
    assert "memup[doom]" in checks["Doom engine"]["found"]


def test_the_extras_are_those_of_the_package():
    known = set(importlib.metadata.metadata("memup").get_all("Provides-Extra"))
    assert known == {*EXTRAS, "all", "test", "dev"}


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
