"""Clusters on this machine, as tests start them, on free ports.

Without an address for its web server, Dask takes one fixed port, and warns of the second cluster that uses it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster

from reid_dist.clusters.local import keep_preloaded_modules
from reid_dist.clusters.workers import prepare_local_workers

WEB_ADDRESS = "127.0.0.1:0"


def dask_words(scheduler_file: Path) -> tuple[str, ...]:
    """What `dask scheduler` and `dask worker` of one cluster are both started with."""
    local = ("--host", "127.0.0.1", "--scheduler-file", str(scheduler_file))
    return (*local, "--no-dashboard", "--dashboard-address", WEB_ADDRESS)


@contextlib.contextmanager
def local_cluster(**options: Any) -> Iterator[LocalCluster]:
    """Worker processes with one thread each, unless the options set another number.

    They are forked from the process that workers of a command are forked from, since each would import Dask, Zarr and
    Numba otherwise, and get the environment of this process as it is now.
    """
    settings = {
        "threads_per_worker": 1,
        "processes": True,
        "host": "127.0.0.1",
        "dashboard_address": WEB_ADDRESS,
        "scheduler_kwargs": {"dashboard": False},
        "silence_logs": 50,
    }
    if options.get("processes", True):
        prepare_local_workers()
        keep_preloaded_modules()
        settings["env"] = {**os.environ}
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        LocalCluster(**{**settings, **options}) as cluster,
    ):
        yield cluster


@contextlib.contextmanager
def started(n_workers: int, directory: Path, **options: Any) -> Iterator[Client]:
    """A client of a local cluster, closed in the order that leaves no warning."""
    with (
        local_cluster(n_workers=n_workers, local_directory=str(directory), **options) as cluster,
        Client(cluster) as client,
    ):
        yield client
