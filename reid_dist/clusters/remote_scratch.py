"""Preloaded by schedulers and nannies that a batch system or SSH has started: scratch is for this user alone.

A scheduler makes its scratch after its preloads are imported, and a nanny starts its worker after they are set up; the
directory is removed with their process.  A nanny has made Dask's own directory before, and leaves it empty.
"""

from __future__ import annotations

from typing import Any

import dask

from reid_dist.clusters.security import scratch_directory
from reid_dist.core.semaphores import noted_semaphores

_FOLDER = scratch_directory()
# As long as this process: those of its nanny.
_NOTED = noted_semaphores(_FOLDER.name)
_NOTED.__enter__()
dask.config.set({"temporary-directory": _FOLDER.name})


def dask_setup(server: Any) -> None:
    """Have a nanny pass the directory on to its worker; Dask calls this when a server starts."""
    if hasattr(server, "worker_kwargs"):
        server.worker_kwargs["local_directory"] = _FOLDER.name


def remove() -> None:
    """Remove the directory, for a process that ends without its exit handlers."""
    _FOLDER.cleanup()
