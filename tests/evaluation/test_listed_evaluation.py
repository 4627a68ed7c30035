"""Evaluation of top-k lists: metrics that the lists determine are exact, others lie between two bounds."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import as_feature_set, drawn_truth
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import evaluation
from oracles.protocols import CMC_FAMILY, LIST_PROTOCOLS, PID_PROTOCOLS
from oracles.rank_metrics import value
from support.reference import ItemSet, canonical_distances, rank_one_query
from support.refusals import in_full
from support.sampling import examples
from support.strategies import problems_for

from reid_dist import (
    LabelledRows,
    Report,
    compose_protocol,
    evaluate,
    evaluate_lists,
)
from reid_dist.errors import InputError
from reid_dist.metrics.metric import METRICS as REGISTERED
from reid_dist.reports import print_report

EXACT = 1e-12
METRICS = (
    *("mAP", "mAP_trapezoid", "MRR", "Rprec", "CMC@1", "CMC@3", "CMC_allshots@2", "mAP@3", "P@2", "R@2", "R@9"),
    *("P_clipped@5", "P_min@4", "CMC_allshots@7", "mAP_min@4", "mAP_R"),
)
# Distances of whole numbers are exact in any order of summation, so the oracle may settle every tie.
KINDS = ("palette", "few_valued", "constant")
BY_RANKS = tuple(name for name in PID_PROTOCOLS if not name.startswith("cuhk03"))


def labels_of(items):
    return LabelledRows(items.pids, items.camids, items.item_ids)


def nearest_rows(query, gallery, k):
    """Gallery rows of every query by (distance, row), junk included, -1 where there are no more."""
    distances = canonical_distances(query.features, gallery.features, "sqeuclidean")
    order = np.argsort(distances, axis=1, kind="stable")[:, :k]
    padding = ((0, 0), (0, max(0, k - len(gallery))))
    near = np.take_along_axis(distances, order, axis=1)
    return np.pad(order, padding, constant_values=-1), np.pad(near, padding, constant_values=np.inf)


def evaluate_items(query, gallery, k, protocol="market1501", metrics=METRICS, **options):
    index, distance = nearest_rows(query, gallery, k)
    return evaluate_lists(
        index, labels_of(query), labels_of(gallery), distance=distance, protocol=protocol,
        **{"metrics": None if metrics is None else list(metrics), "confidence": None, **options},
    )  # fmt: skip


@cache
def crowded(n_query=30, n_gallery=160):
    """Few different rows, so that most positives are tied with negatives; some queries have no relevant item."""
    rng = np.random.default_rng(51)
    rows = rng.integers(-2, 3, (25, 4)).astype(np.float32)
    pids = rng.integers(0, 9, n_query)
    query = ItemSet(
        rows[rng.integers(0, 25, n_query)],
        np.where(np.arange(n_query) % 8 == 7, pids + 100, pids),
        rng.integers(0, 3, n_query),
        np.arange(1000, 1000 + n_query),
    )
    gallery = ItemSet(
        rows[rng.integers(0, 25, n_gallery)],
        rng.integers(-1, 9, n_gallery),
        rng.integers(0, 3, n_gallery),
        np.arange(n_gallery),
    )
    return query, gallery


# -------------------------------------------------------------------------------------------------- whole lists


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("k", [160, 200])
@pytest.mark.parametrize("protocol", [*BY_RANKS, *LIST_PROTOCOLS])
def test_whole_lists_agree_with_features(protocol, k):
    """To the last bit, mINP included, whether or not -1 fills the lists up."""
    query, gallery = crowded()
    names = [*METRICS, "mINP", "mAP_found@3"]
    options = {"ground_truth": drawn_truth(protocol, 30, 160, seed=52)} if protocol in LIST_PROTOCOLS else {}
    if protocol == "same_set":
        query = gallery.take(range(0, 160, 5))
    options |= {"protocol": protocol, "max_rank": 25}
    features = evaluate(
        as_feature_set(query), as_feature_set(gallery), distance="sqeuclidean", metrics=names, **options
    )
    report = evaluate_items(query, gallery, k, metrics=names, **{**options, "confidence": 0.95})
    assert report.metrics == features.metrics
    assert list(report.metrics) == names
    assert report.bounds == {}
    assert {name: curve.tobytes() for name, curve in report.curves.items()} == {
        name: curve.tobytes() for name, curve in features.curves.items()
    }
    assert report.confidence == features.confidence
    assert {name: report.counts[name] for name in features.counts} == features.counts
    for name, values in report.per_query.items():
        if name in features.per_query:
            assert np.array_equal(values, features.per_query[name], equal_nan=values.dtype.kind == "f"), name
    assert np.array_equal(report.per_query["AP_lower"], report.per_query["AP_upper"], equal_nan=True)
    assert {"AP", "INP", "first_rank", "n_relevant", "reason"} <= set(report.per_query)


# ---------------------------------------------------------------------------------------------------- cut lists


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", BY_RANKS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_cut_lists(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=KINDS))
    query, gallery = problem.query, problem.gallery
    family = CMC_FAMILY.get(protocol, "CMC")
    expected = evaluation.evaluate(query, gallery, protocol, "sqeuclidean", (*METRICS, "mINP"), max_rank=12)
    assume(expected is not None)
    k = data.draw(st.integers(1, len(gallery) + 2))
    report = evaluate_items(query, gallery, k, protocol, max_rank=12)

    assert set(report.metrics) | set(report.bounds) == set(METRICS)
    assert not set(report.metrics) & set(report.bounds)
    for name, found in report.metrics.items():
        assert found == pytest.approx(expected.metrics[name], abs=EXACT), name
    for name, (low, high) in report.bounds.items():
        assert low < high
        assert low - EXACT <= expected.metrics[name] <= high + EXACT, name
    for name, curve in report.curves.items():
        whole = {**expected.curves, **expected.more_curves}[name]
        assert len(curve) <= len(whole)
        np.testing.assert_allclose(curve, whole[: len(curve)], rtol=0, atol=EXACT, err_msg=name)
    assert set(report.curves) <= {family, "precision_recall", "P", "R"}

    per_query = report.per_query
    invalid = np.isnan(expected.per_query["AP"])
    for name in ("AP", "INP"):
        true, low, high = expected.per_query[name], per_query[f"{name}_lower"], per_query[f"{name}_upper"]
        assert np.isnan(low).tolist() == np.isnan(high).tolist() == invalid.tolist()
        assert (low[~invalid] - EXACT <= true[~invalid]).all()
        assert (true[~invalid] <= high[~invalid] + EXACT).all()
    known = ~np.isnan(per_query["first_rank"])
    assert per_query["first_rank"][known].tolist() == expected.per_query["first_rank"][known].tolist()
    assert {name: report.counts[name] for name in expected.counts} == expected.counts
    for row, reasons in enumerate(expected.reasons):
        assert str(per_query["reason"][row]) in reasons


def test_bounds_are_reached():
    """The best and the worst ranking that begin with the lists give just these means, by the oracle's formulas."""
    query, gallery = crowded()
    index, _ = nearest_rows(query, gallery, 12)
    whole = evaluation.evaluate(query, gallery, "market1501", "sqeuclidean")
    report = evaluate_lists(index, labels_of(query), labels_of(gallery), metrics=["mAP", "R@30", "MRR"])
    for side, sign in ((0, 1), (1, -1)):
        means = {name: [] for name in report.bounds}
        for i in range(len(query)):
            if not whole.relevant[i].any():
                continue
            # Listed rows in their order, then the others: negatives first, or positives first.
            place = np.full(len(gallery), np.inf)
            place[index[i]] = np.arange(12) - 1000
            outside = np.isinf(place)
            place[outside] = np.where(whole.relevant[i][outside], sign, 0)
            ranks = rank_one_query(place, whole.relevant[i], whole.junk[i]).ranks
            for name in means:
                means[name].append(value(name, ranks))
        for name, values in means.items():
            assert report.bounds[name][side] == pytest.approx(np.mean(values), abs=EXACT), (side, name)
    assert set(report.bounds) == {"mAP", "R@30", "MRR"}


def test_invalid_queries_count_as_zero_in_bounds_too():
    query, gallery = crowded()
    one, other = (evaluate_items(query, gallery, 10, name) for name in ("market1501", "market1501_matlab"))
    share = one.counts["n_valid"] / 30
    assert share < 1
    assert {"mAP", "mINP"} & set(one.bounds)
    for name, ends in one.bounds.items():
        assert other.bounds[name] == pytest.approx([share * end for end in ends], abs=EXACT)
    for name, found in one.metrics.items():
        assert other.metrics[name] == pytest.approx(share * found, abs=EXACT)


def test_intervals_are_of_what_is_exact():
    report = evaluate_items(*crowded(), 10, confidence=0.9)
    assert set(report.confidence["intervals"]) == set(report.metrics) != set()
    assert report.confidence["level"] == 0.9


def test_nothing_is_exact():
    """Lists of one row, none of them relevant: all is bounds, and the report still has its pages."""
    query, gallery = LabelledRows([1, 2]), LabelledRows([1, 2, 3, 3])
    report = evaluate_lists([[2], [3]], query, gallery, protocol="no_cameras", metrics=["mAP"])
    assert report.metrics == {}
    assert report.bounds["mAP"] == pytest.approx([1 / 4, 1 / 2])
    assert report.confidence is None
    assert report.curves["CMC"].tolist() == [0.0]
    assert "mAP" in report.to_html()


def test_cameras_that_do_not_count():
    """Rows of other cameras are junk for every query, listed or not, and are counted as such."""
    query, gallery = crowded()
    protocol = compose_protocol("two_of_three", base="market1501", query_cameras=[0, 2], gallery_cameras=[0, 1])
    features = evaluate(
        as_feature_set(query), as_feature_set(gallery), distance="sqeuclidean", protocol=protocol, confidence=None
    )
    report = evaluate_items(query, gallery, 160, protocol, None)
    assert report.metrics == features.metrics
    assert {name: report.counts[name] for name in features.counts} == features.counts
    assert features.counts["n_junk_rows"] > (gallery.pids == -1).sum()


# ------------------------------------------------------------------------------------------------------ the form


def test_lists_of_any_whole_numbers_are_one_input():
    query, gallery = crowded()
    index, distance = nearest_rows(query, gallery, 20)
    near, far = labels_of(query), labels_of(gallery)
    reports = [
        evaluate_lists(form, near, far, distance=given, metrics=METRICS)
        for form, given in (
            (index, None), (index, distance), (index.astype(np.uint8), distance.astype(np.float32)),
            (index.astype(">i4"), distance.astype(int)), (np.asfortranarray(index), None), (index.tolist(), None),
        )
    ]  # fmt: skip
    assert len({report.result_digest for report in reports}) == 1
    assert len({report.inputs["lists"]["content_digest"] for report in reports}) == 1
    assert reports[0].inputs["lists"]["shape"] == [30, 20]
    other = index.copy()
    other[3, [4, 5]] = other[3, [5, 4]]
    changed = evaluate_lists(other, near, far, metrics=METRICS).inputs["lists"]
    assert changed["content_digest"] != reports[0].inputs["lists"]["content_digest"]


def test_a_report_of_lists_is_a_report(tmp_path, capsys):
    report = evaluate_items(*crowded(), 10, confidence=0.95)
    assert report.bounds
    report.save(tmp_path / "out")
    again = Report.load(tmp_path / "out")
    assert again.result_digest == report.result_digest
    assert (again.bounds, again.metrics, again.options) == (report.bounds, report.metrics, again.options)
    assert again.notes == report.notes
    page = (tmp_path / "out" / "report.html").read_text()
    print_report(again)
    printed = " ".join(capsys.readouterr().out.split())
    low, high = (f"{100 * end:.2f}" for end in report.bounds["mAP"])
    for text in (page, printed):
        assert low in text
        assert high in text
        assert "lists of length 10" in text
    assert report.distance["name"] == "lists"
    assert "n_tied_positives" not in report.ties


# -------------------------------------------------------------------------------------------------------- refusals


def test_minp_by_name_needs_the_last_positive():
    """By default its bounds are reported; requested by name, it is refused with a remedy."""
    query, gallery = crowded()
    with pytest.raises(InputError, match=r"metric 'mINP' needs the rank of every query's last positive") as refused:
        evaluate_items(query, gallery, 10, metrics=["mAP", "mINP"])
    for advice in ("keep longer lists", "R@10", "evaluate the feature stores"):
        assert advice in in_full(refused.value)
    report = evaluate_items(query, gallery, 10, metrics=None)
    low, high = report.bounds["mINP"]
    assert low < evaluation.evaluate(query, gallery, "market1501", "sqeuclidean", ["mINP"]).metrics["mINP"] < high
    assert evaluate_items(query, gallery, 160, metrics=["mINP"]).bounds == {}


def test_lists_that_hold_every_positive_are_enough():
    """Not the whole gallery, but all positives: every rank is known."""
    query, gallery = LabelledRows([1, 2]), LabelledRows([1, 2, 3, 1, 2])
    report = evaluate_lists([[3, 0], [1, 4]], query, gallery, protocol="no_cameras", metrics=["mINP", "mAP", "CMC@50"])
    assert report.metrics == {"mINP": 1.0, "mAP": 1.0, "CMC@50": 1.0}
    assert len(report.curves["CMC"]) == 50


def test_every_registered_metric_is_exact_bounded_or_refused():
    query, gallery = crowded()
    for family in REGISTERED:
        name = family.name.replace("@k", "@50").replace("=x", "=0.1")
        if family.needs == "ranks" and name not in ("mAP_found@50", "mINP"):
            report = evaluate_items(query, gallery, 10, metrics=[name])
            assert [*report.metrics, *report.bounds] == [name]
        else:
            with pytest.raises(InputError, match=f"metric '{name}'"):
                evaluate_items(query, gallery, 10, metrics=[name])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", ["cuhk03", "cuhk03_separate_cameras"])
def test_single_shot_protocols(protocol):
    """Lists do not give their CMC, which is refused as a default; rank metrics are reported."""
    query, gallery = crowded()
    with pytest.raises(InputError, match=r"metric 'CMC_single_shot@1' is not available for top-k lists"):
        evaluate_items(query, gallery, 10, protocol, None)
    report = evaluate_items(query, gallery, 160, protocol, ["mAP"])
    expected = evaluation.evaluate(query, gallery, protocol, "sqeuclidean")
    assert report.metrics["mAP"] == pytest.approx(expected.metrics["mAP"], abs=EXACT)
    assert not any(name.startswith("CMC") for name in report.curves)


@pytest.mark.parametrize(
    "option",
    [
        {"ties": True}, {"breakdowns": ["camera"]}, {"gallery_sizes": [10]}, {"gallery_sizes": np.array([10, 20])},
        {"single_shot_draws": 10}, {"roc": True}, {"topk": 5}, {"breakdowns": ("gallery_size",)},
    ],
    ids=str,
)  # fmt: skip
def test_options_that_lists_do_not_determine_are_refused(option):
    (name,) = option
    with pytest.raises(
        InputError, match=f"^{name} is not available for top-k lists; evaluate the feature stores or a d"
    ):
        evaluate_items(*crowded(), 10, **option)


@pytest.mark.parametrize(
    ("option", "part"),
    [
        ({"tie": True}, "unknown option 'tie'; did you mean 'ties'"),
        ({"max_ranks": 3}, "did you mean 'max_rank'"),
        ({"metrics": ["mAPP"]}, "did you mean 'mAP'"),
        ({"metrics": []}, "empty list"),
        ({"metrics": ["mAP_found@50"]}, r"metric 'mAP_found@50' needs longer lists"),
        ({"protocol": "market"}, "did you mean 'market1501'"),
        ({"protocol": "oxford"}, "needs a ground truth"),
        ({"max_rank": 0}, "max_rank must be a whole number from 1"),
        ({"confidence": 1.5}, "confidence must be a number between 0 and 1"),
    ],
)
def test_options_are_checked(option, part):
    with pytest.raises(InputError, match=part):
        evaluate_items(*crowded(), 10, **option)


INDEX = [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("index", "distance", "part"),
    [
        ([[0, 1], [1]], None, "of one length"),
        ([], None, "whole numbers"),
        (None, None, "whole numbers"),
        (INDEX, "cosine", "distances of top-k lists must be numbers, found <U6"),
        (INDEX, [[0.0, 1.0], [2.0]], "of one length"),
    ],
)
def test_lists_that_are_none(index, distance, part):
    """Wrong entries of an array are refused by `rank_lists`."""
    query, gallery = LabelledRows([1, 2]), LabelledRows([1, 2, 3])
    with pytest.raises(InputError, match=part) as refused:
        evaluate_lists(index, query, gallery, distance=distance, protocol="no_cameras")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("side", ["query", "gallery"])
def test_sides_are_labels(side):
    sides = {"query": LabelledRows([1, 2]), "gallery": LabelledRows([1, 2, 3]), side: np.array([1, 2])}
    with pytest.raises(InputError, match=f"{side} must be labels, found ndarray; use LabelledRows"):
        evaluate_lists(INDEX, **sides, protocol="no_cameras")


def test_without_a_valid_query():
    with pytest.raises(InputError, match=r"no query has a relevant gallery item \(2 no_positive_in_gallery\)"):
        evaluate_lists(INDEX, LabelledRows([8, 9]), LabelledRows([1, 2, 3]), protocol="no_cameras")


def test_sides_without_rows():
    some, none = LabelledRows([1, 2, 1]), LabelledRows([])
    with pytest.raises(InputError, match="there are no queries"):
        evaluate_lists(np.empty((0, 2), int), none, some, protocol="no_cameras")
    with pytest.raises(InputError, match="gallery without rows"):
        evaluate_lists(np.full((3, 1), -1), some, none, protocol="no_cameras")
    with pytest.raises(InputError, match="k of at least 1"):
        evaluate_lists(np.empty((3, 0), int), some, some, protocol="no_cameras")
