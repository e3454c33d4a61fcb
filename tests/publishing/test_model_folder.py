"""Model folders: what they hold, that they load without the run, and what cannot become one or be read as one."""

import json
import re
import shutil

import gymnasium
import numpy as np
import pytest

import memup_cli
import memup_cli.envs
from memup_cli.agents.published import read_memory
from memup_cli.errors import UsageProblem
from stores.errors import DamagedData
from tests.cli import files_of
from tests.publishing.conftest import evaluated

EXPORT = ("export", "hub", "--run", "run", "model")


@pytest.fixture
def model(memup, trained):
    """The folder, its files links as in the cache of a hub client, and the run gone."""
    memup(*EXPORT)
    (memup.folder / "model").rename(memup.folder / "blobs")
    (memup.folder / "model").mkdir()
    for file in (memup.folder / "blobs").iterdir():
        (memup.folder / "model" / file.name).symlink_to(file)
    trained.rename(memup.folder / "moved")
    return memup.folder / "model"


def test_the_memory_and_the_agent_are_those_of_the_run(memup, model):
    ours, theirs = (memup_cli.load_memory(folder) for folder in (memup.folder / "moved", model))
    seen = np.array([[0, 1, 0], [1, 0, 0]], np.int8)
    for memory in (ours, theirs):
        memory.result = memory.step(seen, None, memory.initial(2))[0]
    np.testing.assert_array_equal(ours.result, theirs.result)
    agents = [memup_cli.load_agent(folder) for folder in (memup.folder / "moved", model)]
    env = gymnasium.make("memup/TMaze-v0", length=40)
    observation, _ = env.reset(seed=0)
    for agent in agents:
        agent.begin(seed=3)
    for _ in range(20):
        first, second = (agent.act(observation) for agent in agents)
        assert first == second
        observation, *_ = env.step(first)


def test_the_page_tells_what_it_is(memup, trained):
    found = memup(*EXPORT, "--json").json
    assert found["agents"] == ["ppo"]
    assert set(found["files"]) == {"README.md", "config.json", "model.safetensors", "ppo.safetensors"}
    page = (memup.folder / "model" / "README.md").read_text()
    assert page.startswith("---\nlibrary_name: memup\n")
    assert "license" not in page.split("---")[1]
    assert "memup train-memory --updates 120 --hidden 16 --run runs/run\n" in page
    figures = evaluated(trained)
    assert f"| memory rmse | {figures['evaluate/rmse']:.4g} |" in page
    assert f"to {figures['evaluate/interval_high']:.4g} |" in page
    code = re.search(r"```python\n(.*?)```", page, re.S)[1].replace("FOLDER", str(memup.folder / "model"))
    rows = np.zeros((3, 3), np.int8)
    exec(code, {"observations": rows, "observation": rows[0]})


def test_a_task_without_an_environment_has_a_folder_and_code_of_its_own(memup):
    memup("collect", "add", "--length", 20, "--episodes", 30, "--test-episodes", 5, "--run", "run")
    memup("train-memory", "--run", "run", "--updates", 4, "--select", "uniform")
    found = memup(*EXPORT, "--json").json
    assert any("not evaluated" in problem for problem in found["problems"])
    page = (memup.folder / "model" / "README.md").read_text()
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1].replace("FOLDER", str(memup.folder / "model")), {})


def test_words_of_a_run_cannot_break_the_page(memup, trained):
    trained.rename(memup.folder / "a](x) `b`")
    memup("export", "hub", "--run", "a](x) `b`", "model")
    page = (memup.folder / "model" / "README.md").read_text()
    assert "# a\\](x) \\`b\\`" in page
    assert page.count("```") == 4


def test_an_agent_on_other_weights_is_left_out(memup, trained):
    memup("train-memory", "--run", "run", "--updates", 60, "--hidden", 8, "--restart")
    found = memup(*EXPORT, "--json").json
    assert found["agents"] == []
    assert any("ppo is left out" in problem for problem in found["problems"])


def test_what_is_in_the_way_is_left_alone(memup, trained):
    (memup.folder / "model").mkdir()
    memup(*EXPORT)
    before = files_of(memup.folder / "model")
    assert "exists" in memup(*EXPORT, code=2).err
    assert files_of(memup.folder / "model") == before


@pytest.mark.parametrize("at", [".model.partial/*", "model"])
def test_an_export_that_was_killed_leaves_nothing_that_looks_whole(memup, trained, at):
    memup.killed(*EXPORT, at=at)
    assert not (memup.folder / "model").exists() or at == "model"
    if not (memup.folder / "model").exists():
        memup(*EXPORT)
    read_memory(memup.folder / "model")
    assert not (memup.folder / ".model.partial").exists()


def test_what_cannot_be_exported_is_said(memup, scored):
    assert "not a run" in memup("export", "hub", "--run", "none", "model", code=3).err
    shutil.copytree(scored, memup.folder / "run")
    assert "memup train-memory" in memup(*EXPORT, code=3).err
    assert [path.name for path in memup.folder.iterdir()] == ["run"]


CHANGES = [
    lambda about: about.pop("memup"),
    lambda about: about["memory"].pop("digest"),
    lambda about: about["memory"]["config"].update(cell="none such"),
    lambda about: about["memory"]["config"].update(hidden=32),
    lambda about: about["memup"].update(format=99),
    lambda about: about["task"].update(spec=[]),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_a_folder_that_was_changed_is_refused(memup, trained, number):
    memup(*EXPORT)
    path = memup.folder / "model" / "config.json"
    about = json.loads(path.read_text())
    CHANGES[number](about)
    path.write_text(json.dumps(about))
    with pytest.raises((DamagedData, UsageProblem)):  # the latter: a cell that no installed package has
        memup_cli.load_memory(memup.folder / "model")


def test_weights_that_were_changed_are_refused(memup, trained):
    memup(*EXPORT)
    for name, load in (("ppo", memup_cli.load_agent), ("model", memup_cli.load_memory)):
        path = memup.folder / "model" / f"{name}.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        with pytest.raises(DamagedData, match="download it again"):
            load(memup.folder / "model")
