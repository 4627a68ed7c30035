"""Workers as jobs of a batch system: SLURM, PBS, LSF and Grid Engine, through dask-jobqueue.

The scheduler runs in this process, the batch system starts workers, and Dask's adaptive scaling submits a job anew when
one is lost: a fixed number of jobs is submitted once and never again.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.existing import await_workers
from reid_dist.clusters.extras import import_extra
from reid_dist.clusters.fields import memory_bytes
from reid_dist.clusters.kinds import BatchCluster, LSFCluster, PBSCluster, SGECluster, SLURMCluster
from reid_dist.clusters.scratch import PRELOADED, private_scratch
from reid_dist.clusters.security import certificates_on_disk
from reid_dist.clusters.settings import serialized
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Security


_JOB_NAME = "reid-dist"


def import_jobqueue(kind: str, module: str = "dask_jobqueue") -> ModuleType:
    """Import dask-jobqueue, which ends the process silently on Ctrl-C, and restore Ctrl-C.

    Raises
    ------
    InputError
        If it is not installed.
    """
    if threading.current_thread() is not threading.main_thread():
        raise InputError(f"a cluster of kind {kind} can be started from the main thread alone")
    before = signal.getsignal(signal.SIGINT)
    try:
        return import_extra(module, "jobqueue", kind)
    finally:
        signal.signal(signal.SIGINT, before)


def _slurm(config: SLURMCluster) -> dict[str, Any]:
    directives = {"qos": config.qos, "constraint": config.constraint, "reservation": config.reservation}
    return {
        "account": config.account,
        "walltime": config.walltime,
        "job_extra_directives": [f"--{name}={value}" for name, value in directives.items() if value is not None],
    }


def _pbs(config: PBSCluster) -> dict[str, Any]:
    return {"account": config.account, "walltime": config.walltime}


def _lsf(config: LSFCluster) -> dict[str, Any]:
    # LSF counts hours and minutes; a colon more would be read as something else.
    hours, minutes, _ = config.walltime.split(":")
    return {"project": config.account, "walltime": f"{hours}:{minutes}", "lsf_units": config.memory_unit}


def _sge(config: SGECluster) -> dict[str, Any]:
    return {
        "project": config.account,
        "walltime": config.walltime,
        "resource_spec": config.resource_spec,
        "job_extra_directives": [f"-pe {config.parallel_environment} {config.cores}"],
    }


# Kind -> class of dask-jobqueue, the program that submits, and what only this batch system takes.
_SYSTEMS: dict[str, tuple[str, str, Any]] = {
    "slurm": ("SLURMCluster", "sbatch", _slurm),
    "pbs": ("PBSCluster", "qsub", _pbs),
    "lsf": ("LSFCluster", "bsub", _lsf),
    "sge": ("SGECluster", "qsub", _sge),
}


def private_directory(path: str) -> Path:
    """A directory of this user alone: keys are put there.

    Raises
    ------
    InputError
        If it cannot be made.
    """
    folder = Path(path).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"cannot make shared_directory {str(folder)!r} of the cluster: {error.strerror}") from None
    return folder


@contextlib.contextmanager
def batch_cluster(config: Any) -> Iterator[Any]:
    """Start a scheduler that can submit jobs, and submit none.

    Raises
    ------
    InputError
        If dask-jobqueue is not installed or a directory cannot be made.
    ClusterError
        If the scheduler cannot be started, such as on an interface that this machine does not have.
    """
    name, _, own = _SYSTEMS[config.kind]
    module = import_jobqueue(config.kind)
    shared = private_directory(config.shared_directory)
    with private_scratch(), certificates_on_disk(config, shared) as security:
        try:
            cluster = getattr(module, name)(**_options(config, shared, security), **own(config))
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(f"cannot start a scheduler for {config.kind}: {error}") from error
        with cluster:
            yield cluster


def _options(config: BatchCluster, shared: Path, security: Security | None) -> dict[str, Any]:
    """What all batch systems take."""
    # Workers serve pages of their own, outside TLS.
    words = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--preload-nanny", PRELOADED]
    if config.lifetime is not None and config.lifetime_stagger is not None:
        words += ["--lifetime", config.lifetime, "--lifetime-stagger", config.lifetime_stagger]
    return {
        "cores": config.cores,
        "processes": config.processes,
        "memory": f"{memory_bytes(config.memory)}B",
        "queue": config.queue,
        "interface": config.interface,
        "job_name": _JOB_NAME,
        "python": config.python or shlex.quote(sys.executable),
        "log_directory": str(private_directory(str(shared / "logs"))),
        "security": security,
        "worker_extra_args": words,
        "job_script_prologue": [
            *(f"module load {name}" for name in config.modules),
            f"export DASK_INTERNAL_INHERIT_CONFIG={serialized(_settings(config))}",
        ],
        "scheduler_options": {
            "dashboard": config.dashboard,
            # Also where there is no dashboard: Dask serves its other pages there, outside TLS.
            "dashboard_address": "127.0.0.1:0",
        },
        "silence_logs": "critical",
    }


def _settings(config: BatchCluster) -> dict[str, Any]:
    """Dask's settings of workers; each makes its own directory where `local_directory` is."""
    place = {} if config.local_directory is None else {"temporary-directory": config.local_directory}
    return {**config.dask, **place}


@contextlib.contextmanager
def open_batch(config: Any) -> Iterator[Client]:
    """Submit jobs, submit lost ones again until the end, and then cancel them all.

    Raises
    ------
    InputError
        If dask-jobqueue is not installed.
    ClusterError
        If jobs are refused, or no workers come in time.
    """
    import distributed

    program = _SYSTEMS[config.kind][1]
    import_jobqueue(config.kind)
    if shutil.which(program) is None:
        raise ClusterError(f"there is no {program} here; run this where {config.kind} jobs can be submitted")
    with batch_cluster(config) as cluster:
        try:
            # In the open first: what adaptive scaling cannot submit it only logs, again and again.
            cluster.sync(_submit, cluster, config.jobs)
        except RuntimeError as error:
            _forget_refused_jobs(cluster)
            raise ClusterError(f"{program} refused the job: {_last_words(error)}") from error
        cluster.adapt(minimum_jobs=config.jobs, maximum_jobs=config.jobs)
        with distributed.Client(cluster) as client:
            where = f"{config.kind}: {config.jobs} jobs"
            advice = "see whether they wait in the queue and what they wrote to shared_directory/logs,"
            await_workers(client, config.wait_for_workers, config.timeout_s, where, advice)
            yield client


async def _submit(cluster: Any, jobs: int) -> None:
    """Submit jobs and wait until the batch system has taken or refused them."""
    # `scale` only starts this, and its errors are lost; on the loop itself they are not.
    cluster.scale(jobs=jobs)
    await cluster._correct_state()


def _forget_refused_jobs(cluster: Any) -> None:
    """Let a cluster close: it would try to submit them again, and then miss them."""
    from distributed.core import Status

    cluster.worker_spec.clear()
    for job in cluster._created:
        if job.status == Status.created:
            job.status = Status.failed


def _last_words(error: Exception) -> str:
    """The line of a program's error in the long message of dask-jobqueue."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
