"""Published cases as blocks, lists and reports."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist import (
    DistanceBlock,
    LabelledRows,
    compose_protocol,
    evaluate_distances,
)
from reid_dist.relevance.protocols import PROTOCOLS

# Smallest difference between the means of such fractions.
EXACT = 1e-12
NOTHING = {"good": [], "ok": [], "junk": []}
# A query without relevant items counts, as one that found nothing.
OXFORD_WITH_ZEROS = compose_protocol("oxford_with_zeros", base=PROTOCOLS.get("oxford"), invalid_query="counts as 0")


def assert_metrics(report, expected, tolerance=EXACT):
    """Metrics of a report, by our names."""
    assert set(expected) <= set(report.metrics)
    for name, value in expected.items():
        assert report.metrics[name] == pytest.approx(value, abs=tolerance), name


def assert_per_query(report, expected, tolerance=EXACT):
    """Values of every query, by our names."""
    for name, values in expected.items():
        np.testing.assert_allclose(report.per_query[name], values, rtol=0, atol=tolerance, err_msg=name)


def lists_of(relevant, junk=None):
    """Ground truth of every query, from masks of shape (n_query, n_gallery)."""
    relevant = np.asarray(relevant, bool)
    junk = np.zeros_like(relevant) if junk is None else np.asarray(junk, bool)
    return [
        NOTHING | {"ok": np.flatnonzero(row).tolist(), "junk": np.flatnonzero(hidden).tolist()}
        for row, hidden in zip(relevant & ~junk, junk, strict=True)
    ]


def unlabelled(shape):
    return tuple(LabelledRows(np.zeros(n, int)) for n in shape)


def evaluate_marked(distances, relevant, metrics, *, junk=None, protocol="oxford", **options):
    """Evaluate distances, with relevant items and junk as masks."""
    block = np.asarray(distances, np.float64)
    truth = lists_of(np.broadcast_to(relevant, block.shape), junk)
    return evaluate_distances(
        DistanceBlock.from_array(block), *unlabelled(block.shape), protocol=protocol, ground_truth=truth,
        metrics=list(metrics), confidence=None, **options,
    )  # fmt: skip


def in_order(hits, metrics, **options):
    """Evaluate ranked lists of hits and misses; rows of one length."""
    hits = np.asarray(hits, bool)
    return evaluate_marked(np.broadcast_to(np.arange(hits.shape[1]), hits.shape), hits, metrics, **options)
