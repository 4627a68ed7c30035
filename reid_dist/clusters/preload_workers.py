"""Imported after `reid_dist.clusters.preload`, once for all local workers."""

from __future__ import annotations

import contextlib
import gc
import importlib

MODULES = (
    "distributed",
    "distributed.nanny",
    "distributed.worker",
    "reid_dist.engine.graph",
)

# Nothing of it is freed, in this process or in a fork.
gc.disable()
# Where there is no room for them, the workers say so.
with contextlib.suppress(MemoryError, ImportError, OSError, RuntimeError):
    for _name in MODULES:
        importlib.import_module(_name)
gc.freeze()
gc.enable()
