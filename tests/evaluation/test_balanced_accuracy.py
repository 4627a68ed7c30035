"""BAKS and BAUS: balanced accuracy on known and on unknown identities, under a threshold of the distance."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from agreement import as_feature_set, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.protocols import assign_relevance
from support.noted import codes, values_of
from support.reference import ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, scattered_sets

from reid_dist import FeatureSet, evaluate, reranked_distances
from reid_dist.errors import InputError


def expected(query, gallery, protocol, distance, threshold):
    """(BAKS, BAUS), None without such queries: the answer of each query, then means by identity."""
    relevant, junk = assign_relevance(query, gallery, protocol)
    distances = canonical_distances(query.features, gallery.features, distance)
    known, unknown = {}, {}
    for i, pid in enumerate(query.pids.tolist()):
        kept = [(distances[i, j], j) for j in range(len(gallery)) if not junk[i, j]]
        nearest, first = min(kept, default=(np.inf, -1))
        answer = gallery.pids[first] if nearest < threshold else "new"
        if relevant[i].any():
            known.setdefault(pid, []).append(answer == pid)
        elif pid == -1 or pid not in gallery.pids:
            unknown.setdefault(pid, []).append(answer == "new")
    means = [[Fraction(sum(right), len(right)) for right in each.values()] for each in (known, unknown)]
    return [sum(each) / len(each) if each else None for each in means]


@pytest.mark.hypothesis
@pytest.mark.parametrize("protocol", ["market1501", "no_cameras"])
@settings(max_examples=examples(10))
@given(data=st.data())
def test_small_sets(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=("palette", "few_valued")))
    query, gallery = problem.query, problem.gallery
    assume(order_is_unambiguous(query.features, gallery.features, "sqeuclidean"))
    # Also at distances that occur.
    threshold = data.draw(st.sampled_from(["0", "1", "2.5", "4", "1e6"]))
    known, unknown = expected(query, gallery, protocol, "sqeuclidean", float(threshold))
    assume(known is not None)
    names = [f"BAKS@T={threshold}"] + ([] if unknown is None else [f"BAUS@T={threshold}"])
    report = evaluate_items(
        query, gallery, protocol, "sqeuclidean", names, chunk_rows=data.draw(st.sampled_from([None, 3]))
    )
    found = [report.metrics[name] for name in names]
    assert found == pytest.approx([float(value) for value in (known, unknown)[: len(names)]], abs=1e-15)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sets", [crowded_sets, scattered_sets])
def test_larger_sets(sets):
    query, gallery = sets(40, 700, 6, seed=93)
    query = query + ItemSet(
        gallery.features[:7], np.repeat([900, 901], [5, 2]), gallery.camids[:7], np.arange(950, 957)
    )
    distances = canonical_distances(query.features, gallery.features, "euclidean")
    threshold = f"{np.quantile(distances, 0.01):.3g}"
    metrics = [f"BAKS@T={threshold}", f"BAUS@T={threshold}", "GAP"]
    found = [evaluate_items(query, gallery, "market1501", "euclidean", metrics, chunk_rows=rows) for rows in (None, 64)]
    assert found[0].result_digest == found[1].result_digest
    values = expected(query, gallery, "market1501", "euclidean", float(threshold))
    assert [found[0].metrics[name] for name in metrics[:2]] == pytest.approx(list(map(float, values)), abs=1e-15)


def line(places, pids):
    return FeatureSet.from_arrays(np.array(places, np.float32)[:, None], np.array(pids))


def test_by_hand():
    """Identity 1: two of three right under 3, one at 4 called new; 2: none; unknown 8: half called new, 9: not."""
    gallery = line([0, 10, 20], [1, 2, 3])
    query = line([1, 2, 4, 19, 13.5, 21, 9], [1, 1, 1, 2, 8, 8, 9])
    report = evaluate(query, gallery, protocol="no_cameras", distance="euclidean", metrics="BAKS@T=3,BAUS@T=3")
    assert report.metrics == {"BAKS@T=3": (2 / 3 + 0) / 2, "BAUS@T=3": (1 / 2 + 0) / 2}
    # Strictly nearer: a row at the threshold is not accepted.
    edge = evaluate(query, gallery, protocol="no_cameras", distance="euclidean", metrics="BAKS@T=1,BAUS@T=1")
    assert edge.metrics == {"BAKS@T=1": 0.0, "BAUS@T=1": 1.0}
    accepting = evaluate(query, gallery, protocol="no_cameras", distance="euclidean", metrics="BAKS@T=1e9")
    assert accepting.metrics == {"BAKS@T=1e9": 0.5}


def test_queries_of_unknown_identities_are_needed():
    near, far = line([1, 2], [1, 2]), line([1, 2, 3], [1, 2, 2])
    with pytest.raises(InputError, match="BAUS@T=x needs queries whose identity is not in the gallery"):
        evaluate(near, far, protocol="no_cameras", distance="euclidean", metrics="BAUS@T=3")


# ---- votes -----------------------------------------------------------------------------------------------------------


def by_votes(query, gallery, protocol, distances, k):
    """The k nearest kept rows of each query by sorting all, their identities counted."""
    relevant, junk = assign_relevance(query, gallery, protocol)
    right = {}
    for i, pid in enumerate(query.pids.tolist()):
        kept = sorted((distances[i, j], j) for j in range(len(gallery)) if not junk[i, j])[:k]
        voters = {}
        for value, j in kept:
            voters.setdefault(int(gallery.pids[j]), []).append(Fraction(value))
        if relevant[i].any():
            answer = min(voters, key=lambda each: (-len(voters[each]), sum(voters[each]) / len(voters[each]), each))
            right.setdefault(pid, []).append(answer == pid)
    means = [Fraction(sum(each), len(each)) for each in right.values()]
    return sum(means) / len(means) if means else None


@pytest.mark.quick_cases(1)
@pytest.mark.hypothesis
@pytest.mark.parametrize("protocol", ["market1501", "no_cameras"])
@settings(max_examples=examples(10))
@given(data=st.data())
def test_votes_of_small_sets(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=("palette", "few_valued")))
    query, gallery = problem.query, problem.gallery
    assume(order_is_unambiguous(query.features, gallery.features, "sqeuclidean"))
    ranks = [1, 2, 3, 5]
    distances = canonical_distances(query.features, gallery.features, "sqeuclidean")
    values = [by_votes(query, gallery, protocol, distances, k) for k in ranks]
    assume(values[0] is not None)
    names = [f"BAKS_votes@{k}" for k in ranks]
    chunk = data.draw(st.sampled_from([None, 3]))
    report = evaluate_items(query, gallery, protocol, "sqeuclidean", [*names, "BAKS@T=1e9", "GAP"], chunk_rows=chunk)
    assert [report.metrics[name] for name in names] == pytest.approx(list(map(float, values)), abs=1e-15)
    assert report.metrics["BAKS_votes@1"] == report.metrics["BAKS@T=1e9"]
    alone = evaluate_items(query, gallery, protocol, "sqeuclidean", ["GAP"])
    assert alone.metrics["GAP"] == report.metrics["GAP"]


@pytest.mark.parametrize("rerank", ["k_reciprocal(k1=6,k2=3)", "top(gnn(k1=6,k2=3),m=40)"])
def test_votes_under_a_re_ranking_of_each_query(rerank):
    """Votes are within one query, so that no common scale of the distances of all queries is needed."""
    query, gallery = scattered_sets(20, 200, 8, seed=94, n_pids=9)
    distances = reranked_distances(*map(as_feature_set, (query, gallery)), rerank=rerank)
    report = evaluate_items(query, gallery, "market1501", "cosine", ["BAKS_votes@3", "BAKS_votes@7"], rerank=rerank)
    for k in (3, 7):
        expected_value = by_votes(query, gallery, "market1501", distances, k)
        assert report.metrics[f"BAKS_votes@{k}"] == pytest.approx(float(expected_value), abs=1e-15)
    for metric in ("BAKS@T=0.5", "GAP"):
        with pytest.raises(InputError, match=f"^{metric} would compare re-ranked distances of different queries"):
            evaluate_items(query, gallery, "market1501", "cosine", [metric, "BAKS_votes@3"], rerank=rerank)


def test_votes_have_no_bounds_under_ties():
    """Rows tied at the k-th place vote in some orders alone, and not all of them are known."""
    query, gallery = crowded_sets(20, 300, 6, seed=95)
    metrics = ["BAKS_votes@3", "BAKS@T=0.2", "GAP"]
    report = evaluate_items(query, gallery, "market1501", "cosine", metrics, ties=True)
    assert all(set(report.ties[rule]) == {"BAKS@T=0.2", "GAP"} for rule in ("optimistic", "pessimistic"))
    assert values_of(report, "no_bounds_of_ties")["metric"] == "BAKS_votes@3"
    plain = evaluate_items(query, gallery, "market1501", "cosine", metrics)
    assert "no_bounds_of_ties" not in codes(plain)


def test_a_tie_of_votes_is_of_the_least_mean_distance():
    gallery = line([1, 4, 2, 2.5, 9], [1, 1, 2, 2, 3])
    found = evaluate(line([0, 0], [1, 2]), gallery, protocol="no_cameras", distance="euclidean", metrics="BAKS_votes@4")
    assert found.metrics == {"BAKS_votes@4": 0.5}
    # Distances 1 and 4 against 2 and 2.5: 2 has the lesser mean.
    one = evaluate(line([0], [2]), gallery, protocol="no_cameras", distance="euclidean", metrics="BAKS_votes@4")
    assert one.metrics == {"BAKS_votes@4": 1.0}
    more = evaluate(line([0], [1]), gallery, protocol="no_cameras", distance="euclidean", metrics="BAKS_votes@1")
    assert more.metrics == {"BAKS_votes@1": 1.0}
