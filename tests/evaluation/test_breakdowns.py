"""Tables by camera, identity, label, camera pair and gallery size: each cell is the evaluation of a smaller set."""

from __future__ import annotations

import io
from functools import cache

import numpy as np
import pytest
from agreement import assert_groups, assert_pairs, assert_sizes, drawn_truth, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import breakdowns, draws, evaluation
from oracles.protocols import LIST_PROTOCOLS, PID_PROTOCOLS
from support.reference import DISTANCES, ItemSet, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems, problems_for, scattered_sets

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import InputError
from reid_dist.reports import print_report

METRICS = ("mAP", "mINP", "mAP_trapezoid", "CMC@1", "CMC@3", "CMC_allshots@2", "P@2")
ALL = ("camera", "identity", "camera_pair", "gallery_size")
EXACT_KINDS = ("palette", "few_valued", "scaled", "constant", "half")


def print_to_text(report):
    """What the console shows."""
    with io.StringIO() as written:
        print_report(report, written)
        return " ".join(written.getvalue().split())


@cache
def crowded():
    """Ties, junk, queries without relevant items, three cameras; whole numbers, whose sums are exact."""
    query, gallery = crowded_sets(30, 240, 6, seed=111)
    whole = np.random.default_rng(112).integers(-3, 4, (25, 6)).astype(np.float32)
    pick = np.random.default_rng(113)
    gallery = gallery.with_features(whole[pick.integers(0, 25, 240)])
    query = query.with_features(whole[pick.integers(0, 25, 30)])
    unmatched = ItemSet(whole[5:9], np.array([900, 901, 902, 902]), np.array([0, 1, 7, 7]), np.arange(900, 904))
    return query + unmatched, gallery


# -------------------------------------------------------------------------------------------------- by hand


def line(places, pids, camids):
    """Items at places of a line."""
    return ItemSet(np.asarray(places, np.float32)[:, None], np.asarray(pids), np.asarray(camids), np.arange(len(pids)))


def test_tables_by_hand():
    """Query 1 of camera 0 finds its item behind one negative, query 2 of camera 1 at once, query 3 nowhere."""
    gallery = line([1, 2, 3, 4], [2, 1, 9, -1], [0, 1, 1, 1])
    query = line([0, 0, 0], [1, 2, 3], [0, 1, 1])
    report = evaluate_items(query, gallery, "market1501", "euclidean", ["mAP", "CMC@1"], breakdowns=ALL,
                            gallery_sizes=[1, 2])  # fmt: skip
    assert set(report.breakdowns) == set(ALL)
    assert report.breakdowns["camera"] == {
        "camid": [0, 1], "n_query": [1, 2], "n_valid": [1, 1], "mAP": [0.5, 1.0], "CMC@1": [0.0, 1.0],
        "mean_of_groups": {"mAP": 0.75, "CMC@1": 0.5},
    }  # fmt: skip
    assert report.breakdowns["identity"] == {
        "pid": [1, 2, 3], "n_query": [1] * 3, "n_valid": [1, 1, 0], "mAP": [0.5, 1.0, None], "CMC@1": [0.0, 1.0, None],
        "mean_of_groups": {"mAP": 0.75, "CMC@1": 0.5},
    }  # fmt: skip
    assert report.breakdowns["camera_pair"] == {
        "query_camid": [0, 1],
        "gallery_camid": [0, 1],
        "n_valid": [[0, 1], [1, 0]],
        "mAP": [[None, 1.0], [1.0, None]],
        "CMC@1": [[None, 1.0], [1.0, None]],
    }
    # Row 0 holds the only distractor of query 1; query 2 has its item before everything.
    assert report.breakdowns["gallery_size"] == {
        "order": "stored", "seed": 0, "n_rows": [1, 2, 4], "mAP": [0.75] * 3, "CMC@1": [0.5] * 3,
    }  # fmt: skip


def test_invalid_queries_that_count_as_0_have_means_of_0():
    """Query 3 finds nothing: 0 in its rows of the tables, which add up to the mean, and the lowest on the console."""
    gallery = line([1, 2, 3, 4], [2, 1, 9, -1], [0, 1, 1, 1])
    query = line([0, 0, 0], [1, 2, 3], [0, 1, 2])
    report = evaluate_items(
        query, gallery, "market1501_matlab", "euclidean", ["mAP"], breakdowns=["camera", "identity"]
    )
    assert report.breakdowns["camera"] == {
        "camid": [0, 1, 2], "n_query": [1] * 3, "n_valid": [1, 1, 0], "mAP": [0.5, 1.0, 0.0],
        "mean_of_groups": {"mAP": 0.5},
    }  # fmt: skip
    assert report.breakdowns["identity"]["mAP"] == [0.5, 1.0, 0.0]
    assert sum(report.breakdowns["camera"]["mAP"]) / 3 == report.metrics["mAP"] == 0.5
    assert "mAP 0.00% (camera 2) to 100.00% (camera 1)" in print_to_text(report).replace("camid", "camera")


def test_the_distractor_curve_by_hand():
    """The positive lies behind three distractors, which come in stored order, in rows 1, 3 and 4; row 0 is junk."""
    gallery = line([1, 2, 9, 3, 4, 50], [1, 7, 1, 7, 8, 8], [0, 1, 1, 1, 1, 1])
    query = line([0], [1], [0])
    report = evaluate_items(query, gallery, "market1501", "euclidean", ["mAP", "CMC@2"], breakdowns=["gallery_size"],
                            gallery_sizes=[1, 2, 3, 4, 5])  # fmt: skip
    table = report.breakdowns["gallery_size"]
    assert table["n_rows"] == [1, 2, 3, 4, 5, 6]
    assert table["mAP"] == pytest.approx([1, 1 / 2, 1 / 2, 1 / 3, 1 / 4, 1 / 4], abs=1e-15)
    assert table["CMC@2"] == [1, 1, 1, 0, 0, 0]


# ----------------------------------------------------------------------------------------------- small sets


def assert_tables(report, query, gallery, protocol, distance, sizes):
    """All four tables are those of the oracle."""
    for name, column, values in (("camera", "camid", query.camids), ("identity", "pid", query.pids)):
        expected = breakdowns.by_value(query, gallery, values, protocol, distance, METRICS)
        assert_groups(report.breakdowns[name], column, expected, METRICS)
    assert_pairs(report.breakdowns["camera_pair"], breakdowns.by_camera_pair(query, gallery, protocol, distance))
    table = report.breakdowns["gallery_size"]
    assert table["n_rows"] == sorted({*sizes, len(gallery)})
    assert_sizes(
        table, lambda size: breakdowns.at_gallery_size(query, gallery, size, protocol, distance, METRICS), METRICS
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(12))
@given(data=st.data())
def test_small_sets(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=EXACT_KINDS))
    query, gallery = problem.query, problem.gallery
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(query.features, gallery.features, distance))
    assume(evaluation.evaluate(query, gallery, protocol, distance) is not None)
    sizes = data.draw(st.lists(st.integers(1, len(gallery)), min_size=1, max_size=4, unique=True).map(sorted))
    chunk = data.draw(st.sampled_from([None, 3, 8]))
    report = evaluate_items(query, gallery, protocol, distance, METRICS, breakdowns=ALL, gallery_sizes=sizes,
                            chunk_rows=chunk)  # fmt: skip
    assert_tables(report, query, gallery, protocol, distance, sizes)
    table = report.breakdowns["gallery_size"]
    assert (table["order"], table["seed"]) == ("stored", 0)
    for name in METRICS:
        assert table[name][-1] == report.metrics[name]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", LIST_PROTOCOLS[1:])
def test_lists(protocol):
    query, gallery = crowded()
    truth = drawn_truth(protocol, len(query), len(gallery), seed=114)
    report = evaluate_items(query, gallery, protocol, "sqeuclidean", METRICS, breakdowns=["camera", "gallery_size"],
                            gallery_sizes=[10, 60], ground_truth=truth)  # fmt: skip
    expected = breakdowns.by_value(query, gallery, query.camids, protocol, "sqeuclidean", METRICS, truth)
    assert_groups(report.breakdowns["camera"], "camid", expected, METRICS)
    assert_sizes(
        report.breakdowns["gallery_size"],
        lambda size: breakdowns.at_gallery_size(query, gallery, size, protocol, "sqeuclidean", METRICS, truth),
        METRICS,
    )


@pytest.mark.parametrize("protocol", ["market1501", "market1501_matlab"])
def test_a_label_column(protocol):
    """Clothes of the queries; the gallery has no such column."""
    query, gallery = crowded()
    clothes = np.random.default_rng(115).integers(-2, 3, len(query))
    near = FeatureSet.from_arrays(query.features, query.pids, query.camids, query.item_ids,
                                  columns={"clothes": clothes, "view": query.camids}, allow_zero=True)  # fmt: skip
    far = FeatureSet.from_arrays(gallery.features, gallery.pids, gallery.camids, allow_zero=True)
    report = evaluate(near, far, protocol=protocol, distance="sqeuclidean", metrics=METRICS,
                      breakdowns=["clothes", "view", "camera"])  # fmt: skip
    assert list(report.breakdowns) == ["clothes", "view", "camera"]
    expected = breakdowns.by_value(query, gallery, clothes, protocol, "sqeuclidean", METRICS)
    assert_groups(report.breakdowns["clothes"], "value", expected, METRICS)
    by_camera = dict(report.breakdowns["camera"])
    by_view = dict(report.breakdowns["view"])
    assert by_view.pop("value") == by_camera.pop("camid")
    assert by_view == by_camera


def test_tables_where_no_metric_has_values_per_query():
    """Metrics of all pairs have no value per query; a table of them alone holds counts."""
    query, gallery = crowded()
    alone = evaluate_items(query, gallery, metrics=["EER", "TAR@FAR=0.1"], breakdowns=ALL, gallery_sizes=[10])
    beside = evaluate_items(query, gallery, metrics=["EER", "mAP", "CMC@1"], breakdowns=ALL, gallery_sizes=[10])
    for table in ("camera", "identity"):
        for column in ("n_query", "n_valid"):
            assert alone.breakdowns[table][column] == beside.breakdowns[table][column]
        assert "EER" not in alone.breakdowns[table]
    for table in ("camera_pair", "gallery_size"):
        assert alone.breakdowns[table] == beside.breakdowns[table]


CAMERAS = np.array(["attic", "bridge", "cellar", "door", "east", "front", "gate", "hall"])
PEOPLE = np.array([f"person {number:04d}" for number in range(1000)])


def in_texts(items):
    """A set whose cameras and people are texts; junk is "-1", as it is in a file of texts."""
    pids = np.where(items.pids < 0, items.pids.astype("U4"), PEOPLE[items.pids])
    return FeatureSet.from_arrays(items.features, pids, CAMERAS[items.camids], allow_zero=True)


def test_texts_as_cameras_and_identities():
    """The two sets number their texts differently; tables hold the texts, and otherwise those of the numbers."""
    query, gallery = crowded()
    query = query.take(np.flatnonzero(query.camids > 0))  # so that the query set's first camera is not the gallery's
    gallery = gallery.take(np.flatnonzero(gallery.camids != 1))
    query.pids[[3, 4]] = -1
    sides = [in_texts(items) for items in (query, gallery)]
    assert sides[0].camid_names != sides[1].camid_names
    assert sides[0].pid_names != sides[1].pid_names
    assert (gallery.pids == -1).any()
    options = {"protocol": "market1501", "distance": "sqeuclidean", "metrics": ["mAP", "CMC@1"], "confidence": None,
               "breakdowns": ["camera", "identity", "camera_pair"]}  # fmt: skip
    named = evaluate(*sides, **options).breakdowns
    numbered = evaluate_items(query, gallery, **options).breakdowns
    called = {"camid": CAMERAS, "query_camid": CAMERAS, "gallery_camid": CAMERAS, "pid": PEOPLE}
    for table, columns in numbered.items():
        for column, expected in columns.items():
            texts = called.get(column)
            # Queries of junk are a group of their own, without a name.
            expected = expected if texts is None else [str(each) if each < 0 else texts[each] for each in expected]
            assert named[table][column] == expected, (table, column)
    assert [named["identity"][column][0] for column in ("pid", "n_query", "n_valid", "mAP")] == ["-1", 2, 0, None]
    assert set(named["camera_pair"]["query_camid"]) != set(named["camera_pair"]["gallery_camid"])


# ----------------------------------------------------------------------------------------------- gallery size


def test_sizes_as_shares():
    query, gallery = crowded()

    def table(sizes):
        return evaluate_items(
            query, gallery, breakdowns=["gallery_size"], metrics=METRICS, gallery_sizes=sizes
        ).breakdowns["gallery_size"]

    assert table([60, 120, 240]) == table([0.25, 0.5, 1.0])
    # By default, ten equal steps.
    assert table(None) == table([*range(24, 241, 24)])


def test_a_random_order_is_that_of_the_outputs_of_a_stream():
    """As in the stored order, if the rows are stored by their outputs of SplitMix64; whatever the tiles."""
    query, gallery = scattered_sets(12, 90, 6, seed=116)
    options = {"metrics": METRICS, "breakdowns": ["gallery_size"], "gallery_sizes": [1, 7, 20, 45, 60]}
    stored = evaluate_items(query, gallery, **options).breakdowns["gallery_size"]
    for seed in (0, 3):
        rows = sorted(range(90), key=lambda row, seed=seed: draws.nth(seed, row))
        expected = evaluate_items(query, gallery.take(rows), **options).breakdowns["gallery_size"]
        for chunk in (None, 7):
            found = evaluate_items(query, gallery, gallery_order="random", seed=seed, chunk_rows=chunk, **options)
            assert found.breakdowns["gallery_size"] == {**expected, "order": "random", "seed": seed}
        assert expected["mAP"] != stored["mAP"]


@settings(max_examples=examples(10))
@given(problem=problems(kinds=EXACT_KINDS, max_gallery=24), seed=st.integers(0, 5))
def test_distractors_never_help(problem, seed):
    """Along the curve nothing rises, in either order; it ends at the whole gallery."""
    names = ["mAP", "mINP", "CMC@1", "CMC@3", "P@3", "MRR"]
    assume(evaluation.evaluate(problem.query, problem.gallery, "no_cameras") is not None)
    sizes = list(range(1, len(problem.gallery) + 1))
    for order in ("stored", "random"):
        report = evaluate_items(
            problem.query, problem.gallery, "no_cameras", metrics=names, breakdowns=["gallery_size"],
            gallery_sizes=sizes, gallery_order=order, seed=seed,
        )  # fmt: skip
        table = report.breakdowns["gallery_size"]
        assert (table["order"], table["seed"]) == (order, seed)
        for name in names:
            assert (np.diff(table[name]) <= 1e-12).all(), (order, name)
            assert table[name][-1] == report.metrics[name]


# ------------------------------------------------------------------------------------------------- invariance


def test_tables_change_nothing_else():
    query, gallery = crowded()
    plain = evaluate_items(query, gallery, metrics=METRICS)
    requested = evaluate_items(query, gallery, metrics=METRICS, breakdowns=ALL, gallery_sizes=[10, 100])
    assert requested.result_digest == plain.result_digest
    assert plain.breakdowns == {}
    assert requested.counts == plain.counts


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["camera", "camera_pair"])
def test_tables_of_cameras_need_cameras(name):
    query, gallery = (ItemSet(items.features, items.pids) for items in scattered_sets(5, 40, 5, seed=117))
    with pytest.raises(InputError, match="cam"):
        evaluate_items(query, gallery, "no_cameras", breakdowns=[name])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"breakdowns": ["camera_pairs"]}, "'camera_pairs'.*'camera_pair'"),
        ({"breakdowns": "camera"}, "list"),
        ({"gallery_order": "reverse"}, "gallery_order"),
        *(({"gallery_sizes": [size]}, r"gallery.size") for size in (0, -3, 241, 1.5, 0.0, "ten", True, float("nan"))),
    ],
)
def test_invalid_options(options, words):
    with pytest.raises(InputError, match=words):
        evaluate_items(*crowded(), **{"breakdowns": ["gallery_size"], **options})
