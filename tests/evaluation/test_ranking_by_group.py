"""Ranking by group: every group formed and sorted, with ties everywhere, junk in groups and groups of several pids."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.groups import rank_groups, walk_cross_modality
from oracles.protocols import LIST_PROTOCOLS, assign_relevance
from oracles.rank_metrics import average_precision, average_precision_trapezoid, inverse_negative_penalty, value
from support.reference import canonical_distances
from support.sampling import examples
from support.strategies import crowded_sets, seeds, whole_numbers

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    LabelledRows,
    compose_protocol,
    evaluate,
    evaluate_distances,
    evaluate_lists,
    evaluate_splits,
    reranked_distances,
    sweep_parameters,
)
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.metrics.metric import METRICS, RANKS, Metric

EXACT = 1e-12
ALL = ("mAP", "mAP_trapezoid", "mINP", "CMC@1", "CMC@3", "CMC_allshots@2", "P@2", "R@3", "MRR", "Rprec", "mAP_R")
PROTOCOLS = ("market1501", "market1501_matlab", "allshots", "no_cameras", "same_set", "cuhk03_separate_cameras")


def items_of(items, **columns):
    return FeatureSet.from_arrays(items.features, items.pids, items.camids, items.item_ids, columns=columns)


def rules(name):
    """A protocol; one of a single-shot CMC reports the usual one."""
    return compose_protocol("separate", base=name, cmc_family="CMC") if name.startswith("cuhk03") else name


@st.composite
def problems(draw):
    """Blocks of few distances, and labels: groups of one item, of all items, of one identity and of several."""
    n_query, n_gallery = draw(st.integers(1, 6)), draw(st.integers(1, 24))
    block = draw(whole_numbers((n_query, n_gallery), 0, draw(st.sampled_from([1, 4, 30])))).astype(np.float64)
    pids, n_cameras = draw(st.integers(0, 3)), draw(st.integers(1, 3))

    def labels(n, first):
        return draw(whole_numbers(n, -1, pids)), draw(whole_numbers(n, 1, n_cameras)), np.arange(n) + first

    query, gallery = labels(n_query, draw(st.integers(-3, 0))), labels(n_gallery, 0)
    kind = draw(st.sampled_from(["few", "many", "one", "single", "of one pid"]))
    group = {
        "few": lambda: draw(whole_numbers(n_gallery, 0, 3)),
        "many": lambda: draw(whole_numbers(n_gallery, 0, 12)),
        "one": lambda: np.zeros(n_gallery, np.int64),
        "single": lambda: np.arange(n_gallery),
        "of one pid": lambda: draw(whole_numbers(n_gallery, 0, 2)) + 10 * gallery[0],
    }[kind]()
    return block, LabelledRows(*query), LabelledRows(*gallery, columns={"track": group})


def label_of(gallery, label):
    return {"pid": gallery.pids, "camid": gallery.camids}.get(label, gallery.columns.get(label))


class Items:
    """Labels under the names of the oracles."""

    def __init__(self, labelled) -> None:
        self.pids, self.camids, self.item_ids = labelled.pids, labelled.camids, labelled.item_ids

    def __len__(self) -> int:
        return len(self.pids)


def assert_ranks_are(report, expected, zero=False):
    """A report against (`Ranking`, number of groups) of every query."""
    valid = [place for place, (ranking, _) in enumerate(expected) if ranking.ranks]
    n = len(expected) if zero else len(valid)
    assert report.counts["n_valid"] == len(valid)
    columns = {
        "AP": average_precision, "AP_trapezoid": average_precision_trapezoid, "INP": inverse_negative_penalty,
        "first_rank": lambda ranks: ranks[0], "last_rank": lambda ranks: ranks[-1],
    }  # fmt: skip
    for name, of_ranks in columns.items():
        found = [of_ranks(ranking.ranks) if ranking.ranks else math.nan for ranking, _ in expected]
        assert report.per_query[name] == pytest.approx(found, abs=EXACT, nan_ok=True), name
    assert report.per_query["n_relevant"].tolist() == [len(ranking.ranks) for ranking, _ in expected]
    assert report.per_query["n_kept"].tolist() == [n_groups for _, n_groups in expected]
    for name, mean in report.metrics.items():
        assert mean == pytest.approx(math.fsum(value(name, expected[q][0].ranks) for q in valid) / n, abs=EXACT), name
        for rule in {"optimistic", "pessimistic"} & set(report.ties):
            ranks = [getattr(expected[q][0], rule) for q in valid]
            assert report.ties[rule][name] == pytest.approx(
                math.fsum(value(name, each) for each in ranks) / n, abs=EXACT
            ), (rule, name)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_groups_are_ranked_at_their_nearest_kept_items(protocol, data):
    block, query, gallery = data.draw(problems())
    label = data.draw(st.sampled_from(["pid", "camid", "track"]))
    relevant, junk = assign_relevance(Items(query), Items(gallery), protocol)
    expected = [rank_groups(*rows, label_of(gallery, label)) for rows in zip(block, relevant, junk, strict=True)]
    assume(any(ranking.ranks for ranking, _ in expected))
    if protocol == "same_set":
        assume(np.isin(query.item_ids, gallery.item_ids).any())
    report = evaluate_distances(
        DistanceBlock.from_array(block), query, gallery, protocol=rules(protocol), metrics=ALL, collapse=label,
        chunk_rows=data.draw(st.sampled_from([None, 1, 3, 7])), ties=True, max_rank=5, confidence=None,
    )  # fmt: skip
    assert_ranks_are(report, expected, zero=protocol == "market1501_matlab")


@settings(max_examples=examples(20))
@given(data=st.data())
def test_groups_of_relevant_rows_in_lists(data):
    block, query, gallery = data.draw(problems())
    protocol = data.draw(st.sampled_from(LIST_PROTOCOLS))
    names = ("good", "ok", "junk") if protocol == "oxford" else ("easy", "hard", "junk")
    truth = []
    for _ in range(len(query)):
        of_row = data.draw(whole_numbers(len(gallery), 0, 4))
        truth.append({name: np.flatnonzero(of_row == place).tolist() for place, name in enumerate(names)})
    relevant, junk = assign_relevance(Items(query), Items(gallery), protocol, truth)
    expected = [rank_groups(*rows, gallery.columns["track"]) for rows in zip(block, relevant, junk, strict=True)]
    assume(any(ranking.ranks for ranking, _ in expected))
    report = evaluate_distances(
        DistanceBlock.from_array(block), query, gallery, protocol=protocol, ground_truth=truth, collapse="track",
        metrics=["mAP", "P_clipped@5"], confidence=None,
    )  # fmt: skip
    assert_ranks_are(report, expected)


@settings(max_examples=examples(20))
@given(data=st.data())
def test_groups_of_one_item_give_the_ranking_of_items(data):
    block, query, gallery = data.draw(problems())
    single = LabelledRows(gallery.pids, gallery.camids, columns={"own": np.arange(len(gallery))})
    options = {"metrics": ALL, "ties": True, "confidence": None, "max_rank": 9}
    try:
        plain = evaluate_distances(DistanceBlock.from_array(block), query, single, **options)
    except InputError:
        assume(False)
    grouped = evaluate_distances(DistanceBlock.from_array(block), query, single, collapse="own", **options)
    assert grouped.result_digest == plain.result_digest
    assert grouped.ties["optimistic"] == plain.ties["optimistic"]
    assert grouped.ties["pessimistic"] == plain.ties["pessimistic"]


# ------------------------------------------------------------------------------------------------ SYSU-MM01 and LLCM


def cross_modality_sets(seed, n_distinct):
    """Queries of cameras 3 and 6, a gallery of cameras 1, 2, 4 and 5; cameras 2 and 3 are at one place."""
    rng = np.random.default_rng(seed)
    features = rng.integers(-3, 4, (n_distinct, 4)).astype(np.float32)
    query = features[rng.integers(0, n_distinct, 30)], rng.integers(0, 9, 30), rng.choice([3, 6], 30)
    gallery = features[rng.integers(0, n_distinct, 80)], rng.integers(0, 8, 80), rng.choice([1, 2, 4, 5], 80)
    place = np.array([0, 1, 2, 2, 4, 5, 6])
    sets = [FeatureSet.from_arrays(*side, columns={"place": place[side[2]]}) for side in (query, gallery)]
    return query, gallery, sets


@settings(max_examples=examples(12))
@given(seed=seeds(), n_distinct=st.sampled_from([3, 12, 200]))
def test_the_rules_of_cross_modality_benchmarks(seed, n_distinct):
    query, gallery, sets = cross_modality_sets(seed, n_distinct)
    protocol = compose_protocol("by_place", junk=[["place"]], junk_pid=None, collapse="CMC:pid")
    report = evaluate(*sets, protocol=protocol, distance="sqeuclidean", max_rank=8, confidence=None)
    distances = canonical_distances(query[0], gallery[0], "sqeuclidean")
    curve, precision, penalty = walk_cross_modality(distances, query[1:], gallery[1:], {(3, 2)}, 8)
    assert report.curves["CMC"] == pytest.approx(curve, abs=EXACT)
    assert report.metrics["CMC@5"] == pytest.approx(curve[4], abs=EXACT)
    assert report.metrics["mAP"] == pytest.approx(precision, abs=EXACT)
    assert report.metrics["mINP"] == pytest.approx(penalty, abs=EXACT)


def test_one_metric_alone_ranks_groups_and_the_others_items():
    query, gallery = crowded_sets(30, 400, 8, seed=5)
    sets = items_of(query), items_of(gallery)
    metrics = ["mAP", "CMC@1", "CMC@8", "MRR", "TAR@FAR=0.1", "P@3"]
    both = evaluate(*sets, collapse="CMC,MRR:pid", metrics=metrics, ties=True, breakdowns=["camera"], topk=3)
    items = evaluate(*sets, metrics=metrics, ties=True, topk=3)
    groups = evaluate(*sets, collapse="pid", metrics=["CMC@1", "CMC@8", "MRR"], ties=True)
    of_groups = {"CMC@1", "CMC@8", "MRR"}
    for name, mean in both.metrics.items():
        assert mean == (groups if name in of_groups else items).metrics[name], name
        for rule in ("optimistic", "pessimistic"):
            assert both.ties[rule].get(name) == (groups if name in of_groups else items).ties[rule].get(name), name
    assert items.metrics["CMC@8"] < both.metrics["CMC@8"]
    assert np.array_equal(both.per_query["first_group_rank"], groups.per_query["first_rank"], equal_nan=True)
    for name in ("AP", "INP", "first_rank", "n_relevant", "n_kept"):
        assert np.array_equal(both.per_query[name], items.per_query[name], equal_nan=True), name
    assert np.array_equal(both.curves["CMC"], groups.curves["CMC"])
    assert np.array_equal(both.curves["P"], items.curves["P"])
    assert both.topk is not None
    assert items.topk is not None
    assert np.array_equal(both.topk.index, items.topk.index)
    described = both.protocol
    assert described["collapse"] == "CMC,MRR:pid"
    assert "groups of gallery items with one pid (CMC, MRR alone)" in described["ranked"]
    assert "items are groups by pid" in both.definitions["CMC@1"]
    assert "groups" not in both.definitions["mAP"]


def test_facts_of_metrics_on_the_first_positive_alone():
    """A metric that the first rank determines does not change with the others."""
    few = evaluate_distances(
        DistanceBlock.from_array(np.arange(9.0)[None]), LabelledRows([1], [0]),
        LabelledRows([2, 2, 1, 2, 1, 2, 2, 1, 2], np.ones(9, int)), metrics=["mAP"], confidence=None,
    )  # fmt: skip
    assert few.per_query["first_rank"].tolist() == [3]
    for family in METRICS:
        if family.needs == RANKS:
            names = [Metric(family, k).name for k in (1, 3, 4, 6)] if family.has_parameter else [family.name]
            lists = ([3, 5, 8], [3, 6, 9], [3])
            same = all(len({value(name, ranks, 12) for ranks in lists}) == 1 for name in names)
            assert family.first_alone == same, family.name


# ------------------------------------------------------------------------------------------------ one result


@cache
def large_sets():
    """Thousands of duplicates, tracks in stored order and scattered, some of them of two identities."""
    query, gallery = crowded_sets(40, 4000, 12, seed=31, n_distinct=300)
    rng = np.random.default_rng(32)
    tracks = {"track": rng.integers(0, 900, 4000), "sorted": np.arange(4000) // 5}
    return items_of(query), items_of(gallery, **tracks)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("rerank", ["k_reciprocal(k1=5,k2=2)", "k_reciprocal(k1=5,k2=2,lambda_value=0)"])
def test_groups_under_a_reranked_distance(rerank):
    near, far = large_sets()
    few = FeatureSet.from_arrays(far.read(0, 500), far.pids[:500], far.camids[:500], columns={
        "track": far.columns["track"][:500]
    })  # fmt: skip
    block = reranked_distances(near, few, rerank=rerank)
    options = {"collapse": "track", "metrics": ALL, "confidence": None}
    given_block = evaluate_distances(DistanceBlock.from_array(block), near, few, **options)
    assert evaluate(near, few, rerank=rerank, chunk_rows=64, **options).result_digest == given_block.result_digest


# ------------------------------------------------------------------------------------------------ splits and sweeps


def test_splits_by_identity_rank_as_each_drawn_gallery():
    query, gallery = crowded_sets(30, 300, 8, seed=6)
    sets = items_of(query), items_of(gallery)
    options = {"per_identity": 2, "per_camera": True, "repeats": 2, "metrics": ["mAP", "CMC@1", "CMC@3"]}
    items = evaluate_splits(*sets, **options)
    groups = evaluate_splits(*sets, collapse="CMC:pid", **options)
    assert groups.metrics["mAP"] == items.metrics["mAP"]
    assert groups.metrics["CMC@1"] == items.metrics["CMC@1"]
    assert groups.metrics["CMC@3"] > items.metrics["CMC@3"]
    assert groups.protocol["collapse"] == "CMC:pid"


def test_a_sweep_ranks_groups_at_every_point():
    query, gallery = crowded_sets(20, 200, 8, seed=7)
    sets = items_of(query), items_of(gallery)
    swept = sweep_parameters(*sets, expand="aqe", k="0:1", collapse="pid", metrics=["CMC@2"])
    assert swept.rows[0]["metrics"]["CMC@2"] == evaluate(*sets, collapse="pid", metrics=["CMC@2"]).metrics["CMC@2"]


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"collapse": "trak"}, "did you mean 'track'"),
        ({"collapse": "CMS:pid"}, "did you mean 'CMC'"),
        ({"collapse": ""}, "a label such as 'pid'"),
        ({"collapse": ":pid"}, "a label such as 'pid'"),
        ({"collapse": 3}, "found 3"),
        ({"collapse": "pid", "metrics": ["TAR@FAR=0.1"]}, "collapse CMC:pid"),
        ({"collapse": "pid", "metrics": ["mAP", "DIR@FAR=0.1"]}, "compare single items"),
        ({"collapse": "pid", "metrics": ["mAP", "GAP"]}, "GAP compare single items"),
        ({"collapse": "pid", "roc": True}, "roc compare single items"),
        ({"collapse": "pid", "metrics": ["CMC_single_shot@1"]}, "leave collapse out"),
        ({"collapse": "CMC:pid", "protocol": "cuhk03"}, "leave collapse out"),
        ({"collapse": "CMC:pid", "breakdowns": ["camera_pair"]}, "request it in a run without collapse"),
        ({"collapse": "track", "breakdowns": ["gallery_size"]}, "request it in a run without collapse"),
    ],
)
def test_what_cannot_be_combined_is_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message) as caught:
        evaluate(*large_sets(), **options)
    assert "\n" not in str(caught.value)


def test_labels_of_the_gallery_are_listed_where_the_label_is_missing():
    query, gallery = crowded_sets(5, 40, 4, seed=8)
    with pytest.raises(UnknownNameError, match="known: camid, pid"):
        evaluate(items_of(query), items_of(gallery), collapse="xyz")


def test_lists_hold_items():
    query, gallery = crowded_sets(5, 40, 4, seed=8)
    lists = np.tile(np.arange(10), (5, 1))
    with pytest.raises(InputError, match="collapse is not available for top-k lists"):
        evaluate_lists(lists, items_of(query), items_of(gallery), collapse="pid")
    grouped = compose_protocol("grouped", base="market1501", collapse="pid")
    with pytest.raises(InputError, match="top-k lists hold items"):
        evaluate_lists(lists, items_of(query), items_of(gallery), protocol=grouped)
    with pytest.raises(InputError, match="a label such as 'pid'"):
        compose_protocol("wrong", collapse=":")
