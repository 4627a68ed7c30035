"""Notes on results that a mistake explains: at chance level, of ties, or better in the reversed order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from support.noted import noted

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, evaluate, evaluate_distances, sweep_parameters
from reid_dist.core.findings import warning

QUICK = {"confidence": None}
PER = 6


def arrays(n_pids=100, noise=1.0, seed=0, n_queries=1):
    """Features around one direction per identity, under four cameras; the first images of each are queries."""
    rng = np.random.default_rng(seed)
    pids = np.repeat(np.arange(1, n_pids + 1), PER)
    cameras = np.tile(np.arange(PER) % 4, n_pids) + 1
    features = rng.normal(size=(n_pids, 32))[pids - 1] + noise * rng.normal(size=(len(pids), 32))
    is_query = np.tile(np.arange(PER) < n_queries, n_pids)
    sides = (is_query, ~is_query)
    return [[each[rows] for each in (features.astype(np.float32), pids, cameras)] for rows in sides]


CODES = ("chance_level", "tied_pairs", "reversed_order", "labels_exchanged")


def chance_notes(report):
    return noted(report, *CODES)


def evaluated(query, gallery, **options):
    return evaluate(FeatureSet.from_arrays(*query), FeatureSet.from_arrays(*gallery), **QUICK, **options)


def shuffled(side, seed=3):
    features, *labels = side
    return [features[np.random.default_rng(seed).permutation(len(features))], *labels]


def relabelled(side, seed=4):
    features, pids, cameras = side
    return [features, np.random.default_rng(seed).permutation(pids.max() + 1)[pids], cameras]


# Images of an identity of a good model are ranked together, wherever they are.
@pytest.mark.parametrize(("n_queries", "noise"), [(1, 1.0), (3, 1.0), (1, 0.1)])
@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (lambda q, g: (q, shuffled(g)), {"gallery"}),
        (lambda q, g: (q, relabelled(g)), {"query or between", "between"}),
        (lambda q, g: (shuffled(q), g), {"query or between", "query"}),
    ],
    ids=["shuffled gallery", "other label map", "shuffled query"],
)  # fmt: skip
def test_results_at_chance_level_have_a_cause(change, causes, n_queries, noise):
    report = evaluated(*change(*arrays(n_queries=n_queries, noise=noise)))
    (note,) = chance_notes(report)
    assert (note.code, note.severity, note.values["metric"]) == ("chance_level", "warning", "mAP")
    assert note.values["result"] == pytest.approx(report.metrics["mAP"])
    assert note.values["cause"] in causes
    assert report.findings[0] is note


@pytest.mark.parametrize("n_queries", [1, 3])
@pytest.mark.parametrize("noise", [1.0, 0.1])
@pytest.mark.parametrize("as_texts", [False, True])
def test_exchanged_labels_are_named(noise, n_queries, as_texts):
    sides = arrays(n_queries=n_queries, noise=noise)
    if as_texts:
        # Names of cameras and of identities of a set, as a script that swaps two columns gives them.
        sides = [
            [rows, np.char.add("n", pids.astype(str)), np.char.add("n", cams.astype(str))] for rows, pids, cams in sides
        ]
    query, gallery = sides
    for side, changed in (
        ("query set", ([query[0], query[2], query[1]], gallery)),
        ("gallery", (query, [gallery[0], gallery[2], gallery[1]])),
    ):
        (note,) = chance_notes(evaluated(*changed))
        assert note == warning("labels_exchanged", side=side)
    # Few identities under many cameras are none.
    few = [each[:12] for each in query]
    few[1:] = few[1][np.arange(12) % 2], gallery[2][np.arange(12)]
    assert chance_notes(evaluated(few, gallery)) == []


def test_the_note_goes_by_the_nearest_items_where_no_others_are_ranked():
    query, gallery = arrays(n_queries=3)
    options = {"metrics": ["CMC@1", "CMC@5"]}
    (note,) = chance_notes(evaluated(query, shuffled(gallery), **options))
    assert (note.code, note.values["metric"], note.values["in_order"]) == ("chance_level", "CMC@10", None)
    assert chance_notes(evaluated(query, gallery, **options)) == []


def test_the_chance_level_is_that_of_random_orders():
    """As an oracle, evaluations of random distances."""
    (_, pids, cameras), (_, far_pids, far_cameras) = arrays()
    sides = LabelledRows(pids, cameras), LabelledRows(far_pids, far_cameras)
    values, notes = [], []
    for seed in range(30):
        block = np.random.default_rng(seed).random((len(pids), len(far_pids)))
        report = evaluate_distances(DistanceBlock.from_array(block), *sides, metrics=["mAP"], **QUICK)
        values.append(report.metrics["mAP"])
        notes += chance_notes(report)
    mean, lower, upper = (notes[0].values[name] for name in ("chance", "low", "high"))
    spread = np.std(values, ddof=1)
    assert abs(np.mean(values) - mean) < 4 * spread / np.sqrt(len(values))
    assert 0.6 < (upper - lower) / 2 / (2.58 * spread) < 1.6
    assert len(notes) >= 28
    assert {note.values["cause"] for note in notes} == {"distances"}


@pytest.mark.parametrize("value", [1.0, 0.0])
def test_equal_features_are_tied(value):
    query, gallery = arrays()
    for side in (query, gallery):
        side[0] = np.full_like(side[0], value)
    sides = [FeatureSet.from_arrays(*side, allow_zero=True) for side in (query, gallery)]
    (note,) = chance_notes(evaluate(*sides, **QUICK))
    assert (note.code, note.severity) == ("tied_pairs", "warning")
    assert note.values["n"] == note.values["n_pairs"] > 0


def test_the_share_of_tied_pairs_by_hand():
    """Of 2 x 3 pairs, 4 are tied."""
    block = np.array([[1.0, 1.0, 1.0, 2.0, 3.0]])
    labels = LabelledRows([1]), LabelledRows([1, 1, 2, 3, 2])
    report = evaluate_distances(DistanceBlock.from_array(block), *labels, protocol="no_cameras", **QUICK)
    assert chance_notes(report) == []
    block[0, 3] = 1.0
    report = evaluate_distances(DistanceBlock.from_array(block), *labels, protocol="no_cameras", **QUICK)
    assert chance_notes(report) == [warning("tied_pairs", n=4, n_pairs=6)]


def test_similarities_are_better_reversed():
    (near, pids, cameras), (far, far_pids, far_cameras) = arrays()
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (near, far)]
    similarity = units[0].astype(np.float64) @ units[1].astype(np.float64).T
    sides = LabelledRows(pids, cameras), LabelledRows(far_pids, far_cameras)
    wrong, right = (
        evaluate_distances(DistanceBlock.from_array(block), *sides, **QUICK) for block in (similarity, 1 - similarity)
    )
    assert chance_notes(right) == []
    (note,) = chance_notes(wrong)
    found = {"result": wrong.metrics["mAP"], "reversed": right.metrics["mAP"], "given": True}
    assert (note.code, note.severity, note.values) == ("reversed_order", "warning", pytest.approx(found))
    block = DistanceBlock.from_array(1 - similarity, similarity=True)
    (note,) = chance_notes(evaluate_distances(block, *sides, **QUICK))
    assert note.values == pytest.approx({**found, "similarity": True})
    (note,) = chance_notes(evaluated([-near, pids, cameras], [far, far_pids, far_cameras]))
    assert (note.code, note.values["given"]) == ("reversed_order", False)


@pytest.mark.parametrize("noise", [0.3, 1.0, 2.0, 2.5])
@pytest.mark.parametrize("n_queries", [1, 3])
def test_honest_models_are_not_noted(noise, n_queries):
    """Down to twice the chance level, which the noise comes near to."""
    query, gallery = arrays(noise=noise, n_queries=n_queries)
    report = evaluated(query, gallery)
    n, n_kept = report.per_query["n_relevant"], report.per_query["n_kept"]
    harmonic = np.array([(1 / np.arange(1, m + 1)).sum() for m in n_kept])
    chance = np.mean((harmonic + (n - 1) / (n_kept - 1) * (n_kept - harmonic)) / n_kept)
    assert report.metrics["mAP"] >= 2 * chance
    assert chance_notes(report) == []


def test_a_few_queries_prove_nothing():
    """Every order of three gallery items: no result of one query is beyond what chance gives."""
    labels = LabelledRows([1]), LabelledRows([1, 2, 3])
    for order in permutations([1.0, 2.0, 3.0]):
        report = evaluate_distances(
            DistanceBlock.from_array(np.array([order])), *labels, protocol="no_cameras", **QUICK
        )
        assert chance_notes(report) == []


def test_where_all_kept_items_are_relevant_chance_is_perfect():
    query, gallery = arrays()
    alike = [[features, np.ones_like(pids), cameras] for features, pids, cameras in (query, gallery)]
    report = evaluated(*alike)
    assert report.metrics["mAP"] == 1.0
    assert chance_notes(report) == []


def test_sweeps_have_one_note():
    query, gallery = arrays()
    sides = [FeatureSet.from_arrays(*side) for side in (query, shuffled(gallery))]
    report = sweep_parameters(*sides, expand="aqe", k="0:2", metrics=["mAP"])
    (note,) = chance_notes(report)
    assert (note.code, note.parts) == ("chance_level", ("point", 3, 3, 0))
