"""Metrics of the answer to each query, its nearest kept row or the votes of some: GAP, BAKS and BAUS."""

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
from support.noted import codes, values_of
from support.reference import ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, scattered_sets

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, evaluate, evaluate_distances, reranked_distances
from reid_dist.errors import InputError


def balanced_accuracies(query, gallery, protocol, distance, threshold):
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


def global_precision(query, gallery, protocol, distance, order="default"):
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


@pytest.mark.quick_cases(3)
@pytest.mark.hypothesis
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_small_sets(protocol, data):
    """All beside each other, thresholds at distances that occur, and GAP under each order of ties."""
    problem = data.draw(problems_for(protocol, kinds=("palette", "few_valued", "constant")))
    sides, distance = (problem.query, problem.gallery), "sqeuclidean"
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    gap = global_precision(*sides, protocol, distance)
    assume(gap is not None)
    threshold = data.draw(st.sampled_from(["0", "1", "2.5", "4", "1e6"]))
    known, unknown = balanced_accuracies(*sides, protocol, distance, float(threshold))
    distances = canonical_distances(problem.query.features, problem.gallery.features, distance)
    values = {f"BAKS_votes@{k}": by_votes(*sides, protocol, distances, k) for k in (1, 2, 3, 5)}
    values |= {"GAP": gap, f"BAKS@T={threshold}": known}
    values |= {} if unknown is None else {f"BAUS@T={threshold}": unknown}
    names = [*values, "CMC@1", "BAKS@T=1e9"]
    chunk = data.draw(st.sampled_from([None, 3, 8]))
    report = evaluate_items(*sides, protocol, distance, names, ties=True, chunk_rows=chunk)
    for name, value in values.items():
        assert report.metrics[name] == pytest.approx(float(value), abs=1e-15), name
    assert report.metrics["BAKS_votes@1"] == report.metrics["BAKS@T=1e9"]
    for order in ("optimistic", "pessimistic"):
        found = float(global_precision(*sides, protocol, distance, order))
        assert report.ties[order]["GAP"] == pytest.approx(found, abs=1e-15)
    alone = evaluate_items(*sides, protocol, distance, ["GAP"])
    assert (alone.metrics["GAP"], alone.verification) == (report.metrics["GAP"], None)


@pytest.mark.parametrize("sets", [crowded_sets, scattered_sets])
def test_larger_sets(sets):
    """With same-camera and junk rows nearer than all others, and beside open-set metrics, which use the same rows."""
    query, gallery = sets(40, 700, 6, seed=91)
    query = query + ItemSet(gallery.features[:5], np.full(5, 900), gallery.camids[:5], np.arange(950, 955))
    metrics = ["GAP", "DIR@FAR=0.4", "BAKS@T=0.7", "BAUS@T=0.7"]
    found = [evaluate_items(query, gallery, "market1501", "euclidean", metrics, chunk_rows=rows) for rows in (None, 64)]
    assert found[0].result_digest == found[1].result_digest
    gap = global_precision(query, gallery, "market1501", "euclidean")
    accuracies = balanced_accuracies(query, gallery, "market1501", "euclidean", 0.7)
    values = [found[0].metrics[name] for name in ("GAP", *metrics[2:])]
    assert values == pytest.approx([float(value) for value in (gap, *accuracies)], abs=1e-15)
    alone = evaluate_items(query, gallery, "market1501", "euclidean", metrics[1:2])
    assert alone.metrics["DIR@FAR=0.4"] == found[0].metrics["DIR@FAR=0.4"]


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


def line(places, pids):
    return FeatureSet.from_arrays(np.array(places, np.float32)[:, None], np.array(pids))


def test_gap_by_hand():
    """Answers in order of distance: correct, of a query without relevant rows, correct; the fourth is wrong."""
    gallery, query = line([0, 10, 20, 33], [1, 2, 3, 4]), line([1, 12, 23, 37], [1, 9, 3, 1])
    report = evaluate(query, gallery, protocol="no_cameras", distance="euclidean", metrics="GAP")
    assert report.metrics["GAP"] == math.fsum([1, 2 / 3]) / 3
    assert not any("GAP" in name for name in report.per_query)


def test_balanced_accuracies_by_hand():
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
