"""Protocols of ground-truth lists: Oxford's, and the three of the revisited Oxford and Paris sets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from agreement import LIST_NAMES, assert_agrees, assert_same_scores, drawn_truth, evaluate_items
from oracles import evaluation, rank_metrics
from oracles.protocols import LIST_PROTOCOLS
from support.reference import ItemSet
from support.strategies import crowded_sets, scattered_sets

from reid_dist.errors import InputError

CUTOFFS = (1, 5, 10)
METRICS = ("mAP", "mAP_trapezoid", "mINP", "CMC@1", "CMC_allshots@2", *(f"P_clipped@{k}" for k in CUTOFFS))


def fixed(protocol):
    """A crowded set and lists at random, with queries that have nothing to find."""
    return *crowded_sets(12, 150, 8, seed=91), drawn_truth(protocol, 12, 150, seed=92)


# -------------------------------------------------------------------------------------------------- reports


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


@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_nothing_to_find(protocol):
    query, gallery = scattered_sets(3, 10, 5, seed=95)
    truth = [{name: [] for name in LIST_NAMES[protocol]} for _ in range(3)]
    with pytest.raises(InputError, match="no query has a relevant gallery item"):
        evaluate_items(query, gallery, protocol, metrics=METRICS, ground_truth=truth)
