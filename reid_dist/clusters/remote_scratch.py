"""Preloaded by nannies that a batch system or SSH has started: their workers' scratch is for this user alone.

A nanny takes the settings of its worker after its preloads are imported, and the directory goes with the nanny.
"""

from __future__ import annotations

import dask

from reid_dist.clusters.scratch import scratch_directory

__all__: list[str] = []

_FOLDER = scratch_directory()
dask.config.set({"temporary-directory": _FOLDER.name})
