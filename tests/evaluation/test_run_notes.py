"""Notes on inputs and thresholds, and errors whose advice must not lead to misleading numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from agreement import as_feature_set, evaluate_items
from support.noted import codes, noted, texts_of_inputs, values_of
from support.reference import ItemSet
from support.refusals import in_full
from support.strategies import scattered_sets

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    LabelledRows,
    compose_protocol,
    conventions,
    evaluate,
    evaluate_distances,
    evaluate_lists,
    operating_points,
)
from reid_dist.errors import InputError
from reid_dist.evaluation.splits import evaluate_splits
from reid_dist.evaluation.sweeps import sweep_parameters
from reid_dist.reports.notes import smallest_rate
from reid_dist.stores import ingest
from reid_dist.stores.synthetic import SyntheticShape, make_sets

QUICK = {"metrics": ["mAP", "CMC@1"], "confidence": None}


def items(n=30, seed=0, n_pids=6):
    """Features, pids and paths of some images."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, 8)).astype(np.float32)
    return features, np.arange(n) % n_pids, np.array([f"image{row:03d}.jpg" for row in range(n)])


def codes_of(report):
    """All codes but that of chance level, at which features without any relation to identities are."""
    return [code for code in codes(report) if code != "chance_level"]


def matches(report):
    return noted(report, "own_rows", "same_labels", "identical_features")


# -------------------------------------------------------------------------------------------------- own rows


def test_one_set_twice_is_noted_where_own_rows_count():
    features, pids, _ = items()
    both = FeatureSet.from_arrays(features, pids)
    report = evaluate(both, both, protocol="no_cameras", **QUICK)
    assert report.metrics["CMC@1"] == 1.0
    assert values_of(report, "own_rows") == {
        "n": 30, "n_valid": 30, "by": "content", "remedy": "protocol", "labels": ()
    }  # fmt: skip
    assert [note.severity for note in matches(report)] == ["warning"]
    assert matches(evaluate(both, both, protocol="same_set", **QUICK)) == []


@pytest.mark.parametrize("by", ["item_ids", "image_paths", "features"])
def test_queries_that_are_gallery_rows_are_counted(by):
    """7 of 10 queries are gallery rows; of the others, none shares a name or features with one."""
    features, pids, paths = items()
    other = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    own = np.array([3, 5, 8, 13, 21, 22, 29])
    label = {} if by == "features" else {by: paths}
    gallery = FeatureSet.from_arrays(features, pids, **label)
    names = {name: np.append(values[own], ["x", "y", "z"]) for name, values in label.items()}
    query = FeatureSet.from_arrays(np.concatenate([features[own], other]), np.append(pids[own], [0, 1, 2]), **names)
    (note,) = matches(evaluate(query, gallery, protocol="no_cameras", **QUICK))
    assert (note.values["n"], note.values["n_valid"]) == (7, 10)
    assert "'same_set'" in str(note)
    if by == "features":
        assert (note.code, note.values["remedy"]) == ("identical_features", "names")
    else:
        assert note.values["by"] == by


def test_own_rows_of_another_camera_are_noted():
    """Cameras that are numbered from 0 on one side and from 1 on the other: own rows are no junk of their camera."""
    features, pids, paths = items()
    query = FeatureSet.from_arrays(features, pids, np.arange(30) % 3, paths)
    gallery = FeatureSet.from_arrays(features, pids, np.arange(30) % 3 + 1, paths)
    (note,) = matches(evaluate(query, gallery, **QUICK))
    assert (note.values["n"], note.values["n_valid"]) == (30, 30)
    assert (note.values["remedy"], note.values["labels"]) == ("labels", ("camid",))
    unnamed = [FeatureSet.from_arrays(features, pids, np.arange(30) % 3 + first) for first in (0, 1)]
    found = evaluate(*unnamed, **QUICK)
    assert values_of(found, "identical_features") == {"n": 30, "n_valid": 30, "remedy": "cameras"}
    right = FeatureSet.from_arrays(features, pids, np.arange(30) % 6 // 2, paths)
    rules = compose_protocol("own", junk=[["pid", "camid"], ["item_id"]])
    assert matches(evaluate(query, right, protocol=rules, **QUICK)) == []


def test_features_of_few_values_are_no_own_rows():
    """Where negatives are at distance 0 as well, distance 0 is no evidence of own rows."""
    query, gallery = (
        ItemSet(np.ones((4, 2), np.float32), np.arange(4)),
        ItemSet(np.ones((8, 2), np.float32), np.arange(8) % 4),
    )
    assert matches(evaluate_items(query, gallery, "no_cameras", **QUICK)) == []


def test_distances_and_lists_have_the_same_notes():
    _, pids, paths = items()
    own = np.arange(0, 30, 3)
    block = np.abs(np.arange(30)[None, :] - own[:, None]).astype(np.float64)
    index = np.argsort(block, axis=1, kind="stable")
    named = LabelledRows(pids[own], image_paths=paths[own]), LabelledRows(pids, image_paths=paths)
    unnamed = LabelledRows(pids[own]), LabelledRows(pids)
    whole = LabelledRows(pids)
    square = np.abs(np.arange(30)[None, :] - np.arange(30)[:, None]).astype(np.float64)
    options = {"protocol": "no_cameras", **QUICK}
    for sides, dense, code in (
        (named, block, "own_rows"),
        (unnamed, block, "identical_features"),
        ((whole, whole), square, "same_labels"),
    ):
        index = np.argsort(dense, axis=1, kind="stable")
        near = np.take_along_axis(dense, index, axis=1)
        for report in (
            evaluate_distances(DistanceBlock.from_array(dense), *sides, **options),
            evaluate_lists(index, *sides, distance=near, **options),
        ):
            (note,) = matches(report)
            assert (note.code, note.values["n"], note.values["n_valid"]) == (code, len(dense), len(dense))


def test_nothing_is_noted_of_sets_that_are_apart():
    """The shape of the demo: distractors, junk, six cameras, more gallery rows than queries."""
    shape = SyntheticShape(40, 6, 120, 500, 60, 80, 16, noise=1.0, camera_shift=0.5)
    query, gallery = (FeatureSet.from_arrays(each.features, each.pids, each.camids) for each in make_sets(shape))
    assert evaluate(query, gallery).notes == []
    assert evaluate(query, gallery, protocol="no_cameras").notes == []


def test_sweeps_note_own_rows_once():
    features, pids, _ = items()
    both = FeatureSet.from_arrays(features, pids)
    report = sweep_parameters(both, both, expand="aqe", k="0:2", protocol="no_cameras", metrics=["mAP"])
    assert len(matches(report)) == 1


# ----------------------------------------------------------------------------------------------------- cameras


def of_cameras(near, far, protocol="market1501"):
    """Notes on cameras of an evaluation in which every identity is under every camera."""
    features, pids, _ = items(n=48)
    sides = [
        FeatureSet.from_arrays(rows, pids[:24], np.resize(cameras, 24)[np.arange(24) // 6 % len(cameras)])
        for rows, cameras in ((features[:24], np.array(near)), (features[24:], np.array(far)))
    ]
    return [note for note in evaluate(*sides, protocol=protocol, **QUICK).notes if "camera" in note.code]


@pytest.mark.parametrize(
    ("near", "far", "code", "starts"),
    [
        (["c1", "c2"], ["C1", "C2", "C3"], "cameras_spelled_apart", None),
        (["cam_01", "cam_02"], ["cam1", "cam2"], "cameras_spelled_apart", None),
        ([0, 1, 2], [1, 2, 3], "cameras_numbered_apart", (0, 1)),
        ([0], [1, 2, 3], "cameras_numbered_apart", (0, 1)),
        ([1, 3], [0, 1, 2], "cameras_numbered_apart", (1, 0)),
        (["north"], ["south", "west"], "cameras_apart", None),
        ([3, 6], [1, 2, 4, 5], "cameras_apart", None),
        ([2], [1], "cameras_apart", None),
    ],
)
def test_cameras_of_one_side_alone_are_named(near, far, code, starts):
    (note,) = of_cameras(near, far)
    # By design in some data sets, hence no warning, unless it looks like a mistake.
    assert (note.code, note.severity) == (code, "caution" if code == "cameras_apart" else "warning")
    assert [note.values["query"], note.values["gallery"]] == [tuple(map(str, sorted(each))) for each in (near, far)]
    if starts is not None:
        assert (note.values["starts"], note.values["apart"]) == (starts, not {*near} & {*far})
    assert of_cameras(near, far, "no_cameras") == []


@pytest.mark.parametrize(("near", "far"), [([1, 2], [1, 2, 3]), (["c1"], ["c1", "c2"]), ([2, 5], [1, 2, 3, 4])])
def test_cameras_of_both_sides_are_not_noted(near, far):
    assert of_cameras(near, far) == []


def test_cameras_that_a_protocol_tells_apart_are_not_noted():
    rules = compose_protocol("apart", base="market1501", query_cameras=[3], gallery_cameras=[1, 2])
    assert of_cameras([3], [1, 2], rules) == []


def test_unknown_cameras_are_counted():
    (note,) = of_cameras([1, -1], [1, 2, -1, -1])
    assert note.values == {"n_query": 12, "n_gallery": 12, "of_query": 24, "of_gallery": 24, "camera": -1}
    assert of_cameras([1, -1], [1, 2, -1, -1], "no_cameras") == []


# ----------------------------------------------------------------------------------------------- repeated rows


@pytest.mark.parametrize("by", ["item_ids", "image_paths"])
def test_rows_that_pad_the_last_batch_are_noted_with_the_cure(by, tmp_path):
    """A distributed sampler of 8 processes repeats the first rows; the cure gives the numbers without them."""
    features, pids, paths = items(n=43)
    names = paths if by == "image_paths" else np.arange(100, 143)
    padded = np.append(np.arange(43), np.arange(5))
    query = FeatureSet.from_arrays(features[:12] + 0.5, pids[:12], **{by: names[:12]})
    whole, repeated = (
        FeatureSet.from_arrays(features[12:][rows], pids[12:][rows], **{by: names[12:][rows]})
        for rows in (np.arange(31), np.append(np.arange(31), np.arange(5)))
    )
    options = {"protocol": "no_cameras", **QUICK}
    right = evaluate(query, whole, **options)
    found = evaluate(query, repeated, **options)
    assert codes_of(right) == []
    assert found.metrics["mAP"] != right.metrics["mAP"]
    assert codes_of(found) == ["repeated_items"]
    expected = {"side": "gallery", "n": 5, "n_rows": 36, "by": by, "row": 31, "first": str(names[12]), "source": None}
    assert values_of(found, "repeated_items") == expected
    index = np.argsort(np.arange(12 * 36).reshape(12, 36) * 7 % 36, axis=1)
    assert values_of(evaluate_lists(index, query, repeated, **options), "repeated_items") == expected
    near = FeatureSet.from_arrays(features[padded] + 0.5, pids[padded], **{by: names[padded]})
    of_both = [note.values for note in noted(evaluate(near, repeated, **options), "repeated_items")]
    assert [(each["side"], each["n"], each["n_rows"]) for each in of_both] == [("query set", 5, 48), ("gallery", 5, 36)]
    # One set on both sides has one note.
    both = evaluate(near, near, protocol="no_cameras", **QUICK)
    assert values_of(both, "repeated_items")["side"] == "set"
    stored = repeated.save(tmp_path / "g.zarr")
    command = f"`reid-dist ingest {stored.uri} --drop-duplicates {by} --output NEW`"
    (note,) = noted(evaluate(query, stored, **options), "repeated_items")
    assert note.values["source"] == stored.uri
    assert command in str(note)
    views = repeated.take(np.arange(36)), stored.take(np.arange(36))
    sources = [values_of(evaluate(query, each, **options), "repeated_items")["source"] for each in views]
    assert sources == ["SOURCE", "SOURCE"], "rows of another set"
    (cured,) = ingest(stored.uri, tmp_path / "new.zarr", drop_duplicates=by)
    assert evaluate(query, cured, **options).metrics == right.metrics
    assert cured.content_digest == whole.content_digest


# ------------------------------------------------------------------------------------------- advice of errors


def test_missing_cameras_of_one_set_lead_to_same_set():
    features, pids, paths = items()
    both = FeatureSet.from_arrays(features, pids)
    with pytest.raises(InputError, match="use the protocol 'same_set'\n  query and gallery are the same set") as caught:
        evaluate(both, both)
    assert in_full(caught.value).index("same_set") < in_full(caught.value).index("no_cameras")
    query = FeatureSet.from_arrays(features[:9], pids[:9], item_ids=paths[:9])
    with pytest.raises(
        InputError, match="'same_set'\n  9 rows of the query set are in the gallery as well, by item id"
    ):
        evaluate(query, FeatureSet.from_arrays(features, pids, item_ids=paths))
    query = FeatureSet.from_arrays(features[:9], pids[:9], image_paths=paths[:9])
    with pytest.raises(
        InputError, match="'same_set'\n  9 rows of the query set are in the gallery as well, by image pa"
    ):
        evaluate(query, FeatureSet.from_arrays(features, pids, image_paths=paths))
    query, gallery = (
        FeatureSet.from_arrays(features[:n], pids[:n], item_ids=first + np.arange(n), image_paths=paths[:n])
        for n, first in ((9, 100), (30, 200))
    )
    with pytest.raises(InputError, match="give the paths as item_ids to both sides and use the protocol 'same_set'"):
        evaluate(query, gallery)
    with pytest.raises(InputError, match=r"use the protocol 'no_cameras'$"):
        evaluate(FeatureSet.from_arrays(features[:9], pids[:9]), both)


@pytest.mark.parametrize("stored", [False, True])
def test_own_rows_are_known_by_image_path_where_there_are_no_item_ids(stored, tmp_path):
    """As the oracle, the same sets with the paths as item ids."""
    features, pids, paths = items()
    own = np.array([3, 29, 8, 13])
    rows = np.append(features[own], features[:2] + 0.5, axis=0)
    names, labels = np.append(paths[own], ["x.jpg", "a-longer-path/y.jpg"]), np.append(pids[own], [0, 1])

    def sides(**kinds):
        near, far = ({kind: values[side] for kind, values in kinds.items()} for side in range(2))
        made = FeatureSet.from_arrays(rows, labels, **near), FeatureSet.from_arrays(features, pids, **far)
        if not stored:
            return made
        return tuple(each.save(tmp_path / f"{next(iter(kinds))}-{n}.zarr") for n, each in enumerate(made))

    both = names, paths
    by_ids, by_paths = sides(item_ids=both), sides(image_paths=both)
    one_side = by_ids[0], by_paths[1]
    options = {"protocol": "same_set", "topk": 5}
    expected, found = evaluate(*by_ids, **options), evaluate(*by_paths, **options)
    assert expected.counts["n_junk"] == 4
    assert found.metrics == expected.metrics
    assert found.result_digest == expected.result_digest
    assert matches(found) == []
    own = values_of(evaluate(*by_paths, protocol="no_cameras"), "own_rows")
    assert (own["by"], own["remedy"]) == ("image_paths", "protocol")
    with pytest.raises(InputError, match="gallery has no item ids; give them to both sets"):
        evaluate(*one_side, **options)
    gallery = FeatureSet.from_arrays(features, pids, image_paths=np.char.add("other/", paths))
    with pytest.raises(InputError, match="none of the 6 image paths of the query set is in the gallery"):
        evaluate(by_paths[0], gallery, **options)
    splits = {"protocol": "same_set", "repeats": 2, "per_identity": 3}
    assert evaluate_splits(*by_paths, **splits).metrics == evaluate_splits(*by_ids, **splits).metrics
    assert "same_set" in {row.setting.name for row in conventions(*by_paths).rows}


def by_features(sides):
    return evaluate(*sides, protocol="same_set")


def by_distances(sides):
    return evaluate_distances(DistanceBlock.from_array(np.ones((30, 30))), *sides, protocol="same_set")


def by_lists(sides):
    return evaluate_lists(np.tile(np.arange(30), (30, 1)), *sides, protocol="same_set")


@pytest.mark.parametrize("evaluation", [by_features, by_distances, by_lists])
def test_item_ids_that_never_meet_are_refused(evaluation):
    features, pids, paths = items()
    sides = [FeatureSet.from_arrays(features, pids, item_ids=names) for names in (paths, np.char.add("b/", paths))]
    with pytest.raises(InputError, match="none of the 30 item ids of the query set is in the gallery") as caught:
        evaluation(sides)
    assert "'image000.jpg'" in in_full(caught.value)
    assert "'b/image000.jpg'" in in_full(caught.value)


def test_splits_of_one_set_need_other_queries():
    features, pids, paths = items()
    both = FeatureSet.from_arrays(features, pids, item_ids=paths)
    with pytest.raises(InputError, match="--rest-as-queries"):
        evaluate_splits(both, both, repeats=2, protocol="no_cameras")
    with pytest.raises(InputError, match=r"'same_set' without item ids, .*; use --rest-as-queries"):
        evaluate_splits(*[FeatureSet.from_arrays(features, pids)] * 2, repeats=2, protocol="same_set")
    options = {"repeats": 2, "metrics": ["mAP"]}
    assert codes_of(evaluate_splits(both, both, protocol="same_set", **options)) == []
    assert matches(evaluate_splits(both, both, protocol="no_cameras", rest_as_queries=True, **options)) == []
    part = FeatureSet.from_arrays(features[:20], pids[:20], item_ids=paths[:20])
    report = evaluate_splits(part, both, protocol="no_cameras", per_identity=3, **options)
    assert [note.code for note in matches(report)] == ["own_rows"]


def test_splits_have_like_notes_once():
    """Numbers differ between the splits; and a drawn gallery is small by design."""
    query, gallery = map(as_feature_set, scattered_sets(60, 200, 6, seed=2))
    report = evaluate_splits(query, gallery, repeats=5, per_identity=2, protocol="no_cameras", metrics=["TAR@FAR=1e-5"])
    (note,) = report.notes
    assert (note.code, note.values["names"]) == ("few_false_accepts", ("TAR@FAR=1e-5",))
    # All splits have the same numbers of pairs.
    assert note.parts is None


# -------------------------------------------------------------------------------------------- exchanged sides


def test_exchanged_sides_are_noted():
    shape = SyntheticShape(20, 4, 60, 400, 40, 60, 16, noise=1.0, camera_shift=0.5)
    query, gallery = (FeatureSet.from_arrays(each.features, each.pids, each.camids) for each in make_sets(shape))
    report = evaluate(gallery, query, **QUICK)
    assert [(note.code, note.severity) for note in report.notes] == [("sides_swapped", "warning")]
    sizes = {"n_query": 400, "n_gallery": 60, "few_rows": True}
    assert values_of(report, "sides_swapped") == {"n_junk": 60, "junk_pids": (-1,), **sizes}


def test_a_small_gallery_is_noted_unless_it_is_single_shot():
    query, gallery = scattered_sets(90, 30, 6, seed=3)
    report = evaluate_items(query, gallery, "no_cameras", **QUICK)
    assert codes_of(report) == ["sides_swapped"]
    (note,) = noted(report, "sides_swapped")
    assert (note.severity, note.values["n_junk"], note.values["few_rows"]) == ("caution", 0, True)
    one_each = gallery.take(np.unique(gallery.pids, return_index=True)[1])
    assert codes_of(evaluate_items(query, one_each, "no_cameras", **QUICK)) == []
    junk = ItemSet(query.features[:5], np.append(gallery.pids[:4], -1), query.camids[:5])
    (note,) = noted(evaluate_items(junk, gallery, "no_cameras", **QUICK), "sides_swapped")
    assert (note.values["n_junk"], note.values["n_query"], note.values["few_rows"]) == (1, 5, False)


# ------------------------------------------------------------------------------------ small false accept rates


def test_rates_with_few_false_accepts_are_noted():
    query, gallery = scattered_sets(40, 200, 6, seed=4)
    names = ["TAR@FAR=1e-9", "TAR@FAR=0.2"]
    report = evaluate_items(query, gallery, "no_cameras", metrics=names)
    n = report.verification["n_impostor"]
    expected = {"number": n, "of": "impostor pair", "least": 10, "smallest": smallest_rate(n)}
    assert codes(report) == ["few_false_accepts"]
    assert values_of(report, "few_false_accepts") == {"names": ("TAR@FAR=1e-9",), **expected}
    both = evaluate_items(query, gallery, "no_cameras", metrics=["TAR@FAR=1e-9", "TAR@FAR=1e-6"])
    assert values_of(both, "few_false_accepts")["names"] == ("TAR@FAR=1e-9", "TAR@FAR=1e-6")


def test_the_roc_has_one_note():
    query, gallery = scattered_sets(40, 200, 6, seed=4)
    report = evaluate_items(query, gallery, "no_cameras", metrics=["mAP"], roc=True)
    few = int((report.curves["ROC_FAR"] * report.verification["n_impostor"] < 10).sum())
    assert few > 1
    found = values_of(report, "roc_few_false_accepts")
    assert codes(report) == ["roc_few_false_accepts"]
    assert (found["n"], found["n_points"], found["number"]) == (few, 31, report.verification["n_impostor"])


def test_open_set_rates_are_noted():
    query, gallery = scattered_sets(40, 200, 6, seed=4)
    unmatched = ItemSet(query.features, np.where(np.arange(40) < 12, 100 + np.arange(40), query.pids), query.camids)
    report = evaluate_items(unmatched, gallery, "no_cameras", metrics=["DIR@FAR=0.1"])
    expected = {"names": ("DIR@FAR=0.1",), "of": "non-mated query", "least": 10}
    assert values_of(report, "few_false_accepts") == {**expected, "number": 12, "smallest": "0.834"}
    few = ItemSet(query.features, np.where(np.arange(40) < 1, 100, query.pids), query.camids)
    found = evaluate_items(few, gallery, "no_cameras", metrics=["DIR@FAR=0.1"])
    assert values_of(found, "few_false_accepts") == {**expected, "number": 1, "smallest": None}


@pytest.mark.parametrize("number", [1, 9, 10, 11, 12, 99, 1000, 106_121, 10**9 + 7])
def test_the_smallest_rate_is_supported(number):
    rate = smallest_rate(number)
    if number < 10:
        assert rate is None
        return
    assert Fraction(rate) * number >= 10
    assert Fraction(rate) * number < 10.1


# ------------------------------------------------------------------------------------------------ one camera


@pytest.mark.parametrize("protocol", ["cuhk03_separate_cameras", "market1501"])
def test_one_camera_is_named_as_the_reason(protocol):
    query, gallery = scattered_sets(10, 60, 8, seed=5, n_cameras=1)
    with pytest.raises(InputError, match="8 only_same_camera_positives") as caught:
        evaluate_items(query, gallery, protocol)
    message = in_full(caught.value)
    assert "there is only one camera (0)" in message
    assert "'no_cameras', or 'same_set' if queries are gallery rows as well" in message
    assert "-1" not in message
    shared = as_feature_set(gallery)
    with pytest.raises(InputError, match="60 queries are gallery rows as well: use the protocol 'same_set'"):
        evaluate(shared, shared, protocol=protocol)
    # The same for lists, which have no features.
    rows = np.tile(np.arange(60), (10, 1))
    with pytest.raises(InputError, match="there is only one camera"):
        evaluate_lists(rows, as_feature_set(query), shared, protocol=protocol)


def test_several_cameras_are_no_reason_for_no_cameras():
    gallery = ItemSet(np.eye(4, dtype=np.float32), np.array([1, 2, 1, 2]), np.array([0, 1, 0, 1]))
    query = ItemSet(np.eye(4, dtype=np.float32)[:2], np.array([1, 2]), np.array([0, 1]))
    with pytest.raises(InputError, match=r"cameras found: 0, 1") as caught:
        evaluate_items(query, gallery)
    assert "no_cameras" not in in_full(caught.value)
    assert "-1" not in in_full(caught.value)


def test_texts_are_compared_and_shown_as_texts():
    """The two sides number their texts for themselves: number 1 is another identity on each."""
    rng = np.random.default_rng(6)
    query = FeatureSet.from_arrays(rng.standard_normal((2, 4)).astype(np.float32), ["c", "d"])
    gallery = FeatureSet.from_arrays(rng.standard_normal((3, 4)).astype(np.float32), ["a", "b", "b"])
    with pytest.raises(InputError, match=r"query pids: 'c'\.\.'d' \(2 identities\)") as caught:
        evaluate(query, gallery, protocol="no_cameras")
    assert "in both sets: 0" in in_full(caught.value)


def test_junk_on_one_side_is_named():
    rng = np.random.default_rng(7)
    features = rng.standard_normal((4, 4)).astype(np.float32)
    junk, known = FeatureSet.from_arrays(features, [-1] * 4), FeatureSet.from_arrays(features + 1, [1, 2, 3, 4])
    with pytest.raises(
        InputError, match=r"all queries have pid -1, which marks junk.*or are queries and gallery rows exchanged"
    ):
        evaluate(junk, known, protocol="no_cameras")
    with pytest.raises(InputError, match="all gallery rows have pid -1, which marks junk: are the labels meant so"):
        evaluate(known, junk, protocol="no_cameras")


def test_notes_of_stages_reach_report_and_console(tmp_path):
    """Cameras that take the statistics of all rows, and a graph across cameras without any link."""
    rng = np.random.default_rng(3)

    def side(n, cameras):
        pids = rng.integers(0, 9, n)
        features = rng.standard_normal((n, 6)).astype(np.float32)
        return FeatureSet.from_arrays(features, pids, cameras(n))

    several = [side(n, lambda n: np.where(np.arange(n) < 5, 7, np.arange(n) % 2)) for n in (40, 300)]
    one = [side(n, lambda n: np.ones(n, int)) for n in (40, 120)]
    few = "normalised with all gallery rows, as too few are of their camera: cameras 7"
    alone = "all items are of one camera: the graph across cameras links each item only with itself"
    for sets, options, note in (
        (several, {"expand": "camera_norm"}, few),
        (several, {"expand": "camera_norm+aqe(k=2)"}, few),
        (one, {"expand": "gcr(k1=5)", "protocol": "no_cameras"}, alone),
    ):
        # A second run finds the features in the workspace.
        for _ in range(2):
            report = evaluate(*sets, workspace=tmp_path / "workspace", **options)
            assert texts_of_inputs(report).count(note) == 1
            assert note in " ".join(str(report).split())
        assert note in texts_of_inputs(operating_points(*sets, workspace=tmp_path / "workspace", **options))
    assert texts_of_inputs(evaluate(*several, expand="camera_norm(least_rows=5)")) == []
    definition = evaluate(*several, expand="camera_norm").expand["definition"]
    assert "least_rows gallery rows take mean and inverse" in definition
