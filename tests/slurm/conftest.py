"""Fixtures: the cluster, the chain of examples/slurm on it, and the same commands without Slurm to compare with."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli import Memup
from tests.processes import environment

from .cluster import PACKAGES, Cluster, missing_programs, running_cluster

SUBMIT = Path(__file__).parents[2] / "examples" / "slurm" / "submit.sh"
SHARDS = 3
OPTIONS = {
    "COLLECT": "--episodes 300 --test-episodes 30",
    "SCORE": "--updates 100",
    "TRAIN_MEMORY": "--rollout 10 --batch 16 --updates 120 --evaluate-every 60 --checkpoint-every 20",
    "TRAIN_AGENT": "--envs 8 --steps 3000 --iteration-steps 1000 --checkpoint-every 0.1",
    "EVALUATE": "--episodes 20",
}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    if missing := missing_programs():
        pytest.fail(f"there is no {', '.join(missing)}; `make test-slurm` installs {PACKAGES}", pytrace=False)
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@dataclass(frozen=True)
class Chain:
    """Calls submit.sh in a folder; the run is run/, the logs are in logs/."""

    cluster: Cluster
    folder: Path

    def submit(self, **variables: str) -> dict[str, str]:
        """The id of each job, by stage."""
        done = self.call(**variables)
        assert done.returncode == 0, done.stderr
        lines = [line.split() for line in done.stdout.splitlines()]
        return {words[0]: words[2] for words in lines if words[1:2] == ["job"]}

    def call(self, **variables: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), self.cluster.env["PATH"]])
        own = {"LENGTH": "60", "SHARDS": str(SHARDS), "RUN": "run", "LOGS": "logs", "PARTITION": "test"}
        env = environment({**self.cluster.env, "PATH": path, **own, **OPTIONS, **variables})
        return subprocess.run(
            ["bash", SUBMIT], cwd=self.folder, env=env, capture_output=True, text=True, check=False, timeout=60
        )

    def log(self, name: str) -> str:
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def chain(cluster: Cluster, tmp_path: Path) -> Chain:
    return Chain(cluster, tmp_path)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Path:
    """The run that the same commands make without Slurm."""
    memup = Memup(tmp_path_factory.mktemp("undisturbed"))
    options = {stage: words.split() for stage, words in OPTIONS.items()}
    for shard in range(SHARDS):
        part = ["--shard", f"{shard}/{SHARDS}", "--run", "run"]
        memup("collect", "tmaze", "--length", 60, *options["COLLECT"], *part)
    memup("score", "--run", "run", *options["SCORE"])
    memup("train-memory", "--run", "run", *options["TRAIN_MEMORY"])
    memup("evaluate", "memory", "--run", "run")
    memup("train-agent", "--agent", "ppo", "--run", "run", *options["TRAIN_AGENT"])
    memup("evaluate", "agent", "--agent", "ppo", "--run", "run", *options["EVALUATE"])
    return memup.folder / "run"
