"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
import importlib
import logging
import resource
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.clusters.failures import one_line, root_cause
from reid_dist.clusters.kinds import LEAST_MEMORY, LocalCluster
from reid_dist.clusters.own_gpu import OWN_GPU
from reid_dist.clusters.security import new_certificates, private_scratch
from reid_dist.clusters.settings import in_force, pages_of, without_logs_of_dask
from reid_dist.core.address_space import more_memory
from reid_dist.core.environment import default_processes, usable_cores
from reid_dist.core.formatting import byte_size, counted
from reid_dist.core.gpus import VISIBLE_VARIABLE, visible_gpus
from reid_dist.core.limits import shortage, usable_memory
from reid_dist.core.semaphores import noted_semaphores
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    import distributed
    from distributed import Client


_LOGGER = logging.getLogger(__name__)

# Open files of this process with its scheduler and nannies: measured are 22 and 9 for each worker, before any work.
_FILES, _FILES_PER_WORKER = 40, 16

# What Dask and multiprocessing raise when a worker, or the process that it is forked from, ends while it starts: the
# pipes to it break, the handle of the process is empty, its nanny reports that it failed, or a state that Dask asserts
# does not hold.
_ENDED_EARLY = (EOFError, ConnectionError, AttributeError, AssertionError)
# Seconds after which a thread passes on the interpreter: starting a cluster is a long chain of short steps.
_SHORT_INTERVAL_S = 0.0005

_NANNY_FAILED = "Nanny failed to start"


def shares(config: LocalCluster) -> tuple[int, int]:
    """Workers of a local cluster, and threads of each."""
    cores = usable_cores()
    workers = config.workers or config.gpus or default_processes()
    return workers, config.threads_per_worker or max(1, cores // workers)


def memory_of_worker(config: LocalCluster) -> int | None:
    """Memory limit of a worker in bytes; None without a limit."""
    from distributed.worker_memory import parse_memory_limit

    workers, threads = shares(config)
    try:
        limit = parse_memory_limit(config.memory_limit, threads, workers * threads, logger=_LOGGER)
    except ValueError as error:
        raise InputError(f"cannot read memory_limit {config.memory_limit!r} of the cluster: {error}") from None
    if limit:
        # Dask leaves out limits of control groups that enclose this process inside the container, as of batch jobs.
        limit = min(limit, usable_memory() // (workers if config.memory_limit == "auto" else 1))
    if limit and limit < LEAST_MEMORY:
        raise InputError(
            f"memory_limit {config.memory_limit!r} of the cluster is less than the {byte_size(LEAST_MEMORY)} that a "
            "worker needs for the interpreter and its libraries; write auto, or a size such as 4GiB"
        )
    return None if not limit else int(limit)


def _refuse_without_files(workers: int) -> None:
    """Refuse a cluster that would exceed the limit of open files, which Dask reports by tracebacks or not at all."""
    needed, (limit, _) = _FILES + _FILES_PER_WORKER * workers, resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit not in (resource.RLIM_INFINITY, -1) and limit < needed:
        raise ClusterError(
            f"{counted(workers, 'local worker')} need some {needed} open files, and the limit of this process is "
            f"{limit}: raise it (ulimit -n {max(1024, needed)}), or run with fewer --workers or in threads (kind: "
            "threads)"
        )


def _refuse_without_gpus(config: LocalCluster) -> None:
    """Refuse a cluster of more GPUs than this process may use."""
    found = visible_gpus()
    if config.gpus is not None and config.gpus > len(found):
        raise ClusterError(
            f"the cluster wants {counted(config.gpus, 'GPU')}, and {len(found) or 'none'} can be used here: look at "
            f"nvidia-smi and {VISIBLE_VARIABLE}, or change gpus in its file"
        )


def _not_started(error: Exception, workers: int, threads: int) -> str:
    """Why local workers did not start, and what to do."""
    cause = root_cause(error)
    what = f"cannot start {counted(workers, 'local worker')} of {counted(threads, 'thread')}"
    if refused := shortage(cause):
        return f"{what}: {refused}"
    if not isinstance(cause, _ENDED_EARLY) and _NANNY_FAILED not in str(cause):
        return f"{what}: {one_line(cause)}"
    return (
        f"{what}: a process of theirs ended while it started ({one_line(cause)}); the usual reason is that the machine "
        "ran out of memory, and the log of the system has details; "
        + more_memory("free some or run with fewer --workers or in threads (kind: threads)")
    )


def keep_preloaded_modules() -> None:
    """Leave to this package what the process imports that workers are forked from.

    Dask would import pandas, if it is installed, to name it to that process, which runs already.
    """
    import distributed.utils

    vars(distributed.utils)["_forkserver_preload_set"] = True


@contextlib.contextmanager
def local_cluster(config: LocalCluster) -> Iterator[distributed.LocalCluster]:
    """Start workers, and stop them; raises `ClusterError` if they cannot be started."""
    import distributed

    keep_preloaded_modules()
    workers, threads = shares(config)
    limit = memory_of_worker(config)
    _refuse_without_files(workers)
    _refuse_without_gpus(config)
    with contextlib.ExitStack() as stack:
        # Until the cluster is closed, also when it could not be started.
        stack.enter_context(without_logs_of_dask())
        try:
            folder = stack.enter_context(private_scratch())
            stack.enter_context(noted_semaphores(folder))
            # Every user of the machine reaches loopback.
            security = stack.enter_context(new_certificates(Path(folder)))
            cluster = distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=threads,
                memory_limit=limit or 0,
                host="127.0.0.1",
                security=security,
                # None would be Dask's default: a server at a fixed port, which a second run cannot use.
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": config.dashboard},
                silence_logs=50,
                **({} if config.gpus is None else {"preload_nanny": [OWN_GPU]}),
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise ClusterError(_not_started(error, workers, threads)) from error
        yield stack.enter_context(cluster)


@contextlib.contextmanager
def open_local(config: LocalCluster, early: EarlyCluster | None = None) -> Iterator[Client]:
    """Start workers, unless they have been started `early`, and stop them; errors as of `local_cluster`."""
    import distributed

    started = local_cluster(config) if early is None else early.joined()
    with started as cluster, distributed.Client(cluster) as client:
        yield client


class EarlyCluster(contextlib.AbstractContextManager["EarlyCluster"]):
    """A local cluster that a thread starts while this process imports modules and prepares its inputs.

    It is ended by the end of this context, or of the one that joins it.
    """

    def __init__(self, config: LocalCluster) -> None:
        self._config = config
        self._stack = contextlib.ExitStack()
        self._started: Future[distributed.LocalCluster] = Future()
        # Imports of one module in two threads at once could find each other's incomplete.
        importlib.import_module("distributed")
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(_SHORT_INTERVAL_S)
        self._thread = threading.Thread(target=self._start, name="early cluster", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._stack.enter_context(in_force(self._config.dask, pages_of(self._config)))
            self._started.set_result(self._stack.enter_context(local_cluster(self._config)))
        except BaseException as error:
            self._started.set_exception(error)

    def _join(self) -> None:
        self._thread.join()
        sys.setswitchinterval(self._interval)

    @contextlib.contextmanager
    def joined(self) -> Iterator[distributed.LocalCluster]:
        """Wait for the cluster, which ends with this context; errors as of `local_cluster`."""
        self._join()
        with self._stack:
            yield self._started.result()

    def __exit__(self, *_: object) -> None:
        self._join()
        self._stack.close()
