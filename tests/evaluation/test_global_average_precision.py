"""GAP: one ranking of all queries by their nearest kept row."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from agreement import as_feature_set, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.protocols import PID_PROTOCOLS, assign_relevance
from support.reference import DISTANCES, ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, scattered_sets

from reid_dist import DistanceBlock, LabelledRows, evaluate, evaluate_distances
from reid_dist.errors import InputError

EXACT_KINDS = ("palette", "few_valued", "scaled", "constant")


def expected(query, gallery, protocol, distance, order="default"):
    """By sorting: answers of all queries, their confidence, and the precision at each correct one."""
    relevant, junk = assign_relevance(query, gallery, protocol)
    distances = canonical_distances(query.features, gallery.features, distance)
    answers = []
    for i in range(len(query)):
        kept = [(distances[i, j], j) for j in range(len(gallery)) if not junk[i, j]]
        if kept:
            nearest, first = min(kept)
            tied = [bool(relevant[i, j]) for value, j in kept if value == nearest]
            is_correct = {"default": bool(relevant[i, first]), "optimistic": any(tied), "pessimistic": all(tied)}
            place = {"default": i, "optimistic": not any(tied), "pessimistic": all(tied)}
            answers.append((nearest, place[order], is_correct[order]))
    n_valid = int(relevant.any(axis=1).sum())
    return value_of(sorted(answers), n_valid) if n_valid else None


def value_of(answers, n_valid):
    """Sum of the precisions at the correct answers, which are the last entries, by the number of valid queries."""
    total, n_correct = Fraction(0), 0
    for place, (*_, is_correct) in enumerate(answers, start=1):
        n_correct += is_correct
        total += Fraction(n_correct, place) if is_correct else 0
    return total / n_valid


def test_bounds_are_the_extremes_over_all_orders():
    """Every order of the tied rows of each query, and of the queries at one distance."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        distances = rng.integers(1, 4, (4, 4)).astype(float)
        query_pids, pids = np.array([1, 1, 2, 7]), rng.permutation([1, 2, 3, rng.integers(1, 3)])
        near = distances.min(axis=1)
        answers = [{bool(pids[j] == pid) for j in np.flatnonzero(row == row.min())}
                   for pid, row in zip(query_pids, distances, strict=True)]  # fmt: skip
        n_valid = int(np.isin(query_pids, pids).sum())
        values = [
            value_of([(near[i], correct[i]) for i in order], n_valid)
            for correct in itertools.product(*answers)
            for order in itertools.permutations(range(4))
            if (np.diff(near[list(order)]) >= 0).all()
        ]
        report = evaluate_distances(
            DistanceBlock.from_array(distances),
            LabelledRows(query_pids),
            LabelledRows(pids),
            protocol="no_cameras",
            metrics=["GAP"],
            ties=True,
        )
        found = [report.ties[rule]["GAP"] for rule in ("pessimistic", "optimistic")]
        assert found == pytest.approx([float(min(values)), float(max(values))], abs=1e-15), seed
        assert found[0] <= report.metrics["GAP"] <= found[1]


@pytest.mark.quick_cases(3)
@pytest.mark.hypothesis
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(8))
@given(data=st.data())
def test_small_sets(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=EXACT_KINDS))
    query, gallery = problem.query, problem.gallery
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(query.features, gallery.features, distance))
    value = expected(query, gallery, protocol, distance)
    assume(value is not None)
    chunk = data.draw(st.sampled_from([None, 3, 8]))
    report = evaluate_items(query, gallery, protocol, distance, ["GAP", "CMC@1"], ties=True, chunk_rows=chunk)
    assert report.metrics["GAP"] == pytest.approx(float(value), abs=1e-15)
    for order in ("optimistic", "pessimistic"):
        found = float(expected(query, gallery, protocol, distance, order))
        assert report.ties[order]["GAP"] == pytest.approx(found, abs=1e-15)


@pytest.mark.parametrize("sets", [crowded_sets, scattered_sets])
def test_larger_sets(sets):
    """With same-camera and junk rows nearer than all others, and beside open-set metrics, which use the same rows."""
    query, gallery = sets(40, 700, 6, seed=91)
    query = query + ItemSet(gallery.features[:5], np.full(5, 900), gallery.camids[:5], np.arange(950, 955))
    metrics = ["GAP", "DIR@FAR=0.4"]
    found = [evaluate_items(query, gallery, "market1501", "euclidean", metrics, chunk_rows=rows) for rows in (None, 64)]
    assert found[0].result_digest == found[1].result_digest
    assert found[0].metrics["GAP"] == pytest.approx(
        float(expected(query, gallery, "market1501", "euclidean")), abs=1e-15
    )
    alone = evaluate_items(query, gallery, "market1501", "euclidean", metrics[1:])
    assert alone.metrics["DIR@FAR=0.4"] == found[0].metrics["DIR@FAR=0.4"]
    assert evaluate_items(query, gallery, "market1501", "euclidean", ["GAP"]).verification is None


@pytest.mark.parametrize(
    ("benchmark", "protocol"), [("veri_wild_small", "no_cameras"), ("veri_wild_small_cross_camera", "market1501")]
)
def test_of_a_benchmark_that_other_codes_compute_in_other_ways(benchmark, protocol):
    """Items without identity and items of the query's camera are answers under none, or under some of the codes."""
    query, gallery = crowded_sets(30, 120, 6, seed=93, n_distinct=120, n_pids=6)
    found = evaluate(
        as_feature_set(query), as_feature_set(gallery), benchmark=benchmark, metrics=["mAP", "GAP"], confidence=None
    )
    assert found.metrics["GAP"] == pytest.approx(float(expected(query, gallery, protocol, "cosine")), abs=1e-15)


def test_by_hand():
    """Answers in order of distance: correct, of a query without relevant rows, correct; the fourth is wrong."""

    def line(places, pids, camera):
        return ItemSet(np.array(places, np.float32)[:, None], np.array(pids), np.full(4, camera), np.arange(4))

    gallery, query = line([0, 10, 20, 33], [1, 2, 3, 4], 1), line([1, 12, 23, 37], [1, 9, 3, 1], 0)
    report = evaluate_items(query, gallery, "market1501", "euclidean", ["GAP"])
    assert report.metrics["GAP"] == math.fsum([1, 2 / 3]) / 3
    assert not any("GAP" in name for name in report.per_query)


def test_it_needs_identities_and_comparable_distances():
    query, gallery = scattered_sets(10, 60, 6, seed=92)
    with pytest.raises(InputError, match="GAP would compare re-ranked distances of different queries"):
        evaluate_items(query, gallery, "market1501", "cosine", ["GAP"], rerank="k_reciprocal(k1=4,k2=2)")
