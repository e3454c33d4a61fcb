"""What a first user ran into: each of these was a defect once."""

import json
import os
import signal
import subprocess
import sys

import pytest

from stores.manifest import Manifest
from tests.cli import assert_same_episodes, episodes, files_of
from tests.faults.test_collect import FIRST_COMMIT, LONG
from tests.processes import COMMAND, environment

SMALL = ["collect", "copy", "--episodes", 12, "--test-episodes", 2, "--run", "run"]


def test_restart_does_not_touch_a_run_that_somebody_writes(memup):
    process = memup.held(*LONG, **FIRST_COMMIT)
    before = files_of(memup.folder / "run" / "trajectories")
    assert f"process {process.pid}" in memup(*SMALL, "--restart", code=75).err
    assert files_of(memup.folder / "run" / "trajectories") == before
    done = process.resume()
    assert done.code == 0, done.err


def test_a_part_restarted_with_other_options_takes_the_others_along(memup):
    parts = ["--shard", "0/2"], ["--shard", "1/2"]
    for part in parts:
        memup(*SMALL, *part)
    memup(*SMALL, *parts[1], "--seed", 5, "--restart")
    shown = memup("status", "--run", "run").out
    assert "train/0000.zarr (shard 0/2): from another configuration" in shown
    memup("collect", "--run", "run", *parts[0])
    memup(*SMALL[:-1], "whole", "--seed", 5)
    assert_same_episodes(episodes(memup.folder / "run", shards=2), episodes(memup.folder / "whole"))


def test_the_run_folder_may_be_a_link_to_another_disk(memup):
    (memup.folder / "scratch").mkdir()
    (memup.folder / "run").symlink_to("scratch")
    memup(*SMALL)
    memup("verify", "--run", "run")
    assert "up to date" in memup(*SMALL).out
    assert len(episodes(memup.folder / "scratch")) == 12


def test_a_shard_that_vanished_is_damage(memup):
    memup(*SMALL)
    subprocess.run(["rm", "-r", memup.folder / "run" / "trajectories" / "test"], check=True)
    found = memup("verify", "--run", "run", "--json", code=65).json
    assert [d["problem"] for d in found["damaged"]] == ["the shard is gone"]
    memup("verify", "--run", "run", "--repair")
    memup("collect", "--run", "run")
    memup("verify", "--run", "run")


def test_a_killed_run_is_not_called_running(memup):
    process = memup.held(*LONG, **FIRST_COMMIT)
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["status"] == "running"
    process.kill()
    assert memup("status", "--run", "run", "--json").json["stages"]["collect"]["status"] == "interrupted"


def test_a_dry_run_says_what_would_happen_to_a_run_that_exists(memup):
    assert memup(*SMALL, "--dry-run", "--json").json["state"] == "new"
    memup(*SMALL)
    assert memup(*SMALL, "--dry-run", "--json").json["state"] == "up to date"
    assert "discard" in memup(*SMALL, "--dry-run", "--restart").out
    memup(*SMALL, "--dry-run", "--seed", 3, code=2)


@pytest.mark.parametrize(
    "text",
    [
        "[[collect]]\n",
        "[colect]\nseed = 1\n",
        "[collect]\nepsiodes = 7\n",
        "episodes = 7\n",
        "[collect]\nepisodes = true\n",
    ],
)
def test_mistakes_in_a_config_file_are_refused(memup, text):
    (memup.folder / "options.toml").write_text(text)
    assert "options.toml" in memup(*SMALL, "--config", "options.toml", code=2).err
    assert not (memup.folder / "run").exists()


@pytest.mark.parametrize(
    ("shell", "code"), [("memup status >&-", 3), ("memup --help | true", 0), ("memup; true", 0), ("memup", 2)]
)
def test_odd_shells_see_no_traceback(memup, shell, code):
    command = shell.replace("memup", " ".join(COMMAND), 1)
    done = subprocess.run(
        ["bash", "-c", command], cwd=memup.folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert done.stderr.strip() != "memup:"


def test_a_table_that_nobody_reads_ends_the_command_as_any_other(memup):
    memup(*SMALL)
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "status", "--run", memup.folder / "run"]
    done = subprocess.run(command, env=environment(), stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_an_impatient_ctrl_c_is_no_traceback(memup):
    interrupt = "class Stop(dict):\n def __getattr__(self, n): raise KeyboardInterrupt\n"
    program = (
        f"import sys\n{interrupt}sys.modules['memup_cli.app'] = Stop()\nfrom memup_cli.__main__ import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "memup: stopped; to go on, run the same command again\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_a_signal_before_there_is_anything_to_save_says_run_again(number):
    arrives = f"class Early(dict):\n def __getattr__(self, n): signal.raise_signal({number:d})\n"
    instead = f"import signal, sys\n{arrives}sys.modules['memup_cli.app'] = Early()\n"
    program = f"{instead}from memup_cli.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 75
    assert done.stderr == "memup: stopped with nothing to save; run the same command again\n"


def test_suggested_commands_are_quoted(memup):
    memup(*SMALL[:-1], "with space")
    assert "memup inspect --run 'with space'" in memup(*SMALL[:-1], "with space", "--restart").out


def test_an_unreadable_manifest_is_an_io_error(memup):
    memup(*SMALL)
    (memup.folder / "run" / "manifest.json").unlink()
    (memup.folder / "run" / "manifest.json").mkdir()
    assert "manifest.json" in memup("status", "--run", "run", code=74).err
    assert json.loads((memup.folder / "run" / "manifest.previous.json").read_text())["generation"]


def test_a_stopped_agent_keeps_its_start_and_names_what_variables_gave(memup):
    memup("collect", "tmaze", "--length", 3, "--episodes", 4, "--test-episodes", 1, "--run", "run")
    options = ["--agent", "ppo-lstm", "--steps", 10_000_000, "--iteration-steps", 50, "--envs", 4, "--rollout", 4]
    given = {
        "MEMUP_RUN": "run",
        "MEMUP_SEED": "3",
        "MEMUP_TRAIN_AGENT_STEPS": "7",
        "MEMUP_QUIET": "1",
        "MEMUP_JSON": "0",
    }
    command = ["train-agent", *options, "--checkpoint-every", 0, "--restart"]
    process = memup.held(*command, env=given, at="run/agent/ppo-lstm/checkpoint-*.pt", nth=3)
    started = Manifest.load(memup.folder / "run").stages["train-agent/ppo-lstm"]["started"]
    done = process.interrupt()
    assert done.code == 75
    entry = Manifest.load(memup.folder / "run").stages["train-agent/ppo-lstm"]
    assert entry["started"] == started <= entry["finished"]
    words = " ".join(["memup", "train-agent", *map(str, options), "--checkpoint-every", "0"])
    assert f"To continue: {words} --run run --seed 3 --quiet" in " ".join(done.err.split())
    assert entry["attempt"]["command"].endswith("--restart --run run --seed 3 --quiet")
