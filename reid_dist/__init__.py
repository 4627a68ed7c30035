"""Exact, streaming, distributed evaluation of person and vehicle re-identification.

Start with `evaluate`: it takes two sets of features, as a `FeatureSet`, a path or a tuple of arrays, and returns a
`Report`.  `compare` and `compare_runs` test differences between reports.  Errors are in `reid_dist.errors`.

Names are imported at first use, so ``reid-dist --help`` does not load Dask, Zarr and Numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist._version import __version__
from reid_dist.core.lazy import lazy_names
from reid_dist.core.systems import refuse_windows

refuse_windows()

if TYPE_CHECKING:
    from reid_dist.evaluation.convention_passes import conventions
    from reid_dist.evaluation.convention_table import Conventions
    from reid_dist.evaluation.evaluate import evaluate_distances
    from reid_dist.evaluation.listed_evaluation import evaluate_lists
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
    from reid_dist.stages.reranking.neighbour_graph import NeighbourGraph, jaccard_distances
    from reid_dist.stages.reranking.precomputed import rerank_blocks
    from reid_dist.stores import DistanceBlock, FeatureSet, FeatureWriter, LabelledRows, append, fuse, ingest

__all__ = [
    "Conventions",
    "DistanceBlock",
    "FeatureSet",
    "FeatureWriter",
    "LabelledRows",
    "NeighbourGraph",
    "OperatingPoints",
    "Report",
    "__version__",
    "append",
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

_NAMES = {
    "evaluation.convention_passes": ("conventions",),
    "evaluation.convention_table": ("Conventions",),
    "evaluation.evaluate": ("evaluate_distances",),
    "evaluation.listed_evaluation": ("evaluate_lists",),
    "evaluation.operating": ("operating_points",),
    "evaluation.pairs": ("evaluate_pairs",),
    "evaluation.pooling": ("pool",),
    "evaluation.public": ("evaluate",),
    "evaluation.search": ("k_reciprocal_graph", "nearest", "reranked_distances"),
    "evaluation.splits": ("evaluate_splits",),
    "evaluation.sweeps": ("sweep_parameters",),
    "relevance.protocols": ("compose_protocol",),
    "reports": ("Report",),
    "reports.averages": ("average_runs",),
    "reports.comparison": ("compare",),
    "reports.operating_points": ("OperatingPoints",),
    "reports.tables": ("compare_runs",),
    "stages.reranking.neighbour_graph": ("NeighbourGraph", "jaccard_distances"),
    "stages.reranking.precomputed": ("rerank_blocks",),
    "stores": ("DistanceBlock", "FeatureSet", "FeatureWriter", "LabelledRows", "append", "fuse", "ingest"),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
