"""From a cluster file to a client, and the end of what was started."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.batch import open_batch
from reid_dist.clusters.existing import open_existing
from reid_dist.clusters.gateway import open_gateway
from reid_dist.clusters.kinds import Cluster, LocalCluster, Threads
from reid_dist.clusters.kubernetes import open_kubernetes
from reid_dist.clusters.local import open_local
from reid_dist.clusters.settings import PAGES, in_force
from reid_dist.clusters.single_job import open_single_job
from reid_dist.clusters.ssh import open_ssh
from reid_dist.clusters.workers import prepare_local_workers

if TYPE_CHECKING:
    from distributed import Client


# What a cluster file may start, by its kind; nothing else can be named.
_OPENERS: dict[str, Callable[[Any], contextlib.AbstractContextManager[Client]]] = {
    "local": open_local,
    "existing": open_existing,
    "ssh": open_ssh,
    "kubernetes": open_kubernetes,
    "gateway": open_gateway,
    "slurm": open_batch,
    "slurm_single_job": open_single_job,
    "pbs": open_batch,
    "lsf": open_batch,
    "sge": open_batch,
}


@contextlib.contextmanager
def connect(config: Cluster) -> Iterator[Client | None]:
    """Start or reach a cluster, and leave it as it was found.

    Yields
    ------
    A client, or None for threads.

    Raises
    ------
    ClusterError
        If it cannot be started or reached in time.
    InputError
        If the cluster file has a setting that is not allowed, or a package is not installed.
    """
    if isinstance(config, Threads):
        yield None
        return
    if isinstance(config, LocalCluster):
        prepare_local_workers()
    pages = PAGES if getattr(config, "dashboard", False) else ()
    with in_force(config.dask, pages), _OPENERS[config.kind](config) as client:
        yield client
