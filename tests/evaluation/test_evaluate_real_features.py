"""Features of real models through the engine, held against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import (
    assert_agrees,
    evaluate_items,
)
from oracles import evaluation
from support.real_sets import read_sides
from support.reference import DISTANCES, canonical_distances, order_is_unambiguous

KNOWN = {}


def known_distances(query, gallery, distance):
    """Canonical distances, computed once: the files are large for an oracle."""
    key = (query.features.tobytes(), gallery.features.tobytes(), distance)
    if key not in KNOWN:
        KNOWN[key] = canonical_distances(query.features, gallery.features, distance)
    return KNOWN[key]


def check(query, gallery, protocol, distance):
    """Agreement, and one digest for three tile sizes."""
    # Real features hold no near-ties, so the margin may be that of float64 itself.
    if distance == "euclidean":
        distances = np.sqrt(known_distances(query, gallery, "sqeuclidean"))
    else:
        distances = known_distances(query, gallery, distance)
    assert order_is_unambiguous(query.features, gallery.features, distance, margin=1e-14, distances=distances)
    report = evaluate_items(query, gallery, protocol, distance)
    assert_agrees(report, evaluation.evaluate(query, gallery, protocol, distance, distances=distances))
    for chunk in (17, 64):
        other = evaluate_items(query, gallery, protocol, distance, chunk_rows=chunk)
        assert other.result_digest == report.result_digest
    return report


# Protocol, and some counts.
SETS = {
    "market1501_sample.mat": ("market1501", {"n_query": 100, "n_valid": 7, "n_gallery": 86}),
    "sketch_photo.mat": ("no_cameras", {"n_query": 50, "n_valid": 50}),
    "veri776_sample.npz": ("same_set", {"n_junk": 500}),
}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("name", SETS)
def test_agreement(shared_data, name, distance):
    protocol, counts = SETS[name]
    query, gallery = read_sides(shared_data(name))
    report = check(query, gallery, protocol, distance)
    assert {key: report.counts[key] for key in counts} == counts
    assert sum(report.counts["n_invalid_by_reason"].values()) == np.isnan(report.per_query["AP"]).sum()
    assert report.metrics["mAP"] > 0.1
