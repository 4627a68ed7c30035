"""Where a job runs: a cluster file in YAML becomes a Dask client, or None for threads of this process.

A cluster file holds nothing about data and cannot run code: it is validated field by field, it can start only the kinds
of `reid_dist.clusters.kinds`, and no field holds words for a shell.

Connections use TLS, also on loopback, which every user of a machine reaches.  Any process that reaches a scheduler
without it can run code there, so such an address beyond loopback is refused unless the file has ``insecure: true``.

Names are imported when they are first used: the process that local workers are forked from is started before Dask,
Numba and pydantic are imported here, and imports them at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.clusters.connection import cluster_size, connect
    from reid_dist.clusters.kinds import (
        ClusterConfig,
        ExistingCluster,
        LocalCluster,
        Threads,
        cluster_schema,
        read_cluster,
    )
    from reid_dist.clusters.local import EarlyCluster
    from reid_dist.clusters.single_job import take_part

__all__ = [
    "ClusterConfig",
    "EarlyCluster",
    "ExistingCluster",
    "LocalCluster",
    "Threads",
    "cluster_schema",
    "cluster_size",
    "connect",
    "read_cluster",
    "take_part",
]

_NAMES = {
    "connection": ("cluster_size", "connect"),
    "kinds": ("ClusterConfig", "ExistingCluster", "LocalCluster", "Threads", "cluster_schema", "read_cluster"),
    "local": ("EarlyCluster",),
    "single_job": ("take_part",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
