"""Imported after `reid_dist.clusters.preload`, once for all local workers."""

from __future__ import annotations

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
try:
    for _name in MODULES:
        importlib.import_module(_name)
except Exception as error:
    # The server goes on without a module that is missing, and the process that needs it reports why.
    raise ImportError(f"cannot import {_name}") from error
gc.freeze()
gc.enable()
