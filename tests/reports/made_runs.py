"""Reports with given values per query, for tests of what reads several of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from reid_dist import Report
from reid_dist.relevance.protocols import ZERO


def run(ap: Any, pids: Any, *, protocol: dict[str, Any] | None = None, **changes: Any) -> Report:
    """A report with the given AP per query, and an INP of half of it."""
    values, labels = np.asarray(ap, float), np.asarray(pids)
    invalid_query = (protocol or {}).get("invalid_query", "left out")
    counted = np.nan_to_num(values) if invalid_query == ZERO else values[~np.isnan(values)]
    described = {
        "uri": "memory", "shape": [len(labels), 8], "dtype": "float32", "content_digest": "c0", "labels_digest": "l0"
    }  # fmt: skip
    document: dict[str, Any] = {
        "metrics": {"mAP": float(np.mean(counted)), "TAR@FAR=0.01": 0.5},
        "curves": {"CMC": np.array([0.5, 1.0])},
        "counts": {
            "n_query": len(labels), "n_valid": int(np.sum(~np.isnan(values))), "n_gallery": 100, "n_junk": 0,
            "n_invalid_by_reason": {},
        },
        "per_query": {
            "AP": values, "INP": values / 2, "first_rank": np.ones(len(labels)), "pid": labels, "camid": labels % 3
        },
        "protocol": {"name": "market1501", "summary": "prose", "invalid_query": "left out"} | (protocol or {}),
        "distance": {"name": "cosine", "definition": "prose"},
        "inputs": {"query": dict(described), "gallery": described | {"shape": [100, 8]}},
        "environment": {"reid_dist": "0.1.0"},
    }  # fmt: skip
    return Report(**(document | changes))


def of(result: Any, name: str) -> Any:
    """The entry of a metric in a comparison or an average."""
    return next(metric for metric in result.metrics if metric.name == name)
