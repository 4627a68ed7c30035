"""Every protocol, table and metric over pairs: worker processes give the bits of this process."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import evaluate_items
from oracles.protocols import CMC_FAMILY, LIST_PROTOCOLS, PID_PROTOCOLS
from support.reference import ItemSet
from support.strategies import crowded_sets

PAIR_METRICS = ("TAR@FAR=0.01", "TAR@FAR=0.2", "EER", "DIR@FAR=0.1")


@cache
def sets():
    """Thousands of exact duplicates, junk, and queries without relevant items."""
    query, gallery = crowded_sets(40, 2500, 16, seed=121, n_distinct=60)
    return query + ItemSet(query.features[:5], np.arange(800, 805), query.camids[:5], np.arange(9000, 9005)), gallery


@cache
def lists(protocol):
    """Rows of the gallery in some lists."""
    names = ("good", "ok", "junk") if protocol == "oxford" else ("easy", "hard", "junk")
    query, gallery = sets()
    rng = np.random.default_rng(122)
    return [
        {name: rows.tolist() for name, rows in zip(names, np.split(rng.permutation(len(gallery))[:90], 3), strict=True)}
        for _ in range(len(query))
    ]


def options_for(protocol):
    """All outputs of a protocol at once."""
    family = CMC_FAMILY.get(protocol, "CMC")
    options = {
        "metrics": ["mAP", "mAP_trapezoid", "mAP_found@5", "P_clipped@5", f"{family}@3", "CMC_allshots@2"],
        "ties": True,
        "breakdowns": ["camera", "identity", "gallery_size"],
        "gallery_sizes": [100, 1234],
    }
    if protocol in LIST_PROTOCOLS:
        return {**options, "ground_truth": lists(protocol)}
    return {**options, "breakdowns": [*options["breakdowns"], "camera_pair"]}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", [*PID_PROTOCOLS, *LIST_PROTOCOLS])
def test_protocols(two_workers, protocol):
    query, gallery = sets()
    if protocol == "same_set":
        query = gallery.take(range(0, 2500, 60))
    here = evaluate_items(query, gallery, protocol, **options_for(protocol))
    there = evaluate_items(query, gallery, protocol, chunk_rows=300, client=two_workers, **options_for(protocol))
    assert there.result_digest == here.result_digest
    assert there.breakdowns == here.breakdowns
    assert there.ties == here.ties
    assert there.counts == here.counts


@pytest.mark.slow
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
def test_pairs(two_workers, distance):
    query, gallery = sets()
    here = evaluate_items(query, gallery, "market1501", distance, PAIR_METRICS, roc=True)
    for chunk in (None, 37, 1000):
        there = evaluate_items(
            query, gallery, "market1501", distance, PAIR_METRICS, roc=True, chunk_rows=chunk, client=two_workers
        )
        assert there.result_digest == here.result_digest
        assert there.verification == here.verification


@pytest.mark.slow
def test_draws(two_workers):
    query, gallery = sets()
    options = {"metrics": ["CMC_single_shot@1"], "single_shot_draws": 5, "seed": 9}
    here = evaluate_items(query, gallery, "cuhk03", **options)
    there = evaluate_items(query, gallery, "cuhk03", chunk_rows=400, client=two_workers, **options)
    assert there.result_digest == here.result_digest
