"""One SLURM job whose tasks all run the same command: ``srun reid-dist run JOB.yaml --cluster THIS.yaml``.

Task 0 becomes the scheduler, task 1 goes on with the command, all others work.  The parts are given out before the
command reads or writes anything, so that only one task does; see `take_part`.  A folder that all nodes see, named after
the job, holds a mark that the cluster is needed, the scheduler's address, the certificates of this run, and at last a
mark that tells the others to end.  A command that ends at once, for a wrong word in a file, has started nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.clusters.batch import import_jobqueue, private_directory
from reid_dist.clusters.existing import address_in, await_workers, reach
from reid_dist.clusters.fields import memory_bytes
from reid_dist.clusters.kinds import Cluster, SLURMJobCluster
from reid_dist.clusters.security import certificates, temporary_certificates
from reid_dist.clusters.settings import in_force
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Security

__all__ = ["open_single_job", "take_part"]

_SCHEDULER, _CLIENT = 0, 1
_OTHERS = 2  # tasks that do not work
_LOOKED_EVERY_S = 0.2
_SCHEDULER_STAYS_S = 1.0
_ADDRESS = "scheduler.json"
_CERTIFICATES = "certificates.json"
_NEEDED, _ENDED = "needed", "ended"
_FIELDS = (
    "tls_ca_file",
    *(f"tls_{role}_{part}" for role in ("client", "scheduler", "worker") for part in ("cert", "key")),
)


def take_part(config: Cluster) -> None:
    """Take the part of this process in a job whose tasks all run the same command.

    Returns at once for every other kind of cluster, and in the task that goes on with the command.  In all other tasks
    it serves until the command has ended, and leaves the process.

    Raises
    ------
    InputError
        If this is no task of a SLURM job, or the job has not the tasks that the cluster file says.
    """
    if not isinstance(config, SLURMJobCluster):
        return
    task, folder = _place(config)
    if task == _CLIENT:
        # The mark is all that tells the others of a command that ends before it needs them.
        atexit.register(_end, folder)
        return
    # Also what srun sends to the others once a task has failed; what went wrong is that task's to say.
    signal.signal(signal.SIGTERM, _leave)
    # Dask's news of every connection would stand around the command's own lines.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    import_jobqueue(config.kind, "dask_jobqueue.slurm")
    while not (folder / _NEEDED).exists():
        if (folder / _ENDED).exists():
            sys.exit(0)
        time.sleep(_LOOKED_EVERY_S)
    threading.Thread(target=_leave_at_end, args=(task, folder), daemon=True).start()
    _serve(config, task, folder)
    sys.exit(0)


def _place(config: SLURMJobCluster) -> tuple[int, Path]:
    """Number of this task, and the folder of the job."""
    try:
        job, step, task, n_tasks = (
            int(os.environ[f"SLURM_{name}"]) for name in ("JOB_ID", "STEP_ID", "PROCID", "NTASKS")
        )
    except (KeyError, ValueError):
        raise InputError(
            "a cluster of kind slurm_single_job is a SLURM job whose tasks all run this command; run it with "
            f"srun --ntasks={config.workers + _OTHERS} inside a job"
        ) from None
    if n_tasks != config.workers + _OTHERS:
        raise InputError(
            f"the cluster file says {config.workers} workers, which takes {config.workers + _OTHERS} tasks with the "
            f"scheduler and the client; this job step has {n_tasks}"
        )
    # A job that was requeued keeps its number; what an earlier start left behind must not be believed.
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    return task, private_directory(config.shared_directory) / f"job-{job}.{step}-{int(restart)}"


def _serve(config: SLURMJobCluster, task: int, folder: Path) -> None:
    """Be the scheduler or a worker until the end."""
    module = import_jobqueue(config.kind, "dask_jobqueue.slurm")
    common = {"protocol": "tcp://" if _open(config) else "tls://", "interface": config.interface}
    with in_force(config.dask):
        if task == _SCHEDULER:
            folder.mkdir(mode=0o700, exist_ok=True)
            security = _make_certificates(config, folder)
        else:
            address_in(folder / _ADDRESS, time.monotonic() + config.timeout_s, config.timeout_s)
            security = _read_certificates(config, folder)
        # The runner ends a process that has served with a signal, which must not look like Ctrl-C.
        signal.signal(signal.SIGINT, _leave)
        module.SLURMRunner(
            scheduler_file=str(folder / _ADDRESS),
            worker_class="distributed.Nanny",
            scheduler_options={**common, "security": security, "dashboard": False, "dashboard_address": "127.0.0.1:0"},
            worker_options={
                **common,
                "security": security,
                "nthreads": config.threads_per_worker,
                "memory_limit": memory_bytes(config.memory),
                "local_directory": config.local_directory,
                "dashboard": False,
                "dashboard_address": "127.0.0.1:0",
                "death_timeout": config.timeout_s,
            },
        )


@contextlib.contextmanager
def open_single_job(config: SLURMJobCluster) -> Iterator[Client]:
    """Reach the scheduler of this job.

    Raises
    ------
    ClusterError
        If scheduler and workers do not come up in time.
    """
    task, folder = _place(config)
    if task != _CLIENT:
        raise ClusterError(f"task {task} of a job serves, and was asked to be the client")
    _mark(folder, _NEEDED)
    where = "the scheduler of this SLURM job"
    address = address_in(folder / _ADDRESS, time.monotonic() + config.timeout_s, config.timeout_s)
    with reach(address, _read_certificates(config, folder), where, config.timeout_s) as client:
        await_workers(client, config.wait_for_workers, config.timeout_s, where, "see what its tasks wrote,")
        yield client


def _open(config: SLURMJobCluster) -> bool:
    """Whether the job speaks without TLS."""
    return config.insecure and not config.has_certificates


def _make_certificates(config: SLURMJobCluster, folder: Path) -> Security | None:
    security = temporary_certificates(config)
    if security is not None and not config.has_certificates:
        made = {name: getattr(security, name) for name in _FIELDS}
        file = folder / _CERTIFICATES
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(json.dumps(made))
    return security


def _read_certificates(config: SLURMJobCluster, folder: Path) -> Security | None:
    """What the scheduler has written down before its address."""
    if config.has_certificates or config.insecure:
        return certificates(config)
    from distributed import Security

    made = json.loads((folder / _CERTIFICATES).read_text())
    return Security(require_encryption=True, **{name: made[name] for name in _FIELDS})


def _end(folder: Path) -> None:
    """Tell all other tasks that the command has ended."""
    with contextlib.suppress(OSError):
        (folder / _CERTIFICATES).unlink(missing_ok=True)
        _mark(folder, _ENDED)


def _mark(folder: Path, name: str) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / name).touch()


def _leave(*_: object) -> None:
    """Leave the process on a signal; a second one must not disturb what is tidied up then."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(0)


def _leave_at_end(task: int, folder: Path) -> None:
    """Leave the process once the command has ended; the scheduler last, for workers would miss it."""
    while not (folder / _ENDED).exists():
        time.sleep(_LOOKED_EVERY_S)
    if task == _SCHEDULER:
        time.sleep(_SCHEDULER_STAYS_S)
    os.kill(os.getpid(), signal.SIGINT)
