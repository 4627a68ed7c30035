"""Workers, threads and memory of a cluster, without starting it."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.clusters.connection import connect
from reid_dist.clusters.fields import memory_bytes
from reid_dist.clusters.kinds import (
    BatchCluster,
    Cluster,
    ExistingCluster,
    LocalCluster,
    SSHCluster,
    Threads,
)
from reid_dist.clusters.local import memory_of_worker, shares
from reid_dist.clusters.workers import workers_of
from reid_dist.core.environment import usable_cores


@dataclass(frozen=True, slots=True)
class Size:
    """Workers, threads and memory of a cluster.

    Attributes
    ----------
    n_workers, n_threads
        Worker processes, and threads of all of them together.
    memory_per_thread
        Bytes; None without a limit.
    """

    n_workers: int
    n_threads: int
    memory_per_thread: int | None


def cluster_size(config: Cluster) -> Size:
    """Return the size of a cluster; an existing one is reached, no other is started.

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
        return _size_of_local(config)
    if isinstance(config, ExistingCluster):
        return _size_of_existing(config)
    if isinstance(config, BatchCluster):
        n_workers = config.jobs * config.processes
        return Size(n_workers, config.jobs * config.cores, memory_bytes(config.memory) // config.cores)
    n_workers = len(config.worker_hosts) if isinstance(config, SSHCluster) else config.workers
    threads = config.threads_per_worker
    return Size(n_workers, n_workers * threads, memory_bytes(config.memory) // threads)


def _size_of_local(config: LocalCluster) -> Size:
    workers, threads = shares(config)
    limit = memory_of_worker(config)
    return Size(workers, workers * threads, None if limit is None else limit // threads)


def _size_of_existing(config: ExistingCluster) -> Size:
    with connect(config) as client:
        if client is None:
            raise AssertionError("a scheduler has a client")
        found = workers_of(client)
        limits = [worker["memory_limit"] // worker["nthreads"] for worker in found if worker["memory_limit"]]
        return Size(len(found), sum(worker["nthreads"] for worker in found), min(limits) if limits else None)
