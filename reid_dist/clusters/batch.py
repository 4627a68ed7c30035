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
from reid_dist.clusters.kinds import BatchCluster, LSFCluster, SGECluster, SLURMCluster, memory_bytes
from reid_dist.clusters.own_gpu import OWN_GPU
from reid_dist.clusters.security import SCRATCH_MODULE, certificates_on_disk, private_directory, private_scratch
from reid_dist.clusters.settings import serialized
from reid_dist.core.optional_packages import import_extra
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Security


_JOB_NAME = "reid-dist"


def import_jobqueue(kind: str, module: str = "dask_jobqueue") -> ModuleType:
    """Import dask-jobqueue, which ends the process silently on Ctrl-C, and restore Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        raise InputError(f"a cluster of kind {kind} can be started only from the main thread")
    before = signal.getsignal(signal.SIGINT)
    try:
        return import_extra(module, "jobqueue", f"a cluster of kind {kind}")
    finally:
        signal.signal(signal.SIGINT, before)


# Kind -> class of dask-jobqueue, and the program that submits.
_SYSTEMS = {
    "slurm": ("SLURMCluster", "sbatch"),
    "pbs": ("PBSCluster", "qsub"),
    "lsf": ("LSFCluster", "bsub"),
    "sge": ("SGECluster", "qsub"),
}


def _own_options(config: BatchCluster) -> dict[str, Any]:
    """Options that differ between batch systems."""
    if isinstance(config, SLURMCluster):
        gpus = None if config.gpus is None else f"gpu:{config.gpus}"
        directives = {"qos": config.qos, "constraint": config.constraint, "reservation": config.reservation}
        directives["gres"] = gpus
        lines = [f"--{name}={value}" for name, value in directives.items() if value is not None]
        return {"account": config.account, "walltime": config.walltime, "job_extra_directives": lines}
    if isinstance(config, LSFCluster):
        # LSF takes hours and minutes; a second colon has another meaning.
        hours, minutes, _ = config.walltime.split(":")
        return {"project": config.account, "walltime": f"{hours}:{minutes}", "lsf_units": config.memory_unit}
    if isinstance(config, SGECluster):
        return {
            "project": config.account,
            "walltime": config.walltime,
            "resource_spec": config.resource_spec,
            "job_extra_directives": [f"-pe {config.parallel_environment} {config.cores}"],
        }
    return {"account": config.account, "walltime": config.walltime}


@contextlib.contextmanager
def batch_cluster(config: Any) -> Iterator[Any]:
    """Start a scheduler that can submit jobs, and submit none."""
    name, _ = _SYSTEMS[config.kind]
    module = import_jobqueue(config.kind)
    shared = private_directory(config.shared_directory)
    with private_scratch(), certificates_on_disk(config, shared) as security:
        try:
            cluster = getattr(module, name)(**_options(config, shared, security), **_own_options(config))
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(f"cannot start a scheduler for {config.kind}: {error}") from error
        with cluster:
            yield cluster


def _options(config: BatchCluster, shared: Path, security: Security | None) -> dict[str, Any]:
    """Options that all batch systems take."""
    # Workers would serve pages outside TLS.
    words = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--preload-nanny", SCRATCH_MODULE]
    if isinstance(config, SLURMCluster) and config.gpus is not None:
        words += ["--preload-nanny", OWN_GPU]
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
            # Also without a dashboard: Dask serves its other pages there, outside TLS.
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
    """Submit jobs, submit lost ones again until the end, and then cancel them all."""
    import distributed

    program = _SYSTEMS[config.kind][1]
    import_jobqueue(config.kind)
    if shutil.which(program) is None:
        raise ClusterError(f"there is no {program} here; run this where {config.kind} jobs can be submitted")
    with batch_cluster(config) as cluster:
        try:
            # Explicitly first: adaptive scaling only logs, repeatedly, what it cannot submit.
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
    # `scale` only starts the submission, and its errors are lost; on the loop they are raised.
    cluster.scale(jobs=jobs)
    await cluster._correct_state()


def _forget_refused_jobs(cluster: Any) -> None:
    """Remove refused jobs, which would otherwise be submitted again when the cluster closes."""
    from distributed.core import Status

    cluster.worker_spec.clear()
    for job in cluster._created:
        if job.status == Status.created:
            job.status = Status.failed


def _last_words(error: Exception) -> str:
    """The line of a program's error in the long message of dask-jobqueue."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
