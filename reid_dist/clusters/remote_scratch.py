"""Preloaded by schedulers and nannies that a batch system or SSH has started: scratch is for this user alone.

A scheduler makes its scratch, and a nanny takes the settings of its worker, after preloads are imported; the directory
goes with their process.  A nanny has made Dask's own directory before, and leaves it empty.
"""

from __future__ import annotations

import dask

from reid_dist.clusters.scratch import scratch_directory

__all__: list[str] = []

_FOLDER = scratch_directory()
dask.config.set({"temporary-directory": _FOLDER.name})
