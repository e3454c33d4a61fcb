"""Memory cells and detectors of other packages: found, trained with, and told what is wrong with them."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memup_cli.detector.detector_checks import check_detector, wrong_detector
from memup_cli.errors import UsageProblem
from memup_cli.memory.cell_checks import check_cell
from memup_cli.registries import DETECTORS
from memup_cli.registry import plugged_in
from memup_cli.tasks.adding import Add, AddOptions
from memup_cli.tasks.copying import Copy, CopyOptions
from tests.plugins import install

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
FEW = ["--updates", 6, "--batch", 4, "--evaluate-every", 3, "--run", "run"]


def example(title: str) -> str:
    """The Python of a section of docs/extending.md."""
    section = re.split(r"^## ", PAGE.partition(f"\n## {title}\n")[2], flags=re.MULTILINE)[0]
    return "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))


CELLS = """
import torch
from torch import nn
from memup_cli.memory.recurrent import gru

class Good(nn.Module):
    def __init__(self, inputs, shape, horizon):
        super().__init__()
        self.size, self.layer = shape.size, nn.Linear(inputs, shape.size)
    def initial(self, batch):
        return (torch.zeros(batch, self.size),)
    def forward(self, x, state):
        h = state[0].unsqueeze(1) + self.layer(x).cumsum(1)
        return h, (h[:, -1],)

class NoState(Good):
    initial = None
class Sized(Good):
    def __init__(self, *given):
        super().__init__(*given)
        self.size = 5
class Ones(Good):
    def initial(self, batch):
        return (torch.ones(batch, self.size),)
class Bare(Good):
    def initial(self, batch):
        return torch.zeros(batch, self.size)
class Last(Good):
    def forward(self, x, state):
        h, state = super().forward(x, state)
        return h[:, -1], state
class Grows(Good):
    def forward(self, x, state):
        h, state = super().forward(x, state)
        return h, (*state, *state)
class Whole(Good):
    def forward(self, x, state):
        h, state = super().forward(x, state)
        return h / x.shape[1], state
class Fails(Good):
    def forward(self, x, state):
        return x @ x, state
def none(inputs, shape, horizon):
    return None
word = "lstm"
"""
WRONG_CELLS = {
    "nostate": ("NoState", "it has no `initial`"),
    "sized": ("Sized", "its `size` is 5; it must be that of the Shape, here 8"),
    "ones": ("Ones", "`initial` gives other numbers than zeros"),
    "bare": ("Bare", "it must give a tuple of float tensors (2, n)"),
    "last": ("Last", "`forward` gives m (2, 8); it must be (B, r, size), here (2, 5, 8)"),
    "grows": ("Grows", "`forward` gives the state ((2, 8), (2, 8)); it must be like that of `initial`, ((2, 8))"),
    "whole": ("Whole", "`forward` of many steps gives other states than one call for each step"),
    "fails": ("Fails", "fails: RuntimeError"),
    "nothing": ("none", "it makes None; it must make a torch.nn.Module"),
    "word": ("word", "it is 'lstm'; it must be a class"),
    "missing": ("Missing", "does not load: AttributeError"),
}


@pytest.fixture
def plugins(tmp_path_factory, monkeypatch):
    """Installs a package, and has this process look for plug-ins anew; returns the environment that finds it."""

    def look(source: str, entries: dict[str, str], group: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("site")
        env = install(folder, source, entries, group=group)
        monkeypatch.syspath_prepend(folder)
        plugged_in.cache_clear()
        return env

    yield look
    plugged_in.cache_clear()
    sys.modules.pop("plugin", None)


@pytest.fixture
def cells(plugins):
    places = {name: place for name, (place, _) in WRONG_CELLS.items()}
    return plugins(CELLS, {**places, "good": "Good", "gru": "gru"}, "memup.cells")


def test_the_cell_of_the_documentation_is_trained_and_evaluated(memup, maze):
    env = install(memup.folder / "site", example("A memory cell"), {"traces": "Traces"}, group="memup.cells")
    own = {"env": env, "new_interpreter": True}  # one that has not looked for plug-ins yet
    assert "traces" in memup("train-memory", "--help", **own).out
    assert memup("train-memory", "--cell", "traces", *FEW, "--json", **own).json["updates"] == 6
    assert memup("evaluate", "memory", "--run", "run", "--json", **own).json["episodes"] > 0
    memup("train-agent", "--run", "run", "--steps", 200, "--envs", 4, **own)
    assert "there is no memory cell 'traces'" in memup("evaluate", "memory", "--run", "run", code=2).err


@pytest.mark.parametrize("name", WRONG_CELLS)
def test_what_is_wrong_with_a_cell_is_told(cells, name):
    with pytest.raises(UsageProblem) as refused:
        check_cell(name)
    assert WRONG_CELLS[name][1] in str(refused.value)
    assert f"the memory cell {name!r} (plugin:" in str(refused.value)


def test_wrong_cells_are_told_before_anything_is_trained_and_do_not_harm_the_others(memup, maze, cells):
    own = {"env": cells, "new_interpreter": True}
    assert "its `size` is 5" in memup("train-memory", "--cell", "sized", *FEW, code=2, **own).err
    assert not (maze / "memory").exists()
    memup("train-memory", "--cell", "good", *FEW, **own)
    said = memup("train-memory", "--cell", "gru", *FEW, "--restart", **own).err
    assert "gru is the memory cell of the package memup; that of plugin has the same name and is not used" in said


DETECTOR = """
from memup_cli.detector.kinds import Regression

class Targets(Regression):
    targets = "scalar"
class Sums(Regression):
    def loss(self, output, y, unit):
        return (output[:, 0] - y).abs()
class Unscored(Regression):
    score = None
class Signed(Regression):
    def score(self, output, y):
        return output[:, 0]
class Whole(Regression):
    def deviation(self, output, y):
        return output
class Looks(Regression):
    looks_at_y = None
class Fails(Regression):
    def __init__(self, spec, score):
        self.outputs = spec.classes[spec.target]
class Classes(Regression):
    targets = ("classes",)
"""
WRONG_DETECTORS = {
    "Targets": "its `targets` is 'scalar'; it must be a tuple of some of: classes, scalar, return",
    "Sums": "`loss` must give one number ()",
    "Unscored": "it has no `score`",
    "Signed": "`score` gives numbers below 0",
    "Whole": "`deviation` gives (6, 1); it must be one number for each step, here (6,)",
    "Looks": "its `looks_at_y` is None; it must be of type bool",
    "Fails": "fails: KeyError",
    "Classes": "--detector Classes does not fit this task; use quantile, regression or probe",
}


@pytest.mark.parametrize("name", WRONG_DETECTORS)
def test_what_is_wrong_with_a_detector_is_told(plugins, name):
    plugins(DETECTOR, {name: name for name in WRONG_DETECTORS}, "memup.detectors")
    with pytest.raises(UsageProblem) as refused:
        check_detector(name, Add(AddOptions()).spec)
    assert WRONG_DETECTORS[name] in str(refused.value)


@pytest.mark.parametrize("name", DETECTORS.built_in)
def test_built_in_detectors_are_what_a_detector_is(name):
    for spec in (Add(AddOptions()).spec, Copy(CopyOptions()).spec):
        assert wrong_detector(DETECTORS.load(name), spec) is None


def test_the_detector_of_the_documentation_scores_steps_that_a_memory_is_trained_by(memup, maze):
    env = install(memup.folder / "site", example("A detector"), {"gaussian": "Gaussian"}, group="memup.detectors")
    own = {"env": env, "new_interpreter": True}
    scored = memup("score", "--detector", "gaussian", "--updates", 200, "--restart", "--run", "run", "--json", **own)
    assert scored.json["separates"]
    memup("train-memory", "--detector", "gaussian", *FEW, **own)
    assert "gaussian" in memup("train-memory", "--detector", "probe", *FEW, code=2, **own).err


REGISTERED = """
import sys
from memup_cli.registries import *
from memup_cli.registries import _CORE, _PPO
{kind}.built_in[{name!r}] = {entry}
sys.argv = {arguments!r}
from memup_cli.app import main
main()
"""


def with_a_line(folder: Path, kind: str, name: str, entry: str, *arguments: object) -> dict:
    """What a command prints as JSON, with one more line in a registry; the module is found in its folder."""
    given = ["memup", *map(str, arguments), "--json"]
    code = REGISTERED.format(kind=kind, name=name, entry=entry, arguments=given)
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_selection_rule_of_the_documentation_draws_targets(memup, maze):
    (memup.folder / "ranked.py").write_text(example("A selection rule"))
    line = (memup.folder, "SELECTIONS", "ranked", "Entry('ranked:RANKED')")
    assert with_a_line(*line, "train-memory", "--select", "ranked", *FEW)["updates"] == 6
    assert with_a_line(*line, "evaluate", "memory", "--run", "run")["episodes"] > 0


@pytest.mark.parametrize("scores", ["stored", "online"])
def test_the_context_of_the_documentation_is_trained_and_evaluated(memup, maze, scores):
    (memup.folder / "place.py").write_text(example("A context"))
    line = (memup.folder, "CONTEXTS", "place", "Entry('place:PlaceContext')")
    assert with_a_line(*line, "train-memory", "--context", "place", "--scores", scores, *FEW)["updates"] == 6
    assert with_a_line(*line, "evaluate", "memory", "--run", "run")["episodes"] > 0


def test_the_agent_of_the_documentation_plays(memup, maze):
    (memup.folder / "grus.py").write_text(example("An agent"))
    shown = re.findall(r"^\"ppo-gru\": (.*),$", PAGE, re.MULTILINE)[0].replace("memup_cli.agents.grus", "grus")
    line = (memup.folder, "AGENTS", "ppo-gru", shown)
    small = ["--steps", 300, "--envs", 4, "--core-hidden", 8, "--run", "run"]
    assert with_a_line(*line, "train-agent", "--agent", "ppo-gru", *small)["agent"] == "ppo-gru"
    assert with_a_line(*line, "evaluate", "agent", "--episodes", 4, "--run", "run")["agent"] == "ppo-gru"
