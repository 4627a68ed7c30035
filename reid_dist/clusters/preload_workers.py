"""Imported after `reid_dist.clusters.preload`, once for all local workers."""

from __future__ import annotations

import contextlib
import gc
import importlib

from reid_dist.core.sources import sources_digest

MODULES = (
    "distributed",
    "distributed.nanny",
    "distributed.worker",
    "reid_dist.engine.graph",
)

# Nothing of it is freed, in this process or in a fork.
gc.disable()
# Where there is no room for them, or one is missing, the workers say so.
with contextlib.suppress(Exception):
    for _name in MODULES:
        importlib.import_module(_name)
# Of the code that is imported, also if its files change before a worker is started.
sources_digest()
gc.freeze()
gc.enable()
