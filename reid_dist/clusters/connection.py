"""Clients of clusters, and sizes of clusters without starting them."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reid_dist.clusters.kinds import (
    BatchCluster,
    Cluster,
    ExistingCluster,
    LocalCluster,
    SSHCluster,
    Threads,
    memory_bytes,
)
from reid_dist.clusters.local import EarlyCluster, memory_of_worker, shares
from reid_dist.clusters.settings import forced_products, forcing, in_force, pages_of
from reid_dist.clusters.workers import prepare_local_workers, workers_of
from reid_dist.core.environment import threads_of_process
from reid_dist.kernels.warmup import warmup

if TYPE_CHECKING:
    from distributed import Client


# What a cluster file may start, by its kind: a module and its function; nothing else can be named.
_OPENERS = {
    "local": ("local", "open_local"),
    "existing": ("existing", "open_existing"),
    "ssh": ("ssh", "open_ssh"),
    "kubernetes": ("managed", "open_kubernetes"),
    "gateway": ("managed", "open_gateway"),
    "slurm": ("batch", "open_batch"),
    "slurm_single_job": ("single_job", "open_single_job"),
    "pbs": ("batch", "open_batch"),
    "lsf": ("batch", "open_batch"),
    "sge": ("batch", "open_batch"),
}


@contextlib.contextmanager
def connect(config: Cluster, *, early: EarlyCluster | None = None) -> Iterator[Client | None]:
    """Start or reach a cluster and yield its client, None for threads; end what was started.

    `early` is the cluster if it has been started.
    Raises `ClusterError` if it cannot be started or reached in time, and `InputError` if a package is not installed.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(forcing(config.screen, config.device, gpus=config.expects_gpus))
        if isinstance(config, LocalCluster):
            prepare_local_workers()
        if isinstance(config, Threads | LocalCluster):
            warmup(integers=forced_products() != "float32")
        if isinstance(config, Threads):
            yield None
            return
        if early is None:
            stack.enter_context(in_force(config.dask, pages_of(config)))
        module, name = _OPENERS[config.kind]
        opener = getattr(importlib.import_module(f"reid_dist.clusters.{module}"), name)
        # What was started early is local, and has its settings.
        yield stack.enter_context(opener(config) if early is None else opener(config, early))


@dataclass(frozen=True, slots=True)
class Size:
    """Worker processes of a cluster, threads of all of them together, and bytes of a thread (None for no limit)."""

    n_workers: int
    n_threads: int
    memory_per_thread: int | None


def cluster_size(config: Cluster) -> Size:
    """Return the size of a cluster; an existing one is reached, no other is started."""
    if isinstance(config, Threads):
        return Size(1, *threads_of_process())
    if isinstance(config, LocalCluster):
        workers, threads = shares(config)
        limit = memory_of_worker(config)
        return Size(workers, workers * threads, None if limit is None else limit // threads)
    if isinstance(config, ExistingCluster):
        return _size_of_existing(config)
    if isinstance(config, BatchCluster):
        n_workers = config.jobs * config.processes
        return Size(n_workers, config.jobs * config.cores, memory_bytes(config.memory) // config.cores)
    n_workers = len(config.worker_hosts) if isinstance(config, SSHCluster) else config.workers
    threads = config.threads_per_worker
    return Size(n_workers, n_workers * threads, memory_bytes(config.memory) // threads)


def _size_of_existing(config: ExistingCluster) -> Size:
    with connect(config) as client:
        if client is None:
            raise AssertionError("a scheduler has a client")
        found = [*workers_of(client).values()]
        limits = [worker["memory_limit"] // worker["nthreads"] for worker in found if worker["memory_limit"]]
        return Size(len(found), sum(worker["nthreads"] for worker in found), min(limits) if limits else None)
