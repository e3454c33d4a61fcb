"""The shape of the code: imports point one way, and asking for help is quick."""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.processes import COMMAND, environment

ROOT = Path(__file__).parent.parent
# Each layer may import itself and those after it.
LAYERS = [
    "memup_cli.commands",
    "memup_cli.publishing",
    "memup_cli.health",
    "memup_cli.reports",
    "memup_cli.stages",
    "memup_cli.agents",
    "memup_cli.learning",
    "memup_cli.baselines",
    "memup_cli.evaluation",
    "memup_cli.detector",
    "memup_cli.selection",
    "memup_cli.predictor",
    "memup_cli.memory",
    "memup_cli.streaming",
    "memup_cli.compute",
    "memup_cli.records",
    "memup_cli.tasks",
    "memup_cli.options",
    "memup_cli",
    "stores",
]
TOP = {"memup_cli", "memup_cli.app", "memup_cli.__main__", "memup_cli.envs"}  # these see everything


def modules() -> dict[str, ast.Module]:
    found = {}
    for package in ("memup_cli", "stores"):
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text())
    return found


def imports(name: str, tree: ast.Module) -> set[str]:
    is_package = (ROOT / Path(*name.split("."))).is_dir()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")[: len(name.split(".")) - node.level + is_package] if node.level else []
            source = ".".join([*base, node.module] if node.module else base)
            found |= {source, *(f"{source}.{alias.name}" for alias in node.names)}
    return found


def layer(name: str) -> int | None:
    return next((i for i, prefix in enumerate(LAYERS) if name == prefix or name.startswith(prefix + ".")), None)


def test_imports_point_one_way():
    wrong = []
    for name, tree in modules().items():
        if name in TOP:
            continue
        known = [m for m in imports(name, tree) if layer(m) is not None]
        wrong += [f"{name} imports {other}" for other in known if layer(other) < layer(name)]
    assert wrong == []


def test_the_rule_would_notice_a_wrong_import():
    tree = ast.parse("from ..commands import collect\nfrom stores import layout")
    found = imports("memup_cli.tasks.spec", tree)
    assert "memup_cli.commands.collect" in found
    assert layer("memup_cli.commands.collect") < layer("memup_cli.tasks.mazes.tmaze")


def test_stores_know_nothing_of_torch_or_the_command_line():
    for name, tree in modules().items():
        if name.startswith("stores"):
            roots = {m.split(".")[0] for m in imports(name, tree)}
            assert not roots & {"torch", "memup_cli", "typer", "rich", "gymnasium"}, name


def test_no_module_is_named_after_the_standard_library():
    assert not {m.rsplit(".", 1)[-1] for m in modules()} & (sys.stdlib_module_names - {"__main__"})


def imported_by(*arguments: object, folder: Path, code: int = 0, first: str = "") -> set[str]:
    """The modules that a command has imported when it ends; `first` is run before it."""
    lines = (
        "import sys",
        first,
        f"sys.argv = {['memup', *map(str, arguments)]!r}",
        "from memup_cli.app import main",
        "try: main()",
        "finally: print('modules:', *sys.modules)",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
    )
    assert done.returncode == code, done.stderr
    return set(done.stdout.rpartition("modules:")[2].split())


def test_help_imports_nothing_heavy(tmp_path):
    """Asking for help stays well under a second because none of these is loaded."""
    found = imported_by("--help", folder=tmp_path)
    assert "memup_cli.commands.collect" in found
    assert not {"torch", "numpy", "zarr", "numcodecs", "gymnasium"} & found


# Torch's compiler, with what it imports, takes as long as torch itself; the others are for some tasks and the report.
UNUSED = {
    "torch._dynamo",
    "torch._inductor",
    "sympy",
    "tensorboard",
    "google.protobuf",
    "matplotlib",
    "zarr",
    "vizdoom",
}

STOP = """
import os, signal
from memup_cli.learning.learner import MemoryLearner as Learner
update = Learner.update
Learner.update = lambda *given: (update(*given), os.kill(os.getpid(), signal.SIGTERM))
"""


def test_stages_that_train_import_little_beyond_torch(memup, maze):
    def found(*arguments: object, **how: Any) -> set[str]:
        return imported_by(*arguments, "--run", "run", folder=memup.folder, **how)

    train = ("train-memory", "--updates", 2)
    stages = {
        "train-memory": found(*train, first=STOP, code=75),
        "resumed": found(*train),
        "train-baseline": found("train-baseline", "--model", "lstm", "--updates", 1),
        "ppo": found("train-agent", "--agent", "ppo", "--steps", 1, "--iteration-steps", 100),
        "qrdqn": found("train-agent", "--agent", "qrdqn", "--steps", 1, "--iteration-steps", 100),
        "evaluate": found("evaluate", "memory"),
        "score": found("score", "--updates", 1, "--restart"),
    }
    assert all("torch" in modules for modules in stages.values())
    assert {stage: sorted(modules & UNUSED) for stage, modules in stages.items()} == {stage: [] for stage in stages}
    assert not any("gymnasium" in stages[stage] for stage in ("score", "train-memory", "train-baseline", "evaluate"))


def test_the_module_runs_as_a_command():
    shown = subprocess.run([*COMMAND, "--version"], check=True, capture_output=True, text=True, env=environment())
    assert shown.stdout.startswith("memup ")


def test_only_one_module_creates_renames_and_deletes_files():
    """Doom's own folders below /tmp and /dev/shm are no files of a run."""
    changes = {"unlink", "rename", "replace", "rmdir", "rmtree", "mkdir", "makedirs", "remove", "removedirs", "touch"}
    found = set()
    for name, tree in modules().items():
        for node in ast.walk(tree):
            call = node.func if isinstance(node, ast.Call) else None
            if isinstance(call, ast.Attribute) and call.attr in changes and _is_of_files(call):
                found.add(name)
    assert found == {"stores.files", "memup_cli.tasks.two_colors.engine"}


def _is_of_files(call: ast.Attribute) -> bool:
    """Strings have a replace, too, and dataclasses; lists a remove."""
    owner = call.value.id if isinstance(call.value, ast.Name) else ""
    return call.attr not in ("replace", "remove") or owner in ("os", "path", "shutil")


MOST_MODULES = 14  # of a folder: more are several rooms in one


def test_each_folder_is_one_room():
    folders = {path.parent for path in (ROOT / "memup_cli").rglob("*.py")}
    counts = {f: len([p for p in f.glob("*.py") if not p.name.startswith("__")]) for f in folders}
    assert {str(f.relative_to(ROOT)): n for f, n in counts.items() if n > MOST_MODULES} == {}


def test_no_two_modules_and_no_two_classes_share_a_name():
    trees = {name: tree for name, tree in modules().items() if not (ROOT / Path(*name.split("."))).is_dir()}
    names = [name.rsplit(".", 1)[-1] for name in trees if name.startswith("memup_cli")]
    classes = [node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    assert sorted({n for n in names if names.count(n) > 1}) == []
    assert sorted({n for n in classes if classes.count(n) > 1}) == []
