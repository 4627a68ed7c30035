"""Where a job runs: a cluster file in YAML becomes a Dask client, or None for threads of this process.

A cluster file says nothing about data and cannot run code: it is validated field by field, and what it may start comes
from the kinds listed here.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reid_dist.environment import usable_cores
from reid_dist.errors import ClusterError, InputError, StoreNotFoundError
from reid_dist.validation import explain
from reid_dist.workers import prepare_local_workers, workers_of

if TYPE_CHECKING:
    from distributed import Client
    from distributed import LocalCluster as RunningCluster

__all__ = [
    "ClusterConfig",
    "ExistingCluster",
    "LocalCluster",
    "Size",
    "Threads",
    "cluster_schema",
    "cluster_size",
    "connect",
    "prepare_local_workers",
    "read_cluster",
]

# One worker process per this many threads: kernels and BLAS release the GIL, reading and merging hold it now and then.
_THREADS_PER_PROCESS = 8

# Settings of Dask that hold unless a cluster file sets them, with the reason.
_SETTINGS: dict[str, Any] = {
    # A job that asks for workers which never come must end, not hang.
    "distributed.scheduler.no-workers-timeout": "5 minutes",
    # A busy worker answers late; that is no reason to give it up.
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    # Tasks reuse their own memory and keep nothing: writing results to disk would only hide a plan that is wrong.
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    # Local workers are forked from a server that has imported everything already; see `reid_dist.workers`.
    "distributed.worker.multiprocessing-method": "forkserver",
}


_LOGGER = logging.getLogger(__name__)


class _Described(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = ""
    dask: dict[str, str | int | float | bool | None] = Field(
        default_factory=dict, description="Dask settings by dotted name, over the defaults."
    )


class Threads(_Described):
    """Threads of this process; no cluster."""

    kind: Literal["threads"]


class LocalCluster(_Described):
    """Worker processes on this machine, listening on loopback alone."""

    kind: Literal["local"]
    workers: int | None = Field(default=None, ge=1, description="Worker processes; by default one per 8 cores.")
    threads_per_worker: int | None = Field(default=None, ge=1, description="By default the cores, shared out.")
    memory_limit: str = Field(default="auto", description="Per worker, such as 4GiB; auto shares the machine's.")
    dashboard: bool = Field(default=False, description="Whether to serve Dask's dashboard on loopback.")


class ExistingCluster(_Described):
    """A scheduler that runs already."""

    kind: Literal["existing"]
    address: str | None = Field(default=None, pattern=r"^(tcp|tls)://[^\s]+:\d+$", description="tcp://host:port")
    scheduler_file: str | None = Field(default=None, description="File that the scheduler wrote.")
    wait_for_workers: int = Field(default=1, ge=1)
    timeout_s: float = Field(default=60.0, gt=0, description="How long to wait for the scheduler and its workers.")


ClusterConfig = Annotated[Threads | LocalCluster | ExistingCluster, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Threads | LocalCluster | ExistingCluster] = TypeAdapter(ClusterConfig)


def read_cluster(path: str | os.PathLike[str]) -> Threads | LocalCluster | ExistingCluster:
    """Read and validate a cluster file.

    Raises
    ------
    StoreNotFoundError
        If there is no such file.
    InputError
        If it is not YAML or not a cluster; every problem is named.
    """
    try:
        text = Path(path).read_text()
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no cluster file {os.fspath(path)!r}") from None
    except OSError as error:
        raise InputError(f"cannot read cluster file {os.fspath(path)!r}: {error.strerror}") from None
    try:
        return _ADAPTER.validate_python(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise InputError(f"{os.fspath(path)} is not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        known = [name for kind in (Threads, LocalCluster, ExistingCluster) for name in kind.model_fields]
        raise InputError(explain(f"cluster file {os.fspath(path)}", error, known)) from None


def cluster_schema() -> dict[str, Any]:
    """JSON Schema of cluster files."""
    return _ADAPTER.json_schema()


@dataclass(frozen=True, slots=True)
class Size:
    """What a cluster has to give.

    Attributes
    ----------
    n_workers, n_threads
        Worker processes, and threads of all of them together.
    memory_per_thread
        Bytes; None where nobody limits it.
    """

    n_workers: int
    n_threads: int
    memory_per_thread: int | None


def cluster_size(config: Threads | LocalCluster | ExistingCluster) -> Size:
    """Say what a cluster will have; one that runs is asked, no other is started.

    Raises
    ------
    ClusterError
        If it cannot be reached.
    InputError
        If the limit of its memory cannot be read.
    """
    if isinstance(config, Threads):
        return Size(1, usable_cores(), None)
    if isinstance(config, LocalCluster):
        from distributed.worker_memory import parse_memory_limit

        workers, threads = _shares(config)
        try:
            limit = parse_memory_limit(config.memory_limit, threads, workers * threads, logger=_LOGGER)
        except ValueError as error:
            raise InputError(f"cannot read memory_limit {config.memory_limit!r} of the cluster: {error}") from None
        return Size(workers, workers * threads, None if not limit else int(limit) // threads)
    with connect(config) as client:
        if client is None:
            raise AssertionError("a scheduler has a client")
        found = workers_of(client)
        limits = [worker["memory_limit"] // worker["nthreads"] for worker in found if worker["memory_limit"]]
        return Size(len(found), sum(worker["nthreads"] for worker in found), min(limits) if limits else None)


def _shares(config: LocalCluster) -> tuple[int, int]:
    """Workers of a local cluster, and threads of each."""
    cores = usable_cores()
    workers = config.workers or max(1, -(-cores // _THREADS_PER_PROCESS))
    return workers, config.threads_per_worker or max(1, cores // workers)


@contextlib.contextmanager
def connect(config: Threads | LocalCluster | ExistingCluster) -> Iterator[Client | None]:
    """Start or reach a cluster, and leave it as it was found.

    Yields
    ------
    A client, or None for threads.

    Raises
    ------
    ClusterError
        If it cannot be started or reached in time.
    """
    if isinstance(config, Threads):
        yield None
        return
    if isinstance(config, LocalCluster):
        prepare_local_workers()
    import dask

    # Before settings are made: its import adds the defaults, which must not go when the settings do.
    import distributed

    with dask.config.set({**_SETTINGS, **config.dask}):
        if isinstance(config, LocalCluster):
            with _local(config) as cluster, distributed.Client(cluster) as client:
                yield client
        else:
            with _existing(config) as client:
                yield client


def _local(config: LocalCluster) -> RunningCluster:
    import distributed

    workers, threads = _shares(config)
    try:
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=config.memory_limit,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0" if config.dashboard else None,
            silence_logs=50,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(f"cannot start {workers} local workers with {threads} threads each: {error}") from error


@contextlib.contextmanager
def _existing(config: ExistingCluster) -> Iterator[Client]:
    import distributed

    if (config.address is None) == (config.scheduler_file is None):
        raise InputError("an existing cluster is given by an address or by a scheduler_file: one of the two")
    where = config.address or f"the scheduler of {config.scheduler_file}"
    try:
        if config.address is not None:
            client = distributed.Client(config.address, timeout=config.timeout_s)
        else:
            client = distributed.Client(scheduler_file=config.scheduler_file, timeout=config.timeout_s)
    except (OSError, TimeoutError) as error:
        raise ClusterError(f"cannot reach {where} within {config.timeout_s:g} s: {error}") from error
    with client:
        try:
            client.wait_for_workers(config.wait_for_workers, timeout=config.timeout_s)
        except TimeoutError as error:
            raise ClusterError(
                f"{where} had fewer than {config.wait_for_workers} workers after {config.timeout_s:g} s; start workers "
                "or raise timeout_s"
            ) from error
        yield client
