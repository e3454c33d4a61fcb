"""What a training is planned to do, and the races that decide what the data do not tell."""

import json
import re
import shutil
from dataclasses import replace

import pytest

from memup_cli.stages.memory.facts import Facts
from memup_cli.stages.memory.plan import Plan, settle
from tests.cli import Memup, files_of

ONE = Facts(
    1000,
    1000,
    1010,
    scored=True,
    separates=True,
    useful=False,
    events=1.0,
    alike=0.0,
    rare=True,
    begins=False,
    numbers=True,
    returns=True,
    images=False,
)


def values(facts: Facts, **given) -> dict:
    return {choice.option: choice.value for choice in settle(facts, given).choices}


def test_one_surprise_in_a_long_episode():
    plan = values(ONE)
    assert (plan["targets"], plan["rollout"], plan["replay"], plan["novelty_gates"]) == (1, 20, 0.5, True)
    assert (plan["rollout_sampling"], plan["stretch"]) == ("priority", 10), "a walk of a fifth of an episode"
    assert plan["spread"] == "learned"
    assert plan["explore"] == 0.1
    assert "explore" not in values(replace(ONE, returns=False)), "nobody acts on it"
    assert "starts" not in plan
    assert values(replace(ONE, begins=True))["starts"] == 0.25
    assert "lr" not in plan
    assert settle(ONE, {}).rivals == ()
    assert settle(replace(ONE, events=3.0), {}).rivals == ({"lr": 1e-2}, {"lr": 3e-3})


def test_what_the_past_explains_selects_where_a_probe_found_it():
    useful = replace(ONE, useful=True)
    assert values(useful)["select"] == "utility"
    assert "explore" not in values(useful), "that would draw noise"
    assert "select" not in values(useful, select="uniform")
    assert "select" not in values(useful, scores="online")
    assert "select" not in values(ONE)


@pytest.mark.parametrize(
    ("length", "steps"), [(400, None), (5000, 1000), (20_000, 1000), (10**6, 1000), (10**7, 10**4)]
)
def test_walks_grow_with_the_length_of_episodes(length, steps):
    plan = values(replace(ONE, usual_length=length))
    assert plan.get("stretch", 0) * plan["rollout"] == (steps or 0)
    assert ("rollout_sampling" in plan) == (steps is not None)


def test_several_surprises_are_targets_at_once_and_need_room():
    plan = values(replace(ONE, events=9.7, numbers=False))
    assert (plan["targets"], plan["hidden"], plan["predictor_hidden"], plan["lr"]) == (10, 128, 256, 3e-3)
    assert "spread" not in plan, "classes have none"
    assert values(replace(ONE, events=40.0))["targets"] == 10


def test_surprises_that_look_alike_race_for_what_tells_them_apart():
    alike = settle(replace(ONE, events=10.0, alike=0.9), {})
    assert [(r["context"], r["lr"]) for r in alike.rivals[1::3]] == [("window", 1e-2), ("totals", 3e-3)]
    assert [alike.rivals[0][name] for name in ("context", "near", "targets", "horizon")] == ["point", True, 1, 0.1]
    alike = replace(alike, rivals=tuple({n: v for n, v in r.items() if n != "lr"} for r in alike.rivals[::2]))
    assert [rival["near"] for rival in alike.undecided({"context": "point"})] == [True, False]
    assert [rival["context"] for rival in alike.undecided({"near": False})] == ["point", "window", "totals"]


def test_where_no_step_stands_out_the_current_one_races_with_near_and_far_ones():
    flat = settle(replace(ONE, separates=False, rare=False), {})
    assert [rival["select"] for rival in flat.rivals] == ["current", "surprise"]
    plan = {choice.option: choice.value for choice in flat.choices}
    assert (plan["near"], plan["rollout"], plan["predict_every"]) == (True, 20, 1)
    assert "replay" not in plan
    assert flat.undecided({"select": "current"}) == flat.undecided({"context": "window"}) == ()


def test_where_no_step_stands_out_a_rollout_is_no_longer_than_the_longest_episode():
    flat = replace(ONE, separates=False, rare=False)
    assert values(replace(flat, usual_length=7, longest=9))["rollout"] == 9
    assert values(flat)["rollout"] == 20


def test_without_stored_scores_only_the_length_and_the_inputs_count():
    plan = settle(replace(ONE, scored=False, separates=False, events=0.0), {})
    assert plan.rivals == ()
    options = {choice.option: choice.value for choice in plan.choices}
    assert (options["rollout"], options["replay"]) == (20, 0.5)
    assert not {"near", "targets", "explore"} & set(options)


def test_images_are_read_one_by_one():
    plan = settle(replace(ONE, images=True, alike=1.0), {})
    assert plan.rivals == ()
    assert {choice.option: choice.value for choice in plan.choices}["rollout"] == 1


def test_what_is_given_comes_first_and_counts_for_the_rest():
    plan = values(ONE, rollout=5, targets=3)
    assert "rollout" not in plan
    assert (plan["stretch"], plan["hidden"]) == (40, 128)
    assert settle(ONE, {}).options({"rollout": 5}).rollout == 5
    assert "stretch" not in values(ONE, context="carried")


def test_a_decided_plan_is_what_was_recorded():
    plan = settle(replace(ONE, events=10.0, alike=1.0), {})
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    decided = plan.decided(plan.rivals[3], "won")
    assert decided.undecided({}) == ()
    assert decided.options({}).context == "totals"


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    memup = Memup(tmp_path_factory.mktemp("scored"))
    memup("collect", "scattered-copy", "--length", 30, "--episodes", 60, "--test-episodes", 5, "--run", "run")
    memup("score", "--run", "run", "--updates", 100)
    return memup.folder / "run"


TRAIN = ["train-memory", "--run", "run", "--updates", 1500, "--batch", 4, "--hidden", 8, "--predictor-hidden", 8]
TRAIN += ["--evaluate-episodes", 5, "--targets", 2, "--rollout", 2, "--lr", 0.003]
TRAIN += ["--evaluate-every", 25, "--until", "accuracy>=1e-3"]  # at once: the race is what counts here


def recorded(memup: Memup) -> dict:
    return json.loads((memup.folder / "run/manifest.json").read_text())["stages"]["train-memory"]


def test_a_race_that_is_killed_goes_on_and_the_result_is_the_same(memup, scored):
    shutil.copytree(scored, memup.folder / "run")
    told = memup(*TRAIN).err
    assert told.count("plan: trying") == 5, "three rivals, and the better two of them once more"
    plan = recorded(memup)["plan"]
    assert plan["rivals"] == []
    assert [c["why"] for c in plan["choices"] if c["option"] == "context"] == [
        "the best of 3 in a short race on validation episodes"
    ]
    expected = (memup.folder / "run/memory/last.safetensors").read_bytes()
    (memup.folder / "run").rename(memup.folder / "whole")
    shutil.copytree(scored, memup.folder / "run")
    shutil.copytree(memup.folder / "whole/memoryless", memup.folder / "run/memoryless")  # not what this is about
    memup.killed(*TRAIN, at="run/rival-1/checkpoint-*.pt")
    assert recorded(memup)["plan"]["rivals"], "it was in time"
    again = memup(*TRAIN).err
    assert "--context point" not in again.split("plan: trying")[1], "the first rival is not trained again"
    assert (memup.folder / "run/memory/last.safetensors").read_bytes() == expected
    races = [(memup.folder / name / "memory/race.json").read_bytes() for name in ("run", "whole")]
    assert races[0] == races[1], "all losses are those after as many updates"
    assert not list((memup.folder / "run").glob("rival-*"))
    assert "up to date" in memup(*TRAIN).out


def test_who_explains_nearly_all_at_once_ends_the_race(memup, scored):
    shutil.copytree(scored, memup.folder / "run")
    memup(*TRAIN)
    path = memup.folder / "run/memory/race.json"
    found = json.loads(path.read_text())
    assert sorted(found["losses"].values())[0] > 0.5, "in parts of what guessing costs"
    path.write_text(json.dumps({**found, "losses": {"0 after 25": 0.7, "1 after 25": 0.09}}))
    assert "plan: trying" not in memup(*TRAIN, "--restart").err
    assert recorded(memup)["config"]["context"] == found["made_from"]["rivals"][1]["context"]


def test_a_race_on_other_episodes_is_run_again(memup, scored):
    """Also between the same rivals, of which nothing is known there."""
    shutil.copytree(scored, memup.folder / "run")
    memup(*TRAIN)
    path = memup.folder / "run/memory/race.json"
    before = json.loads(path.read_text())
    memup("collect", "--run", "run", "--episodes", 70)
    memup("score", "--run", "run", "--updates", 100, "--restart")
    assert memup(*TRAIN, "--restart").err.count("plan: trying") == 5
    after = json.loads(path.read_text())
    assert [after["made_from"][name] == before["made_from"][name] for name in ("config", "rivals")] == [True, True]
    assert after["losses"] != before["losses"]


def test_a_dry_run_is_a_file_that_plans_the_same_again(memup, scored):
    """Each choice with its reason; what a race would decide is told, and not in the file."""
    shutil.copytree(scored, memup.folder / "run")
    dry = ["train-memory", "--run", "run", "--dry-run"]
    told = memup(*dry, "--hidden", 32).out
    assert re.search(r"^rollout = 5 +# episodes have 30 steps in the median$", told, re.M)
    assert re.search(r"^hidden = 32 +# given$", told, re.M)
    assert "#   --context totals --no-near" in told
    (memup.folder / "plan.toml").write_text(told)
    again = [*dry, "--config", "plan.toml", "--json"]
    assert json.loads(memup(*again).out)["config"] == json.loads(memup(*dry, "--hidden", 32, "--json").out)["config"]
    assert "--hidden 9" not in told
    assert json.loads(memup(*again, "--hidden", 9).out)["config"]["hidden"] == 9, "what is given comes before the file"
    assert files_of(memup.folder / "run") == files_of(scored), "nothing was written"


def test_what_was_planned_and_raced_for_can_be_used_again(memup, scored):
    shutil.copytree(scored, memup.folder / "run")
    memup(*TRAIN)
    expected = recorded(memup)["config"]
    plan = memup(*TRAIN, "--dry-run").out
    assert "up to date" in plan
    assert "#   --" not in plan, "it is decided"
    (memup.folder / "plan.toml").write_text(plan)
    shutil.copytree(scored, memup.folder / "other")
    again = memup("train-memory", "--run", "other", "--config", "plan.toml", "--dry-run", "--json").out
    assert json.loads(again)["config"] == expected


@pytest.mark.parametrize(
    ("given", "option", "because"),
    [
        (["--stretch", 5], "--stretch", "every rollout is trained"),
        (["--cell", "none", "--hidden", 32], "--hidden", "--cell none has no state"),
        (["--select", "current", "--targets", 3], "--targets", "--select current"),
        (["--select", "uniform", "--temperature", 0.1], "--temperature", "--select uniform"),
        (["--context", "point", "--window", 5], "--window", "--context point"),
        (["--dropout", 0.1], "--dropout", "there is one"),
        (["--gamma", 0.5], "--gamma", "no returns"),
    ],
)
def test_options_without_effect_are_refused(memup, scored, given, option, because):
    failed = memup("train-memory", "--run", scored, "--dry-run", *given, code=2).err
    assert f"{option} has no effect here: " in failed
    assert because in failed


def test_options_that_only_one_of_the_rivals_takes_are_accepted(memup, scored):
    found = memup("train-memory", "--run", scored, "--dry-run", "--window", 5, "--json").json
    assert found["config"]["window"] == 5
