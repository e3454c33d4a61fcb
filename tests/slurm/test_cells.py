"""An experiment as a job array: a cell that is warned goes back into the queue, and the figure comes after all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import environment

from .cluster import until
from .test_chain import frozen, manifest, process_of

pytestmark = pytest.mark.slurm

SCRIPT = Path(__file__).parents[2] / "examples" / "experiments" / "ablation.sh"


def test_a_cell_that_is_warned_continues_and_the_figure_follows(cluster, tmp_path):
    path = os.pathsep.join([str(Path(sys.executable).parent), cluster.env["PATH"]])
    # A memory that is never right about more than the current step, so that it does not end before it is warned.
    own = {"SELECTIONS": "current", "SEEDS": "0 1", "UPDATES": "2000", "PARTITION": "test", "OUT": "out"}
    env = environment({**cluster.env, "PATH": path, **own})
    call = ["bash", SCRIPT, "--tiny"]
    done = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, check=True, timeout=60)
    array, figure = re.findall(r"job (\d+)", done.stdout)
    refused = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 2
    assert f"scancel {array} {figure}" in refused.stderr

    task, run = f"{array}_1", tmp_path / "out" / "tmaze-20-r5-current-seed1"
    until((run / "logs" / "train-memory" / "metrics.jsonl").exists, "the first updates of cell 1")
    with frozen(process_of(cluster, task)):
        cluster.cancel(task, "--signal=USR2")
    until(lambda: cluster.ended(figure), "the figure")
    log = (tmp_path / "out" / "logs" / "1.log").read_text()
    assert "Back into the queue" in log
    assert "attempt 2" in log
    assert "train-memory: resuming at update" in log
    assert manifest(run)["stages"]["train-memory"]["progress"]["done"] == 2000
    assert {cluster.state(job) for job in (f"{array}_0", task, figure)} == {"COMPLETED"}
    assert "(0 of 2; 2,000)" in (tmp_path / "out" / "table.md").read_text()
    assert (tmp_path / "out" / "figure.png").exists()
