"""Clusters on this machine, as tests start them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from distributed import Client, LocalCluster


@contextlib.contextmanager
def started(n_workers: int, directory: Path) -> Iterator[Client]:
    """A client of worker processes with one thread each, closed in the order that leaves no warning."""
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            local_directory=str(directory),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
