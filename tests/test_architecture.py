"""The shape of the code: imports point one way, and asking for help is quick."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.processes import COMMAND, environment

ROOT = Path(__file__).parent.parent
# Each layer may import itself and those after it.
LAYERS = [
    "memup_cli.commands",
    "memup_cli.health",
    "memup_cli.reports",
    "memup_cli.agents",
    "memup_cli.training",
    "memup_cli.models",
    "memup_cli.tasks",
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
    found = imports("memup_cli.tasks.tmaze", tree)
    assert "memup_cli.commands.collect" in found
    assert layer("memup_cli.commands.collect") < layer("memup_cli.tasks.tmaze")


def test_stores_know_nothing_of_torch_or_the_command_line():
    for name, tree in modules().items():
        if name.startswith("stores"):
            roots = {m.split(".")[0] for m in imports(name, tree)}
            assert not roots & {"torch", "memup_cli", "typer", "rich", "gymnasium"}, name


def test_no_module_is_named_after_the_standard_library():
    assert not {m.rsplit(".", 1)[-1] for m in modules()} & (sys.stdlib_module_names - {"__main__"})


def test_help_imports_nothing_heavy():
    """Asking for help stays well under a second because none of these is loaded."""
    code = (
        "import sys\n"
        "sys.argv = ['memup', '--help']\n"
        "from memup_cli.app import main\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment())
    assert "collect" in shown.stdout
    assert not {"torch", "numpy", "zarr", "numcodecs", "gymnasium"} & set(shown.stdout.split())


def test_the_module_runs_as_a_command():
    shown = subprocess.run([*COMMAND, "--version"], check=True, capture_output=True, text=True, env=environment())
    assert shown.stdout.startswith("memup ")
