"""A throw-away Slurm of one node: three daemons in the foreground, in a folder of their own, as whoever runs the tests.

Partition `test` can be preempted by partition `urgent`.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
PACKAGES = "munge slurmctld slurmd slurm-client"  # Debian's and Ubuntu's
SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
GRACE = 60  # seconds from the warning of a preempted job to its end
PATIENCE = 600  # seconds until a state that does not come fails the test

CONFIG = """
ClusterName=memup
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
# A requeued job may start when the credential of its last attempt has expired: after seconds instead of two minutes.
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
# Nothing that needs control groups, accounting or mail.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
PropagateResourceLimits=NONE
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
JobRequeue=1
KillWait=30
MinJobAge=36000
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes={host} Default=YES MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime={grace}
PartitionName=urgent Nodes={host} MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF
"""


@dataclass(frozen=True)
class Cluster:
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": SYSTEM_PATH}

    def ask(self, *command: str) -> str:
        """What a Slurm command prints; fails if it does."""
        done = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout.strip()

    def job(self, job: str) -> dict[str, str]:
        """What Slurm knows of a job, by the names it uses: JobState, ExitCode, Restarts, Reason..."""
        (only,) = self._tasks(job)
        return only

    def state(self, job: str) -> str:
        """PENDING, RUNNING, COMPLETED...; of an array whose tasks differ, all of them."""
        return ", ".join(sorted({task["JobState"] for task in self._tasks(job)}))

    def ended(self, job: str) -> bool:
        return not {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED"} & set(self.state(job).split(", "))

    def _tasks(self, job: str) -> list[dict[str, str]]:
        lines = self.ask("scontrol", "--oneliner", "show", "job", job).splitlines()
        return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]

    def occupy(self, partition: str) -> str:
        """A job that takes the whole node and does nothing, until it is cancelled."""
        options = ["--parsable", "--exclusive", f"--partition={partition}", "--output=/dev/null"]
        return self.ask("sbatch", *options, "--wrap", "exec tail -f /dev/null")

    def cancel(self, job: str, *options: str) -> None:
        self.ask("scancel", *options, job)


def until(true: Callable[[], object], what: str) -> None:
    """Look until it is true; the only place where a test waits."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for this in vain: {what}"
        time.sleep(0.05)


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Slurm, from when it is ready for jobs until every job and daemon is gone."""
    host, cluster = socket.gethostname().split(".")[0], Cluster(folder)
    control_port, node_port = _free_ports(2)
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)  # munge wants to be sure that nobody else can write there
    (folder / "slurm.conf").write_text(
        CONFIG.format(
            host=host,
            user=getpass.getuser(),
            folder=folder,
            control_port=control_port,
            node_port=node_port,
            grace=GRACE,
        )
    )
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    places = {"key-file": key, "seed-file": folder / "munge.seed", "log-file": folder / "munged.log"}
    places |= {"socket": folder / "munge.socket", "pid-file": folder / "munged.pid"}
    munged = ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in places.items())]
    with ExitStack() as stack:
        stack.enter_context(_daemon(cluster, "munged", munged))
        until((folder / "munge.socket").exists, "the socket of munged")
        stack.enter_context(_daemon(cluster, "slurmctld", ["slurmctld", "-D", "-c"]))
        stack.enter_context(_daemon(cluster, "slurmd", ["slurmd", "-D", "-c", "-N", host]))
        until(lambda: _is_idle(cluster), f"an idle node; see the logs in {folder}")
        try:
            yield cluster
        finally:
            _end_jobs(cluster)


def _is_idle(cluster: Cluster) -> bool:
    shown = subprocess.run(
        ["sinfo", "--noheader", "--partition=test", "--format=%T"],
        env={**os.environ, **cluster.env},
        capture_output=True,
        text=True,
        check=False,
    )
    return shown.stdout.strip() == "idle"


def _end_jobs(cluster: Cluster) -> None:
    for stop in ((), ("--signal=KILL", "--full")):
        cluster.ask("scancel", *stop, f"--user={getpass.getuser()}")
    until(lambda: not cluster.ask("squeue", "--noheader"), "the end of all jobs")


@contextmanager
def _daemon(cluster: Cluster, name: str, command: list[str]) -> Iterator[None]:
    """A process that ends with the block, and also if the tests are killed."""
    with (cluster.folder / f"{name}.out").open("w") as out:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "--", *command],
            env={**os.environ, **cluster.env},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports
