"""A real SLURM of several nodes on this one host, as a fixture.

One munged, one slurmctld and a slurmd per node, each in the foreground and on loopback, without systemd and without
cgroups.  All that they write is in one directory.  They end with this process, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch", "srun", "scancel", "scontrol", "squeue", "sinfo")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

_CONFIGURATION = """\
ClusterName=mini
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
KillWait=2
SlurmdTimeout=120
MessageTimeout=60
"""


def missing_programs() -> list[str]:
    """What must be installed before `mini_slurm` works; also root, who starts jobs in other users' names."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_SYSTEM_PATH) is None]
    return absent + ([] if os.geteuid() == 0 else ["root"])


@dataclass(frozen=True)
class MiniSlurm:
    """A running SLURM.

    Attributes
    ----------
    environment
        What a process needs to use it.
    nodes
        Names of its nodes.
    """

    environment: dict[str, str]
    nodes: tuple[str, ...]

    def run(self, *words: str) -> str:
        """Run one of its programs and return what it prints."""
        done = self.attempt(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def attempt(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, whatever its exit code."""
        env = {**os.environ, **self.environment}
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=120)

    @contextlib.contextmanager
    def down(self, node: str) -> Iterator[None]:
        """Set a node down, which kills what runs there, and leave it up again."""
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        try:
            yield
        finally:
            # It also comes back of its own accord, when its slurmd registers, and is not down then.
            self.attempt("scontrol", "update", f"nodename={node}", "state=resume")

    def jobs(self) -> list[str]:
        """Numbers of the jobs that run or wait, once those that are being cancelled are gone."""
        deadline = time.monotonic() + 20
        while (found := self.run("squeue", "--noheader", "--format=%A").split()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def running(self) -> list[str]:
        """Numbers of the jobs that run."""
        return self.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").split()


@contextlib.contextmanager
def mini_slurm(n_nodes: int = 3, cpus: int = 4, memory_mb: int = 4000) -> Iterator[MiniSlurm]:
    """Start SLURM, and stop it with all its jobs."""
    with contextlib.ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="mini-slurm-"))
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        root.chmod(0o755)  # munged runs as another user
        nodes = tuple(f"n{number}" for number in range(1, n_nodes + 1))
        _write_files(root, nodes, cpus, memory_mb)
        environment = {"SLURM_CONF": str(root / "slurm.conf")}
        slurm = MiniSlurm(environment, nodes)

        def start(*words: str, user: str | None = None) -> None:
            log = stack.enter_context((root / "log" / "stderr.txt").open("ab"))
            process = subprocess.Popen(
                words,
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=log,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                start_new_session=True,
                preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
            )
            stack.callback(_stop, process)

        munge = root / "munge"
        paths = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        start("/usr/sbin/munged", "-F", *(f"--{name}={munge / file}" for name, file in paths.items()), user="munge")
        _await("munged", (munge / "socket").exists, root)
        start("/usr/sbin/slurmctld", "-D", "-c")
        for node in nodes:
            start("/usr/sbin/slurmd", "-D", "-N", node)
        _await("nodes", lambda: _states(environment) == ["idle"] * n_nodes, root)
        stack.callback(_cancel_all, environment)
        yield slurm


def _write_files(root: Path, nodes: tuple[str, ...], cpus: int, memory_mb: int) -> None:
    for folder in ("munge", "state", "log", *(f"spool/{node}" for node in nodes)):
        (root / folder).mkdir(parents=True)
    key = root / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    owner = pwd.getpwnam("munge")
    for path in (root / "munge", key):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    host = socket.gethostname().split(".")[0]
    port, *ports = _free_ports(1 + len(nodes))
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={own} CPUs={cpus} RealMemory={memory_mb}"
        for node, own in zip(nodes, ports, strict=True)
    ]
    lines.append("PartitionName=debug Nodes=ALL Default=YES DefaultTime=10 MaxTime=60 State=UP")
    (root / "slurm.conf").write_text(_CONFIGURATION.format(host=host, port=port, root=root) + "\n".join(lines) + "\n")


def _free_ports(n: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [server.getsockname()[1] for server in taken]


def _states(environment: dict[str, str]) -> list[str]:
    words = ["sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return done.stdout.split()


def _await(what: str, ready: Callable[[], bool], root: Path) -> None:
    deadline = time.monotonic() + 30
    while not ready():
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text()[-2000:] for path in sorted((root / "log").glob("*")))
            raise RuntimeError(f"{what} did not come up\n{logs}")
        time.sleep(0.05)


def _cancel_all(environment: dict[str, str]) -> None:
    env = {**os.environ, **environment}
    subprocess.run(["scancel", "--user=root"], env=env, capture_output=True, check=False, timeout=20)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = subprocess.run(["squeue", "--noheader"], env=env, capture_output=True, check=False, timeout=20)
        if not left.stdout.strip():
            return
        time.sleep(0.1)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
