"""Exact, streaming, distributed evaluation of person and vehicle re-identification.

Names are imported when they are first used, so that ``reid-dist --help`` does not pay for Dask, Zarr and Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from reid_dist._version import __version__

if TYPE_CHECKING:
    from reid_dist.comparison import compare
    from reid_dist.evaluation import evaluate, evaluate_distances
    from reid_dist.listed_evaluation import evaluate_lists
    from reid_dist.pooling import pool
    from reid_dist.protocols import compose_protocol
    from reid_dist.reports import Report
    from reid_dist.reranking import NeighbourGraph, jaccard_distances, rerank_blocks
    from reid_dist.search import k_reciprocal_graph, nearest, reranked_distances
    from reid_dist.splits import evaluate_splits
    from reid_dist.stores import DistanceBlock, FeatureSet, LabelledRows, ingest
    from reid_dist.tuning import sweep_parameters

__all__ = [
    "DistanceBlock",
    "FeatureSet",
    "LabelledRows",
    "NeighbourGraph",
    "Report",
    "__version__",
    "compare",
    "compose_protocol",
    "evaluate",
    "evaluate_distances",
    "evaluate_lists",
    "evaluate_splits",
    "ingest",
    "jaccard_distances",
    "k_reciprocal_graph",
    "nearest",
    "pool",
    "rerank_blocks",
    "reranked_distances",
    "sweep_parameters",
]

_HOMES = {
    "DistanceBlock": "reid_dist.stores",
    "FeatureSet": "reid_dist.stores",
    "LabelledRows": "reid_dist.stores",
    "NeighbourGraph": "reid_dist.reranking",
    "Report": "reid_dist.reports",
    "compare": "reid_dist.comparison",
    "compose_protocol": "reid_dist.protocols",
    "evaluate": "reid_dist.evaluation",
    "evaluate_distances": "reid_dist.evaluation",
    "evaluate_lists": "reid_dist.listed_evaluation",
    "evaluate_splits": "reid_dist.splits",
    "ingest": "reid_dist.stores",
    "jaccard_distances": "reid_dist.reranking",
    "k_reciprocal_graph": "reid_dist.search",
    "nearest": "reid_dist.search",
    "pool": "reid_dist.pooling",
    "rerank_blocks": "reid_dist.reranking",
    "reranked_distances": "reid_dist.search",
    "sweep_parameters": "reid_dist.tuning",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'reid_dist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
