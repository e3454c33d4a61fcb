"""The documents are true: what they show runs, their links lead somewhere, and the list of options is the program's."""

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from docs import generate
from tests.processes import environment

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
ELSEWHERE = {"docs/python.md"}  # in tests/agents/test_wrappers.py, which has a trained memory
TOURS = {"README.md": 5, "docs/tour.md": 6}  # pages that lead through all stages, and the runs they make


def blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of what a page shows to be run, commands first; blocks of `make` are what runs this test."""
    found = re.findall(r"^```(sh|python)\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
    return [pair for language in ("sh", "python") for pair in found if pair[0] == language and pair[1][:4] != "make"]


RUNNABLE = [page for page in PAGES if blocks(page) and page not in ELSEWHERE]


def test_the_pages_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/commands.md", "docs/store.md"} <= set(PAGES)
    assert len(blocks("README.md")) >= 7
    assert sum(len(blocks(page)) for page in (*TOURS, "docs/hpc.md", "docs/store.md")) >= 22
    assert {"README.md", "docs/tour.md", "docs/hpc.md", "docs/store.md"} <= set(RUNNABLE)


# Added to a command of a tour that does not ask for less itself: a size that only shows that it is true.
SMALL = {
    "collect": {"--episodes": 20, "--test-episodes": 5},
    "score": {"--updates": 30},
    "train-memory": {"--updates": 20},
    "train-baseline": {"--updates": 10},
    "train-agent": {"--steps": 1000},
}


def made_small(words: list[str]) -> list[str]:
    given = {word: int(value) for word, value in itertools.pairwise(words) if word[:2] == "--" and value.isdigit()}
    smaller = {name: size for name, size in SMALL.get(words[0], {}).items() if size < given.get(name, size + 1)}
    return [*words, *(str(word) for pair in smaller.items() for word in pair)]


@pytest.mark.parametrize("page", TOURS)
def test_every_command_of_a_tour_runs(memup, page):
    """In the order in which they stand there."""
    commands = [line for language, block in blocks(page) for line in block.splitlines() if language == "sh"]
    assert all(line.startswith("memup ") for line in commands), commands
    for line in commands:
        memup(*made_small(shlex.split(line)[1:]))
    assert len(list((memup.folder / "runs").iterdir())) == TOURS[page]
    assert "--steps 1000" in " ".join(made_small(shlex.split("train-agent --steps 600000")))
    assert made_small(["score", "--updates", "3"]) == ["score", "--updates", "3"]


@pytest.fixture
def doors(memup):
    """The file of the README's first page, where it says."""
    page = (ROOT / "README.md").read_text()
    (memup.folder / "doors.py").write_text(re.search(r"^```py\n(.*?)^```", page, re.M | re.S)[1])


def shown(page: str) -> list[list[str]]:
    """The words of the commands that a page only shows, without `memup`."""
    return [shlex.split(line) for line in re.findall(r"^\$ memup (.*)", page, re.M)]


def test_an_environment_of_one_s_own_goes_all_the_way(memup, doors):
    """The file and the commands of the README's first page."""
    commands = shown((ROOT / "README.md").read_text().split("### Your own arrays")[0])
    assert [words[0] for words in commands] == [
        "collect",
        "score",
        "train-memory",
        "evaluate",
        "train-agent",
        "evaluate",
    ]
    for words in commands:
        memup(*made_small(words))


def test_the_page_about_environments_of_one_s_own_is_true(memup, doors):
    commands = shown((ROOT / "docs/own-environment.md").read_text())
    assert len(commands) == 8
    for words in commands:
        memup(*made_small(words))
    assert (memup.folder / "runs/doors/report.html").exists()


def test_the_page_about_data_of_one_s_own_is_true(memup):
    page = (ROOT / "docs/own-data.md").read_text()
    file, program = re.search(r"^\$ python (.*)", page, re.M)[1], re.search(r"^```py\n(.*?)^```", page, re.M | re.S)[1]
    (memup.folder / file).write_text(program)
    subprocess.run([sys.executable, file], cwd=memup.folder, check=True)
    commands = shown(page)
    assert len(commands) == 6
    for words in commands:
        memup(*made_small(words))
    assert (memup.folder / "runs/machines/report.html").exists()


def test_arrays_of_one_s_own_go_as_far(memup):
    """As that page says, and as docs/interchange.md does."""
    rng = np.random.default_rng(0)
    np.save(memup.folder / "X.npy", rng.normal(size=(60, 12, 3)).astype(np.float32))
    np.save(memup.folder / "y.npy", np.arange(60) % 4)
    (command,) = re.findall(r"^\$ memup (import arrays .*)", (ROOT / "README.md").read_text(), re.M)
    for line in (command, "score --run runs/mine", "train-memory --run runs/mine", "evaluate memory --run runs/mine"):
        memup(*made_small(line.split()))


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.learning if page in TOURS else ()) for page in RUNNABLE]
)
def test_every_example_runs(tmp_path, page):
    """In the order in which they stand there; a block of plain text that starts with `$ ` is only shown."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = environment({"PATH": path})
    for language, block in blocks(page):
        command = ["bash", "-euc", block] if language == "sh" else [sys.executable, "-c", block]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stderr}"


def test_every_make_target_exists():
    text = "\n".join((ROOT / page).read_text() for page in PAGES)
    wanted = set(re.findall(r"^make ([\w-]+)", text, re.M)) | set(re.findall(r"`make ([\w-]+)", text))
    assert {"demo", "test", "docs"} <= wanted
    defined = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert wanted <= defined


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert target.startswith("https://") or (ROOT / page).parent.joinpath(target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_every_command_shown_exists(page):
    """`memup ...` in the text and in blocks that are only shown: the commands and their options are real."""
    known = generate.generated()
    titles = set(re.findall(r"^### (memup [\w-]+(?: [\w-]+)?)$", known, re.M))
    flags = set(re.findall(r"`(--[\w-]+)", known)) | {"--help", "--version", "--install-completion"}
    for shown in re.findall(r"(?:^\$ |`)(memup [^`\n]*)", (ROOT / page).read_text(), re.M):
        words = shown.split()
        if not words[1].startswith("-") and words[1].islower():
            assert " ".join(words[:2]) in titles, shown
        assert {word.split("=")[0] for word in words if word.startswith("--") and len(word) > 2} <= flags, shown


def test_the_list_of_options_is_that_of_the_program():
    page = generate.PAGE.read_text()
    assert generate.page(page) == page, "run `make docs`"
