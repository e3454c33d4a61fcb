"""Memory is predicted from short sequences, and what is free is read from the machine and its control groups."""

import pytest

from memup_cli.baselines.networks import Baseline
from memup_cli.baselines.room import predict_saved, saved_bytes
from memup_cli.limits import free_ram, usable_cores
from memup_cli.tasks.copying import Copy, CopyOptions
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions

SPECS = {"copy": Copy(CopyOptions(length=120)).spec, "tmaze": TMaze(TMazeOptions(length=100)).spec}


@pytest.mark.parametrize("task", SPECS)
@pytest.mark.parametrize(
    ("model", "layers"), [("lstm", 2), ("mingru", 2), ("srnn", 1), ("transformer", 2), ("gtrxl", 1)]
)
def test_the_prediction_is_near_what_a_longer_forward_pass_keeps(task, model, layers):
    baseline = Baseline(SPECS[task], model, 32, layers, 4, horizon=100)
    measured = saved_bytes(baseline, SPECS[task], 6, 1000)
    shared = 0.1 * (model == "gtrxl")  # distances, which do not grow with the batch
    assert predict_saved(baseline, SPECS[task], 6, 1000) == pytest.approx(measured, rel=0.25 + shared)


def lay(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


@pytest.fixture
def machine(tmp_path):
    lay(tmp_path / "proc", meminfo="MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    return tmp_path / "proc", tmp_path / "cgroup"


def test_without_control_groups_the_machine_decides(machine):
    assert free_ram(*machine) == 8000 * 1024


def test_the_narrowest_control_group_decides(machine):
    proc, cgroups = machine
    lay(proc / "self", cgroup="0::/job/step\n")
    lay(cgroups / "job", memory__max="5000\n", memory__current="3000\n", memory__stat="inactive_file 500\n")
    lay(cgroups / "job" / "step", memory__max="max\n", memory__current="1\n", memory__stat="inactive_file 0\n")
    assert free_ram(proc, cgroups) == 2500


def test_version_one_and_a_container_that_shows_only_the_root(machine):
    proc, cgroups = machine
    lay(proc / "self", cgroup="5:cpu:/\n4:memory:/docker/abc\n")
    files = {"memory__limit_in_bytes": "7000", "memory__usage_in_bytes": "6500"}
    lay(cgroups / "memory", **files, memory__stat="inactive_file 1\ntotal_inactive_file 100\n")
    assert free_ram(proc, cgroups) == 600


def test_cores_are_those_allowed_or_what_a_control_group_gives_time_for(machine):
    proc, cgroups = machine
    assert usable_cores(proc, cgroups, 8) == 8
    lay(proc / "self", cgroup="0::/job/step\n")
    lay(cgroups / "job", cpu__max="250000 100000\n")
    lay(cgroups / "job" / "step", cpu__max="max 100000\n")
    assert usable_cores(proc, cgroups, 8) == 3
    assert usable_cores(proc, cgroups, 2) == 2
    lay(proc / "self", cgroup="3:cpu,cpuacct:/job\n")
    lay(cgroups / "cpu,cpuacct" / "job", cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    assert usable_cores(proc, cgroups, 8) == 1
