"""memup report through the command line, and its page in a real browser."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from memup_cli.evaluation.timeline import BUCKETS, Track, prediction_points
from memup_cli.reports.seeds import combine
from stores.manifest import Manifest
from tests.browser import Browser, needs_browser
from tests.cli import COLLECT_MAZE, Memup, files_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory, scored) -> Path:
    """A T-Maze-40 with a memory, an agent and their evaluations; trained only as far as a picture needs."""
    memup = Memup(tmp_path_factory.mktemp("finished"))
    shutil.copytree(scored, memup.folder / "run")
    memup("train-memory", "--run", "run", "--rollout", 5, "--updates", 150, "--evaluate-every", 50)
    memup("evaluate", "memory", "--run", "run")
    memup("train-agent", "--run", "run", "--steps", 3000, "--iteration-steps", 500, "--envs", 8)
    memup("evaluate", "agent", "--run", "run", "--episodes", 10)
    return memup.folder / "run"


@pytest.fixture
def run(memup, finished) -> Path:
    shutil.copytree(finished, memup.folder / "run")
    return memup.folder / "run"


def edit(run: Path, change) -> None:
    """Change a manifest as memup itself would, so that its checksum is right."""
    manifest = Manifest.load(run)
    change(manifest)
    manifest.save()


def another_seed(run: Path, name: str, seed: int) -> Path:
    copy = run.with_name(name)
    shutil.copytree(run, copy)

    def change(manifest: Manifest) -> None:
        for stage in manifest.stages.values():
            stage["config"]["seed"] = seed

    edit(copy, change)
    log = copy / "logs/train-memory/metrics.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(r | ({"loss": 3 * r["loss"]} if "loss" in r else {})) + "\n" for r in rows))
    return copy


def test_the_timeline_shows_that_every_step_aims_at_the_junction(finished):
    found = json.loads((finished / "evaluation/timeline.json").read_text())
    assert (found["kind"], found["select"], found["targets"]) == ("return", "surprise", 1)
    assert len(found["episodes"]) == 3
    for episode in found["episodes"]:
        junction = episode["length"] - 1
        assert episode["matters"]["step"] == [junction]
        assert episode["points"]["t"] == list(range(episode["length"]))
        assert {k for row in episode["points"]["targets"] for k in row} == {junction}
        assert abs(episode["points"]["y"][0][0]) >= 3
        score, memory = (episode["tracks"][name]["low"] for name in ("score", "memory"))
        assert int(np.argmax(score)) == junction
        assert len(memory) == episode["length"]
        assert memory[0] > 0
        # what the last state says of the last step is one number, however it was asked
        assert episode["points"]["prediction"][-1] == pytest.approx(episode["matters"]["prediction"], rel=1e-3)
        assert episode["tracks"]["prediction"]["low"][-1] == episode["matters"]["prediction"][0]


def test_a_million_steps_take_the_room_of_a_thousand():
    values = np.zeros(1_000_000)
    values[[123_456, 999_999]] = -2, 5
    track = Track(len(values))
    for start in range(0, len(values), 4096):
        track.add(start, values[start : start + 4096])
    assert len(track.low) <= BUCKETS
    assert (track.low.min(), track.high.max()) == (-2, 5)
    assert int(track.low.argmin()) == 123_456 // track.bucket
    points = prediction_points(len(values))
    assert {0, 1, 999_998, 999_999} <= set(points.tolist())
    assert len(points) < 250


def test_the_formats_hold_the_same_figures(memup, run):
    shown = memup("report", "run", "--json").json
    assert shown["report"] == "run/report.html"
    assert shown["bytes"] == (run / "report.html").stat().st_size < 1_000_000
    assert shown["missing"] == []
    memup("report", "run", "--format", "json")
    data = json.loads((run / "report.json").read_text())["runs"][0]
    measured = json.loads((run / "evaluation/memory.json").read_text())
    rmse = measured["rmse"]
    first, figure = data["figures"][:2]
    assert (first["label"], first["value"]) == ("explained", measured["explained"])
    assert first["interval"] == measured["explained_interval"]
    assert (figure["label"], figure["value"], figure["asked"]) == ("memory rmse", rmse, None)
    assert f"without a memory {measured['memoryless']['rmse']:.4g}" in figure["note"]
    assert f"the best constant {measured['constant']['rmse']:.4g}" in figure["note"]
    assert {f["label"] for f in data["figures"]} == {"explained", "memory rmse", "ppo success", "ppo return"}
    assert [stage["status"] for stage in data["stages"]] == ["complete"] * 6
    assert {"loss", "validation_rmse", "validation_explained"} <= set(data["curves"]["train-memory"]["series"])
    assert data["curves"]["train-agent/ppo"]["axis"] == "steps"
    text = memup("report", "--run", "run", "--format", "md", "--output", "-").out
    assert f"| memory rmse | {rmse:.4g} |" in text
    lengths = re.findall(r"^\| (\d+)(?:-(\d+))? \| \d+ \|", text.split("### Error by dependency length")[1], re.M)
    ends = [int(end or row[0]) for row in lengths for end in row]
    assert len(lengths) > 2
    assert ends == sorted(ends)
    assert all(before < after for before, after in zip(ends[1::2], ends[2::2], strict=False))  # ranges share no step
    page = (run / "report.html").read_text()
    assert "src=" not in page.split('id="data"')[0]
    assert "@import" not in page
    assert page.replace("http://www.w3.org/2000/svg", "").count("http://") == 0


def test_an_unfinished_run_says_what_to_do_next(memup):
    memup(*COLLECT_MAZE)
    shown = memup("report", "run", "--json").json
    commands = [hint["command"] for hint in shown["missing"]]
    assert commands == ["memup score --run run", "memup train-memory --run run"]
    (memup.folder / "run/evaluation").mkdir()
    (memup.folder / "run/evaluation/memory.json").write_text("{")
    (memup.folder / "run/play.png").write_bytes(b"no picture")
    problems = memup("report", "run", "--json").json["problems"]
    assert ["memory.json" in problems[0], "play.png" in problems[1]] == [True, True]


def test_an_interrupted_stage_is_continued_with_its_own_options(memup, run):
    options = {"train-memory": "--rollout 7 --lr 0.002", "train-agent/ppo": "--steps 4000"}

    def change(manifest: Manifest) -> None:
        for stage, given in options.items():
            entry = manifest.stages[stage]
            entry["status"] = "interrupted"
            entry["attempt"]["command"] = f"memup {stage.partition('/')[0]} --run elsewhere {given} --restart"

    edit(run, change)
    shown = memup("report", "run").out
    assert f"train-memory is interrupted. Run: memup train-memory {options['train-memory']} --run run\n" in shown
    assert "train-agent/ppo is interrupted. Run: memup train-agent --steps 4000 --run run" in shown
    edit(run, lambda manifest: manifest.stages["train-agent/ppo"]["attempt"].pop("command"))
    assert "Run: memup train-agent --agent ppo --run run" in memup("report", "run").out


def test_wrong_calls_are_explained(memup):
    assert "memup collect" in memup("report", code=3).err
    assert "nowhere is not a run" in memup("report", "nowhere", code=3).err
    memup(*COLLECT_MAZE)
    assert "--output" in memup("report", "run", "--output", "nowhere/report.html", code=2).err
    manifest = memup.folder / "run/manifest.json"
    manifest.write_text(manifest.read_text().replace("tmaze", "tmoze"))
    assert "checksum" in memup("report", "run", code=65).err


def test_what_was_deleted_or_garbled_is_named(memup, run):
    (run / "evaluation/timeline.json").unlink()
    shutil.rmtree(run / "logs/train-memory")
    with (run / "logs/train-agent-ppo/metrics.jsonl").open("a") as log:
        log.write('garbled\n{"update": \n{"update": 9, "st')
    shown = memup("report", "run", "--json").json
    assert [hint["what"] for hint in shown["missing"]] == [
        "No timeline: evaluation/timeline.json is missing or unusable."
    ]
    assert shown["problems"] == [
        "run: train-memory: there are no curves: logs/train-memory is missing",
        "run: 2 lines of logs/train-agent-ppo/metrics.jsonl could not be read",
    ]
    edit(run, lambda manifest: manifest.stages["evaluate"]["config"].update(timelines=0))
    assert "No timeline: the evaluation drew none." in memup("report", "run").out


def test_a_report_replaces_no_file_of_a_run(memup):
    memup(*COLLECT_MAZE)
    shutil.copytree(memup.folder / "run", memup.folder / "other")
    (memup.folder / "run/notes.md").write_text("mine")
    before = files_of(memup.folder)
    for place in ("run/manifest.json", "other/manifest.json", "run/trajectories/report.html", "run/notes.md"):
        assert f"--output {place}" in memup("report", "run", "--format", "json", "--output", place, code=2).err
    assert files_of(memup.folder) == before
    for ending in ("html", "md", "json"):  # a report replaces a report
        memup("report", "run", "--format", ending, "--output", "run/second.txt")


def test_seeds_become_a_mean_with_a_band(memup, run):
    another_seed(run, "second", 1)
    third = another_seed(run, "third", 2)
    edit(third, lambda manifest: manifest.stages["train-memory"]["config"].update(lr=0.5))
    memup("report", "run", "second", "third", "--format", "json")
    data = json.loads((memup.folder / "report.json").read_text())
    groups = data["groups"]["train-memory"]
    assert [group["runs"] for group in groups] == [[0, 1], [2]]
    assert groups[0]["label"] == "lr 0.001 (2 seeds)"
    loss = groups[0]["series"]["loss"]
    alone = data["runs"][0]["curves"]["train-memory"]["series"]["loss"]
    assert loss["mean"] == pytest.approx([2 * value for value in alone["y"]])
    assert loss["high"] == pytest.approx([max(value, 3 * value) for value in alone["y"]])


def test_curves_of_different_length_are_combined_where_they_are():
    found = combine([{"x": [0, 10], "y": [0.0, 10.0]}, {"x": [0, 5, 20], "y": [2.0, 7.0, 22.0]}])
    assert found["x"] == [0, 5, 10, 20]
    assert found["mean"] == [1, 6, 11, 22]
    assert found["count"] == [2, 2, 2, 1]


@needs_browser
def test_the_page_draws_and_answers(memup, run):
    Image.new("RGB", (2400, 300), "teal").save(run / "play.png")
    memup("report", "run")
    with Browser() as browser:
        browser.open(run / "report.html")
        assert browser.run("document.documentElement.dataset.ready") == "yes"
        assert browser.run("document.querySelectorAll('.stages details').length") == 6
        assert browser.run("document.querySelectorAll('svg .curve').length") >= 4
        assert browser.run("document.querySelector('.film img').naturalWidth") == 1280

        browser.hover(".timeline svg", 0.3)
        early = browser.run("document.querySelector('.reading .t').textContent")
        browser.hover(".timeline svg", 0.6)
        assert browser.run("document.querySelector('.reading .t').textContent") != early
        assert browser.run("document.querySelectorAll('.timeline .arc').length") == 1
        browser.run("(() => { const s = document.querySelector('input[type=range]'); s.value = 2; "
                    "s.dispatchEvent(new Event('input')); })()")  # fmt: skip
        assert browser.run("document.querySelector('.reading .t').textContent") == "t = 2"
        assert browser.run("document.querySelector('.reading div').textContent").startswith("t = 2: 1 target")
        assert "nothing has asked the predictor" in browser.run("document.querySelector('.aside').textContent")
        for value in (0, 20, 39):  # the thumb, 16 pixels wide, is below the cursor
            apart = browser.run(
                f"(() => {{ const s = document.querySelector('input[type=range]'); s.value = {value}; "
                "s.dispatchEvent(new Event('input')); const b = s.getBoundingClientRect(); "
                "const thumb = b.left + 8 + (s.value / s.max) * (b.width - 16); "
                "const at = document.querySelector('.timeline .cursor').getBoundingClientRect(); "
                "return thumb - (at.left + at.right) / 2; })()"
            )
            assert abs(apart) < 1.5

        read = "document.querySelector('.chart .legend').textContent"
        assert "at the last update" in browser.run(read)
        legends = browser.run("[...document.querySelectorAll('.chart .legend')].map((l) => l.textContent)")
        assert any("at the last step, mean of that iteration" in legend for legend in legends)
        assert "mean of the last 200 training episodes" in browser.run("document.querySelector('.stages').textContent")
        browser.hover(".chart svg", 0.2)
        assert "at update" in browser.run(read)
        pressed = "document.querySelector('.chart .log').getAttribute('aria-pressed')"
        before = browser.run(pressed)
        browser.run("document.querySelector('.chart .log').click()")
        assert browser.run(pressed) != before

        paper = "getComputedStyle(document.body).backgroundColor"
        browser.prefer("light")
        light = browser.run(paper)
        browser.prefer("dark")
        assert browser.run(paper) != light
        browser.run("document.querySelector('.theme').click()")
        assert browser.run(paper) == light

        browser.resize(375, 800)
        browser.frame()
        assert browser.run("document.documentElement.scrollWidth") == 375
        assert browser.errors == []


@needs_browser
def test_several_runs_can_be_sorted_and_chosen(memup, run):
    another_seed(run, "second", 1)
    memup("report", "run", "second")
    with Browser(375) as browser:
        browser.open(memup.folder / "report.html")
        assert browser.run("document.documentElement.scrollWidth") == 375
        assert browser.run("document.querySelectorAll('svg .band').length") >= 1
        names = "[...document.querySelectorAll('tbody')][0].innerText.match(/run$|second$/gm)[0]"
        browser.run("document.querySelectorAll('th button')[0].click()")
        first = browser.run(names)
        browser.run("document.querySelectorAll('th button')[0].click()")
        assert {first, browser.run(names)} == {"run", "second"}
        for way, wanted in (("up", "run"), ("down", "second")):
            browser.run(f"(() => {{ const s = document.querySelector('.sort'); s.value = '0 {way}'; "
                        "s.dispatchEvent(new Event('change')); })()")  # fmt: skip
            assert browser.run(names) == wanted
        browser.resize(500, 800)
        browser.frame()
        heads = "getComputedStyle(document.querySelector('thead')).display"
        assert browser.run(heads) == "none"  # every row says what its values are
        assert browser.run("document.querySelector('.lengths .count').getBoundingClientRect().width") > 0
        browser.resize(1100, 800)
        browser.frame()
        assert browser.run(heads) == "table-header-group"
        browser.run("(() => { const s = document.querySelector('#run'); s.value = 1; "
                    "s.dispatchEvent(new Event('change')); })()")  # fmt: skip
        assert browser.run("document.querySelectorAll('#detail .stages details').length") == 6
        assert browser.errors == []


@needs_browser
def test_texts_of_a_run_stay_texts(memup, run):
    """Names from a manifest somebody else made must not become markup or script."""
    bad = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"

    def change(manifest: Manifest) -> None:
        manifest.task["name"] = bad
        manifest.stages["collect"]["attempt"]["host"] = bad
        manifest.stages["train-memory"]["attempt"]["command"] = bad
        manifest.stages["train-memory"]["config"][bad] = bad

    edit(run, change)
    folder = memup.folder / "<b onclick=x>&amp;"
    run.rename(folder)
    memup("report", folder)
    page = (folder / "report.html").read_text()
    assert page.count("</script>") == 2
    assert "<img" not in page
    with Browser() as browser:
        browser.open(folder / "report.html")
        assert browser.run("document.querySelector('h1').textContent") == folder.name
        assert bad in browser.run("document.body.textContent")
        assert browser.run("window.hacked === undefined && !document.querySelector('main img, main b[onclick]')")
        assert browser.errors == []
    text = memup("report", folder, "--format", "md", "--output", "-").out
    outside = re.sub(r"`[^`\n]*`", "", text)  # in a code span, markup is text
    assert "<script" not in outside
    assert "<b " not in outside
