"""One SLURM job whose tasks all run the same command: ``srun reid-dist run JOB.yaml --cluster THIS.yaml``.

Task 0 is the scheduler, task 1 the client, which continues with the command, and all others are workers.  The roles are
assigned before the command reads or writes anything; see `take_part`.  A folder that all nodes see, named after the job
and this start of it, holds a marker that the cluster is needed, the scheduler's address, the certificates of this run,
and finally a marker upon which the other tasks end.  A command that ends at once, such as for a mistake in a file, has
started nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import reid_dist.core.signals as signals
from reid_dist.clusters.batch import import_jobqueue
from reid_dist.clusters.existing import address_in, await_workers, reach
from reid_dist.clusters.kinds import Cluster, SLURMJobCluster, memory_bytes
from reid_dist.clusters.security import certificates, new_pem, private_directory, scratch_directory, security_of
from reid_dist.clusters.settings import in_force
from reid_dist.clusters.workers import end_local_workers, place_sockets
from reid_dist.core.json_text import parse_json
from reid_dist.core.processes import discard_output
from reid_dist.core.regular_files import MOST_SETTINGS, read_named
from reid_dist.core.semaphores import noted_semaphores
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Security


_SCHEDULER, _CLIENT = 0, 1
_OTHERS = 2  # tasks that are no workers
_POLLED_EVERY_S = 0.2
_SCHEDULER_STAYS_S = 1.0
_SEEN_WITHIN_S = 5.0
_ADDRESS = "scheduler.json"
_CERTIFICATES = "certificates.json"
_NEEDED, _ENDED = "needed", "ended"
# Equal in all tasks of a job step and different in other steps: when the job began, and where its srun listens.
# Numbers of jobs are used again where SLURM is set up anew.
_OF_ONE_START = ("JOB_START_TIME", "SRUN_COMM_HOST", "SRUN_COMM_PORT", "STEP_LAUNCHER_PORT")


def take_part(config: Cluster) -> None:
    """Run this process as scheduler or worker if that is its task in a job whose tasks all run the same command.

    Returns at once for every other kind of cluster, and in the task of the client.  In all other tasks it serves until
    the command has ended, and ends the process.
    """
    if not isinstance(config, SLURMJobCluster):
        return
    task, folder = _place(config)
    if task == _CLIENT:
        # Without this marker, the others could not detect a command that ends before it needs them.
        atexit.register(_end, folder)
        _make_folder(folder)
        return
    # Before anything may send them.  srun also sends SIGTERM to the other tasks when one has failed, which reports the
    # failure; the runner ends servers with SIGINT, which must not be reported as Ctrl-C.
    signals.release()
    for each in signals.NUMBERS:
        signal.signal(each, _leave)
    # Dask would log every connection.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "critical")
    import_jobqueue(config.kind, "dask_jobqueue.slurm")
    while not (ended := (folder / _ENDED).exists()) and not (folder / _NEEDED).exists():
        time.sleep(_POLLED_EVERY_S)
    if ended:
        sys.exit(0)
    threading.Thread(target=_leave_at_end, args=(task, folder), daemon=True).start()
    place_sockets()
    # Held until `_vanish` has ended the workers and then removes it.
    try:
        scratch = scratch_directory(config.local_directory)
    except OSError as error:
        raise InputError(f"cannot make a directory in local_directory of the cluster: {error}") from None
    # Until the process has ended: a nanny that starts its worker later has it forked from the same server.
    with in_force(config.dask), noted_semaphores(scratch.name):
        try:
            _serve(config, task, folder, scratch.name)
        except SystemExit:
            pass
        except Exception:
            # After the end of the command, an error is no failure: a worker may just have been starting.
            if not _ends_soon(folder):
                raise
        _vanish(folder if task == _SCHEDULER else None)


def _vanish(made: Path | None) -> NoReturn:
    """Remove files and end the process without waiting for Dask's threads; `made` holds the certificates it made.

    Threads that run while the interpreter shuts down can abort the process, and by its exit code the whole job.
    """
    if made is not None:
        # The client removes them as well, unless it was killed.
        with contextlib.suppress(OSError):
            (made / _CERTIFICATES).unlink(missing_ok=True)
    for stream in (sys.stdout, sys.stderr):
        discard_output(stream)
    with contextlib.suppress(Exception):
        # Before: a worker that is just being forked would log errors about missing files.  After: a nanny may have
        # started it again.
        end_local_workers()
        atexit._run_exitfuncs()
        end_local_workers()
    os._exit(0)


def _ends_soon(folder: Path) -> bool:
    """Whether the command has ended; other nodes may see a new marker after some seconds."""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while not (ended := (folder / _ENDED).exists()) and time.monotonic() < deadline:
        time.sleep(_POLLED_EVERY_S)
    return ended


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
            f"the cluster file has {config.workers} workers, which takes {config.workers + _OTHERS} tasks with the "
            f"scheduler and the client; this job step has {n_tasks}"
        )
    # A job that was requeued keeps its number; files of an earlier start must not be used.
    restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    words = "\n".join(os.environ.get(f"SLURM_{name}", "") for name in _OF_ONE_START)
    start = hashlib.sha256(words.encode()).hexdigest()[:12]
    return task, private_directory(config.shared_directory) / f"job-{job}.{step}-{int(restart)}-{start}"


def _make_folder(folder: Path) -> None:
    """Make the folder of this start of the job, which cannot exist before."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise ClusterError(
            f"{folder} is what an earlier job of the same number has left in shared_directory; delete it and submit "
            "the job again"
        ) from None
    except OSError as error:
        raise InputError(f"cannot make {folder} in shared_directory of the cluster: {error.strerror}") from None


def _serve(config: SLURMJobCluster, task: int, folder: Path, scratch: str) -> None:
    """Run the scheduler or a worker until the end."""
    module = import_jobqueue(config.kind, "dask_jobqueue.slurm")
    if task == _SCHEDULER:
        security = _make_certificates(config, folder)
    else:
        address_in(folder / _ADDRESS, time.monotonic() + config.timeout_s, config.timeout_s)
        security = _read_certificates(config, folder)
    common = {
        "protocol": "tcp://" if config.insecure and not config.has_certificates else "tls://",
        "interface": config.interface,
        "security": security,
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
    }
    module.SLURMRunner(
        scheduler_file=str(folder / _ADDRESS),
        worker_class="distributed.Nanny",
        scheduler_options=common,
        worker_options={
            **common,
            "nthreads": config.threads_per_worker,
            "memory_limit": memory_bytes(config.memory),
            "local_directory": scratch,
            "death_timeout": config.timeout_s,
        },
    )


@contextlib.contextmanager
def open_single_job(config: SLURMJobCluster) -> Iterator[Client]:
    """Reach the scheduler of this job."""
    task, folder = _place(config)
    if task != _CLIENT:
        raise ClusterError(f"task {task} of a job serves, but was started as the client")
    (folder / _NEEDED).touch()
    where = "the scheduler of this SLURM job"
    address = address_in(folder / _ADDRESS, time.monotonic() + config.timeout_s, config.timeout_s)
    with reach(address, _read_certificates(config, folder), where, config.timeout_s) as client:
        await_workers(client, config.wait_for_workers, config.timeout_s, where, "see what its tasks wrote,")
        yield client


def _make_certificates(config: SLURMJobCluster, folder: Path) -> Security | None:
    """Certificates of the file; without any, new ones for this run, which the other tasks read."""
    if not config.has_certificates and not config.insecure:
        file = folder / _CERTIFICATES
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(json.dumps(new_pem()))
    return _read_certificates(config, folder)


def _read_certificates(config: SLURMJobCluster, folder: Path) -> Security | None:
    """Certificates that the scheduler has written before its address."""
    if config.has_certificates or config.insecure:
        return certificates(config)
    return security_of(parse_json(read_named(folder / _CERTIFICATES, "file of certificates", MOST_SETTINGS)))


def _end(folder: Path) -> None:
    """Write the marker that the command has ended."""
    # The marker first: a task that finds no certificates then reads it.
    with contextlib.suppress(OSError):
        (folder / _ENDED).touch()
        (folder / _CERTIFICATES).unlink(missing_ok=True)


def _leave(*_: object) -> None:
    """End the process on a signal; further ones do nothing."""
    for each in signals.NUMBERS:
        # Not SIG_IGN: Python prints an OSError for a signal that has arrived already and is ignored from then on.
        signal.signal(each, lambda *_: None)
    sys.exit(0)


def _leave_at_end(task: int, folder: Path) -> None:
    """End the process after the command has ended; the scheduler last, as workers need it to close."""
    while not (folder / _ENDED).exists():
        time.sleep(_POLLED_EVERY_S)
    if task == _SCHEDULER:
        time.sleep(_SCHEDULER_STAYS_S)
    os.kill(os.getpid(), signal.SIGINT)
