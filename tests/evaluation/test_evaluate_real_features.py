"""Features of real models through the engine, held against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_agrees, evaluate_items
from reference import DISTANCES, ItemSet, canonical_distances, order_is_unambiguous, reference_evaluate
from scipy.io import loadmat


def read_mat(path):
    """Query and gallery of a `pytorch_result.mat` layout."""
    content = loadmat(path)
    return [
        ItemSet(
            content[f"{name}_f"],
            content[f"{name}_label"].ravel().astype(np.int64),
            content[f"{name}_cam"].ravel().astype(np.int64),
        )
        for name in ("query", "gallery")
    ]


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
    assert_agrees(report, reference_evaluate(query, gallery, protocol, distance, distances=distances))
    for chunk in (17, 64):
        other = evaluate_items(query, gallery, protocol, distance, chunk_rows=chunk)
        assert other.result_digest == report.result_digest
    return report


@pytest.mark.parametrize("distance", DISTANCES)
def test_market1501(shared_data, distance):
    query, gallery = read_mat(shared_data("market1501_sample.mat"))
    report = check(query, gallery, "market1501", distance)
    assert (report.counts["n_query"], report.counts["n_valid"], report.counts["n_gallery"]) == (100, 7, 86)
    assert np.isnan(report.per_query["AP"]).sum() == 93
    assert sum(report.counts["n_invalid_by_reason"].values()) == 93


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", ["market1501", "no_cameras"])
def test_sketch_to_photo(shared_data, protocol, distance):
    query, gallery = read_mat(shared_data("sketch_photo.mat"))
    report = check(query, gallery, protocol, distance)
    assert report.counts["n_valid"] == report.counts["n_query"] == 50


@pytest.mark.parametrize("distance", DISTANCES)
def test_veri776(shared_data, distance):
    with np.load(shared_data("veri776_sample.npz")) as content:
        items = ItemSet(content["features"], content["pids"], None, np.arange(500))
    report = check(items, items, "same_set", distance)
    assert report.counts["n_junk"] == 500
    assert report.metrics["mAP"] > 0.2
