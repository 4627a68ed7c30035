"""Preloaded by schedulers and nannies that a batch system or SSH has started: scratch is for this user alone.

A scheduler makes its scratch after its preloads are imported, and a nanny starts its worker after they are set up; the
directory goes with their process.  A nanny has made Dask's own directory before, and leaves it empty.
"""

from __future__ import annotations

from typing import Any

import dask

from reid_dist.clusters.scratch import scratch_directory

_FOLDER = scratch_directory()
dask.config.set({"temporary-directory": _FOLDER.name})


def dask_setup(server: Any) -> None:
    """Have a nanny pass the directory on to its worker; Dask calls this when a server starts."""
    # It has taken Dask's own before, and has no public name for what it passes on.
    if hasattr(server, "_original_local_dir"):
        server._original_local_dir = _FOLDER.name


def remove() -> None:
    """Remove the directory, for a process that ends without its exit handlers."""
    _FOLDER.cleanup()
