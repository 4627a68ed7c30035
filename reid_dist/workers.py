"""The process that local workers are forked from; standard library alone, so that it can be started first of all."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver

__all__ = ["prepare_local_workers"]

_PRELOADED = ["distributed", "distributed.nanny", "distributed.worker", "reid_dist.preload"]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def prepare_local_workers() -> None:
    """Start the process that local workers will be forked from, and do not wait for it.

    It imports Dask, Zarr and Numba, which takes about a second, while this process does the same on another core; each
    worker then starts in milliseconds and shares those pages.  It has no threads, so forking it is safe, and it ends
    with this process.  A second call does nothing.
    """
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    # BLAS reads these when it is loaded; a pool of its own in the server would be a thread.
    os.environ.update({name: value for name, value in _ONE_THREAD.items() if before[name] is None})
    try:
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
