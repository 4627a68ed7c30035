"""Features of real models through the engine, held against the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import (
    assert_agrees,
    evaluate_items,
)
from oracles import evaluation, verification
from oracles.protocols import assign_relevance
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


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("distance", DISTANCES)
def test_market1501(shared_data, distance):
    query, gallery = read_sides(shared_data("market1501_sample.mat"))
    report = check(query, gallery, "market1501", distance)
    assert (report.counts["n_query"], report.counts["n_valid"], report.counts["n_gallery"]) == (100, 7, 86)
    assert np.isnan(report.per_query["AP"]).sum() == 93
    assert sum(report.counts["n_invalid_by_reason"].values()) == 93


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", ["market1501", "no_cameras"])
def test_sketch_to_photo(shared_data, protocol, distance):
    query, gallery = read_sides(shared_data("sketch_photo.mat"))
    report = check(query, gallery, protocol, distance)
    assert report.counts["n_valid"] == report.counts["n_query"] == 50


@pytest.mark.slow
@pytest.mark.parametrize("distance", DISTANCES)
def test_veri776(shared_data, distance):
    items, _ = read_sides(shared_data("veri776_sample.npz"))
    report = check(items, items, "same_set", distance)
    assert report.counts["n_junk"] == 500
    assert report.metrics["mAP"] > 0.2


# ---------------------------------------------------------------------- protocols and metrics beyond the first three

SETS = ("market1501_sample.mat", "sketch_photo.mat", "veri776_sample.npz")
FAR = ("0", "0.001", "0.01", "0.1", "0.5")
EXACT = 1e-12


@pytest.fixture(params=SETS)
def named_sets(request, shared_data):
    """Name of a file, and its query and gallery."""
    return request.param, *read_sides(shared_data(request.param))


@pytest.mark.slow
def test_verification(named_sets):
    """TAR at a FAR, the equal error rate and, where queries have no mates at all, the open-set rate."""
    name, query, gallery = named_sets
    protocol = "same_set" if name == "veri776_sample.npz" else "market1501"
    distances = known_distances(query, gallery, "cosine")
    relevant, junk = assign_relevance(query, gallery, protocol)
    pairs = verification.pairs_of(distances, relevant, junk)
    probes = verification.probes_of(query, gallery, distances, relevant, junk)
    # Thresholds compare pairs of all queries: no two distances may be so close that rounding decides.
    gaps = np.diff(np.unique(distances))
    assert gaps.min() > 1e-14
    assert bool(probes.non_mated) == (name == "market1501_sample.mat")
    names = [f"TAR@FAR={rate}" for rate in FAR] + ["EER"]
    names += [f"DIR@FAR={rate}" for rate in FAR] if probes.non_mated else []
    report, other = (
        evaluate_items(query, gallery, protocol, "cosine", names, roc=True, chunk_rows=chunk) for chunk in (None, 41)
    )
    assert report.result_digest == other.result_digest
    assert report.verification == other.verification
    for rate in FAR:
        tar = f"TAR@FAR={rate}"
        assert report.metrics[tar] == float(verification.tar_at_far(pairs, rate)), tar
        threshold = float(verification.threshold_at(pairs.impostor, rate))
        assert report.verification["thresholds"][tar] == pytest.approx(threshold, abs=EXACT)
        if probes.non_mated:
            assert report.metrics[f"DIR@FAR={rate}"] == float(verification.dir_at_far(probes, rate)), rate
    assert report.metrics["EER"] == pytest.approx(float(verification.equal_error_rate(pairs)), abs=EXACT)
    counts = {"n_genuine": len(pairs.genuine), "n_impostor": len(pairs.impostor)}
    if probes.non_mated:
        counts |= {"n_mated": len(probes.mated), "n_non_mated": len(probes.non_mated)}
        assert counts["n_non_mated"] > 50
    assert {count: report.verification[count] for count in counts} == counts
    assert_is_the_curve_of_scikit_learn(report, distances[~junk], relevant[~junk])


def assert_is_the_curve_of_scikit_learn(report, distances, genuine):
    from sklearn.metrics import roc_curve

    far, tar, _ = roc_curve(genuine, -distances, drop_intermediate=False)
    for x, y in zip(report.curves["ROC_FAR"], report.curves["ROC_TAR"], strict=True):
        # The last rate that is no more than this one; a rate that is meant exactly may be off by its last bit.
        assert y == pytest.approx(tar[np.flatnonzero(far <= x + EXACT)[-1]], abs=EXACT), x
