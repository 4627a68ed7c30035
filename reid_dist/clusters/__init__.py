"""Where a job runs: a cluster file in YAML becomes a Dask client, or None for threads of this process.

A cluster file holds nothing about data and cannot run code: it is validated field by field, it can start only the kinds
of `reid_dist.clusters.kinds`, and no field holds words for a shell.

Connections use TLS, also on loopback, which every user of a machine reaches.  Any process that reaches a scheduler
without it can run code there, so such an address beyond loopback is refused unless the file has ``insecure: true``.

Names are imported when they are first used: the process that local workers are forked from is started before Dask,
Numba and pydantic are imported here, and imports them at the same time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reid_dist.clusters.beside import compile_beside
    from reid_dist.clusters.connection import Size, cluster_size, connect
    from reid_dist.clusters.kinds import (
        ClusterConfig,
        ExistingCluster,
        LocalCluster,
        Threads,
        cluster_schema,
        read_cluster,
    )
    from reid_dist.clusters.single_job import take_part
    from reid_dist.clusters.workers import prepare_local_workers

__all__ = [
    "ClusterConfig",
    "ExistingCluster",
    "LocalCluster",
    "Size",
    "Threads",
    "cluster_schema",
    "cluster_size",
    "compile_beside",
    "connect",
    "prepare_local_workers",
    "read_cluster",
    "take_part",
]

_HOMES = {
    "ClusterConfig": "kinds",
    "ExistingCluster": "kinds",
    "LocalCluster": "kinds",
    "Size": "connection",
    "Threads": "kinds",
    "cluster_schema": "kinds",
    "cluster_size": "connection",
    "compile_beside": "beside",
    "connect": "connection",
    "prepare_local_workers": "workers",
    "read_cluster": "kinds",
    "take_part": "single_job",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
