"""Worker processes on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from reid_dist.clusters.kinds import LocalCluster
from reid_dist.environment import usable_cores
from reid_dist.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["open_local", "shares"]

# One worker process per this many threads: kernels and BLAS release the GIL, reading and merging hold it now and then.
_THREADS_PER_PROCESS = 8


def shares(config: LocalCluster) -> tuple[int, int]:
    """Workers of a local cluster, and threads of each."""
    cores = usable_cores()
    workers = config.workers or max(1, -(-cores // _THREADS_PER_PROCESS))
    return workers, config.threads_per_worker or max(1, cores // workers)


@contextlib.contextmanager
def open_local(config: LocalCluster) -> Iterator[Client]:
    """Start workers, and stop them."""
    import distributed

    workers, threads = shares(config)
    try:
        cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            memory_limit=config.memory_limit,
            host="127.0.0.1",
            # None would be Dask's own default: a server at a fixed port, which a second run finds taken.
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": config.dashboard},
            silence_logs=50,
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(f"cannot start {workers} local workers with {threads} threads each: {error}") from error
    with cluster, distributed.Client(cluster) as client:
        yield client
