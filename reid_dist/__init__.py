"""Exact, streaming, distributed evaluation of person and vehicle re-identification.

Names are imported when they are first used, so that ``reid-dist --help`` does not pay for Dask, Zarr and Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from reid_dist._version import __version__

if TYPE_CHECKING:
    from reid_dist.evaluation import evaluate, nearest
    from reid_dist.reports import Report
    from reid_dist.stores import FeatureSet

__all__ = ["FeatureSet", "Report", "__version__", "evaluate", "nearest"]

_HOMES = {
    "FeatureSet": "reid_dist.stores",
    "Report": "reid_dist.reports",
    "evaluate": "reid_dist.evaluation",
    "nearest": "reid_dist.evaluation",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'reid_dist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
