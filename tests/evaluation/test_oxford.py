"""Protocols of ground-truth lists: Oxford's, and the three of the revisited Oxford and Paris sets."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from agreement import assert_agrees, assert_same_scores, assert_ties_agree, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import evaluation, rank_metrics
from oracles.protocols import LIST_PROTOCOLS, assign_relevance
from support.reference import DISTANCES, ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems, scattered_sets

from reid_dist.errors import InputError

CUTOFFS = (1, 5, 10)
METRICS = ("mAP", "mAP_trapezoid", "mINP", "CMC@1", "CMC_allshots@2", *(f"P_clipped@{k}" for k in CUTOFFS))
REVISITOP = LIST_PROTOCOLS[1:]
LISTS = {"oxford": ("good", "ok", "junk"), **dict.fromkeys(REVISITOP, ("easy", "hard", "junk"))}


@st.composite
def ground_truths(draw, protocol, n_query, n_gallery):
    """For each query, each gallery row in one list or in none."""
    names = (*LISTS[protocol], None)
    truth = []
    for _ in range(n_query):
        places = draw(st.lists(st.sampled_from(names), min_size=n_gallery, max_size=n_gallery))
        truth.append({name: [j for j, place in enumerate(places) if place == name] for name in LISTS[protocol]})
    return truth


def list_problems(protocol, kinds=("palette", "few_valued", "scaled", "constant", "half")):
    """Sets with ground truth for all their queries."""
    return problems(kinds=kinds, max_query=5, max_gallery=20).flatmap(
        lambda problem: st.tuples(st.just(problem), ground_truths(protocol, len(problem.query), len(problem.gallery)))
    )


@cache
def fixed(protocol, n_query=12, n_gallery=150):
    """A crowded set and lists at random, with queries that have nothing to find."""
    query, gallery = crowded_sets(n_query, n_gallery, 8, seed=91)
    rng = np.random.default_rng(92)
    truth = []
    for number in range(n_query):
        shares = [0.0, 0.0, 0.3, 0.7] if number % 5 == 4 else [0.05, 0.1, 0.1, 0.75]
        place = rng.choice(4, n_gallery, p=shares)
        truth.append({name: np.flatnonzero(place == i).tolist() for i, name in enumerate(LISTS[protocol])})
    return query, gallery, truth


# ------------------------------------------------------------------------------------------------- the oracle


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_ranks_and_the_walk_down_the_list_agree(protocol, data):
    """Area and clipped precision from ranks after junk, and from positions that are moved up by the junk before."""
    problem, truth = data.draw(list_problems(protocol))
    expected = evaluation.evaluate(problem.query, problem.gallery, protocol, "sqeuclidean", METRICS, ground_truth=truth)
    relevant, junk = assign_relevance(problem.query, problem.gallery, protocol, truth)
    distances = canonical_distances(problem.query.features, problem.gallery.features, "sqeuclidean")
    areas, precisions = [], []
    for i in np.flatnonzero(relevant.any(axis=1)):
        order = np.lexsort((np.arange(len(problem.gallery)), distances[i]))
        area, precision = rank_metrics.walk_revisitop(order, relevant[i], junk[i], CUTOFFS)
        areas.append(area)
        precisions.append(precision)
    if expected is None:
        assert not areas
        return
    assert expected.metrics["mAP_trapezoid"] == pytest.approx(np.mean(areas), abs=1e-12)
    for k in CUTOFFS:
        mean = np.mean([precision[k] for precision in precisions])
        assert expected.metrics[f"P_clipped@{k}"] == pytest.approx(mean, abs=1e-12)


# -------------------------------------------------------------------------------------------------- reports


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_small_sets(protocol, data):
    problem, truth = data.draw(list_problems(protocol))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    options = {"max_rank": 10, "ground_truth": truth}
    expected = evaluation.evaluate(problem.query, problem.gallery, protocol, distance, METRICS, ties=True, **options)
    options["chunk_rows"] = data.draw(st.sampled_from([None, 3, 8]))
    if expected is None:
        with pytest.raises(InputError):
            evaluate_items(problem.query, problem.gallery, protocol, distance, METRICS, **options)
        return
    report = evaluate_items(problem.query, problem.gallery, protocol, distance, METRICS, ties=True, **options)
    assert_agrees(report, expected)
    assert_ties_agree(report, expected)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_a_crowded_set(protocol):
    query, gallery, truth = fixed(protocol)
    expected = evaluation.evaluate(query, gallery, protocol, "cosine", METRICS, max_rank=10, ground_truth=truth)
    assert 0 < expected.counts["n_valid"] < len(query)
    digests = set()
    for chunk in (None, 1, 7, 64):
        report = evaluate_items(
            query, gallery, protocol, "cosine", METRICS, max_rank=10, ground_truth=truth, chunk_rows=chunk
        )
        assert_agrees(report, expected)
        digests.add(report.result_digest)
    assert len(digests) == 1


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_identities_and_cameras_have_no_effect(protocol):
    """Relevance depends on lists alone; rows of pid -1 are no junk."""
    query, gallery, truth = fixed(protocol)
    report = evaluate_items(query, gallery, protocol, metrics=METRICS, ground_truth=truth)
    other_query = ItemSet(query.features, np.full(len(query), -1), item_ids=query.item_ids)
    other_gallery = ItemSet(gallery.features, np.full(len(gallery), -1), item_ids=gallery.item_ids)
    other = evaluate_items(other_query, other_gallery, protocol, metrics=METRICS, ground_truth=truth)
    assert_same_scores(other, report)
    assert other.counts["n_junk"] == report.counts["n_junk"]


def test_the_protocols_of_the_revisited_sets_by_hand():
    """One list: easy at 1 and 4, hard at 2 and 6, junk at 3, an unlisted item at 5."""
    gallery = ItemSet(np.arange(1, 7, dtype=np.float32)[:, None], np.arange(6), item_ids=np.arange(6))
    query = ItemSet(np.zeros((1, 1), np.float32), np.array([50]), item_ids=np.array([50]))
    truth = [{"easy": [0, 3], "hard": [1, 5], "junk": [2]}]
    ranks = {"revisitop_easy": [1, 2], "revisitop_medium": [1, 2, 3, 5], "revisitop_hard": [1, 3]}
    for protocol, expected in ranks.items():
        report = evaluate_items(query, gallery, protocol, "euclidean", METRICS, ground_truth=truth)
        for name in METRICS:
            assert report.metrics[name] == pytest.approx(rank_metrics.value(name, expected), abs=1e-15), (
                protocol,
                name,
            )
    assert report.metrics["mAP_trapezoid"] == pytest.approx((1 + (1 / 2 + 2 / 3) / 2) / 2, abs=1e-15)
    assert report.metrics["P_clipped@5"] == pytest.approx(2 / 3, abs=1e-15)


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_default_metrics_and_curves(protocol):
    query, gallery, truth = fixed(protocol)
    report = evaluate_items(query, gallery, protocol, metrics=None, max_rank=12, ground_truth=truth)
    expected = evaluation.evaluate(query, gallery, protocol, "cosine", METRICS, ground_truth=truth)
    assert {"mAP", "mINP", "mAP_trapezoid"} <= set(report.metrics)
    own = [f"P_clipped@{k}" for k in CUTOFFS] if protocol in REVISITOP else []
    assert set(own) <= set(report.metrics)
    for name in (*own, "mAP", "mINP", "mAP_trapezoid"):
        assert report.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-12)
    assert report.protocol["name"] == protocol
    assert report.protocol["ap_family"] == "mAP_trapezoid"
    assert len(report.curves["CMC"]) == 12


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_the_forms_of_the_ground_truth(protocol, tmp_path):
    query, gallery, truth = fixed(protocol)
    report = evaluate_items(query, gallery, protocol, metrics=METRICS, ground_truth=truth)
    by_name = {int(name): entry for name, entry in zip(query.item_ids, truth, strict=True)}
    backwards = dict(reversed(list(by_name.items())))
    one, two = tmp_path / "list.json", tmp_path / "mapping.json"
    one.write_text(json.dumps(truth))
    two.write_text(json.dumps({str(name): entry for name, entry in backwards.items()}))
    for form in (by_name, backwards, one, str(two)):
        other = evaluate_items(query, gallery, protocol, metrics=METRICS, ground_truth=form)
        assert other.result_digest == report.result_digest


def test_a_directory_of_oxford_lists(tmp_path):
    """Names map to items; queries are in the order of file names; a query in its own lists counts."""
    gallery = ItemSet(np.arange(1, 6, dtype=np.float32)[:, None], np.zeros(5, int),
                      item_ids=np.array(["ash_1", "ash_2", "ash_3", "elm_1", "elm_2"]))  # fmt: skip
    query = gallery.take([0, 3])
    for name, text in {
        "ash_1_query": "oxc1_ash_1 1 2 3 4\n",
        "ash_1_good": "ash_1\n",
        "ash_1_ok": "ash_3\n",
        "ash_1_junk": "ash_2\n",
        "elm_1_query": "oxc1_elm_1 1 2 3 4\n",
        "elm_1_good": "elm_2\n",
        "elm_1_ok": "",
        "elm_1_junk": "elm_1\n",
    }.items():
        (tmp_path / f"{name}.txt").write_text(text)
    report = evaluate_items(query, gallery, "oxford", "euclidean", METRICS, ground_truth=tmp_path)
    lists = [{"good": [0], "ok": [2], "junk": [1]}, {"good": [4], "ok": [], "junk": [3]}]
    expected = evaluation.evaluate(query, gallery, "oxford", "euclidean", METRICS, max_rank=50, ground_truth=lists)
    assert_agrees(report, expected)
    # Beside the second query lie ash_3 and elm_2, as near as each other.
    assert report.per_query["first_rank"].tolist() == [1, 2]
    assert report.per_query["n_relevant"].tolist() == [2, 1]


def test_reasons():
    query, gallery = scattered_sets(3, 4, 5, seed=93)
    truth = [{"ok": [1], "junk": [0]}, {"ok": [], "junk": [0]}, {"ok": [], "junk": [0, 1, 2, 3]}]
    report = evaluate_items(query, gallery, "oxford", metrics=METRICS, ground_truth=truth)
    assert report.per_query["reason"].tolist() == ["", "no_positive_in_gallery", "all_junk"]
    assert np.isnan(report.per_query["AP_trapezoid"][1:]).all()
    assert report.counts["n_valid"] == 1
    assert report.counts["n_junk"] == 1 + 1 + 4


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_without_ground_truth(protocol):
    query, gallery, _ = fixed(protocol)
    with pytest.raises(InputError, match="ground_truth") as caught:
        evaluate_items(query, gallery, protocol, metrics=METRICS)
    assert protocol in str(caught.value)


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_lists_of_the_other_kind(protocol):
    other = "revisitop_easy" if protocol == "oxford" else "oxford"
    query, gallery, truth = fixed(other)
    with pytest.raises(InputError, match=protocol):
        evaluate_items(query, gallery, protocol, metrics=METRICS, ground_truth=truth)


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_nothing_to_find(protocol):
    query, gallery = scattered_sets(3, 10, 5, seed=95)
    truth = [{name: [] for name in LISTS[protocol]} for _ in range(3)]
    with pytest.raises(InputError, match="no query has a relevant gallery item"):
        evaluate_items(query, gallery, protocol, metrics=METRICS, ground_truth=truth)
