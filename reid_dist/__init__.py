"""Exact, streaming, distributed evaluation of person and vehicle re-identification.

Names are imported when they are first used, so that ``reid-dist --help`` does not pay for Dask, Zarr and Numba.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from reid_dist._version import __version__

if TYPE_CHECKING:
    from reid_dist.evaluation.conventions import Conventions, conventions
    from reid_dist.evaluation.evaluate import evaluate_distances
    from reid_dist.evaluation.lists import evaluate_lists
    from reid_dist.evaluation.operating import operating_points
    from reid_dist.evaluation.pairs import evaluate_pairs
    from reid_dist.evaluation.pooling import pool
    from reid_dist.evaluation.public import evaluate
    from reid_dist.evaluation.search import k_reciprocal_graph, nearest, reranked_distances
    from reid_dist.evaluation.splits import evaluate_splits
    from reid_dist.evaluation.sweeps import sweep_parameters
    from reid_dist.relevance.protocols import compose_protocol
    from reid_dist.reports import Report
    from reid_dist.reports.averages import average_runs
    from reid_dist.reports.comparison import compare
    from reid_dist.reports.operating_points import OperatingPoints
    from reid_dist.reports.tables import compare_runs
    from reid_dist.stages.reranking import NeighbourGraph, jaccard_distances, rerank_blocks
    from reid_dist.stores import DistanceBlock, FeatureSet, LabelledRows, fuse, ingest

__all__ = [
    "Conventions",
    "DistanceBlock",
    "FeatureSet",
    "LabelledRows",
    "NeighbourGraph",
    "OperatingPoints",
    "Report",
    "__version__",
    "average_runs",
    "compare",
    "compare_runs",
    "compose_protocol",
    "conventions",
    "evaluate",
    "evaluate_distances",
    "evaluate_lists",
    "evaluate_pairs",
    "evaluate_splits",
    "fuse",
    "ingest",
    "jaccard_distances",
    "k_reciprocal_graph",
    "nearest",
    "operating_points",
    "pool",
    "rerank_blocks",
    "reranked_distances",
    "sweep_parameters",
]

_HOMES = {
    "Conventions": "reid_dist.evaluation.conventions",
    "DistanceBlock": "reid_dist.stores",
    "FeatureSet": "reid_dist.stores",
    "LabelledRows": "reid_dist.stores",
    "NeighbourGraph": "reid_dist.stages.reranking",
    "OperatingPoints": "reid_dist.reports.operating_points",
    "Report": "reid_dist.reports",
    "average_runs": "reid_dist.reports.averages",
    "compare": "reid_dist.reports.comparison",
    "compare_runs": "reid_dist.reports.tables",
    "compose_protocol": "reid_dist.relevance.protocols",
    "conventions": "reid_dist.evaluation.conventions",
    "evaluate": "reid_dist.evaluation.public",
    "evaluate_distances": "reid_dist.evaluation.evaluate",
    "evaluate_lists": "reid_dist.evaluation.lists",
    "evaluate_pairs": "reid_dist.evaluation.pairs",
    "evaluate_splits": "reid_dist.evaluation.splits",
    "fuse": "reid_dist.stores",
    "ingest": "reid_dist.stores",
    "jaccard_distances": "reid_dist.stages.reranking",
    "k_reciprocal_graph": "reid_dist.evaluation.search",
    "nearest": "reid_dist.evaluation.search",
    "operating_points": "reid_dist.evaluation.operating",
    "pool": "reid_dist.evaluation.pooling",
    "rerank_blocks": "reid_dist.stages.reranking",
    "reranked_distances": "reid_dist.evaluation.search",
    "sweep_parameters": "reid_dist.evaluation.sweeps",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'reid_dist' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
