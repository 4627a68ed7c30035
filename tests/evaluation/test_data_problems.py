"""Likely errors of the data: found where they were planted, and those of their definition alone."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples
from support.strategies import seeds

from reid_dist import DistanceBlock, FeatureSet, LabelledRows, evaluate, evaluate_distances
from reid_dist.evaluation import data_problem_search as samples
from reid_dist.evaluation.data_problem_search import camera_shifts
from reid_dist.stores.kept_rows import FeatureArray
from reid_dist.stores.synthetic import MARKET1501, make_sets

DIM = 32


def made(rng, *, n_ids=40, noise=0.05):
    """Two queries and four gallery items of each identity, in cameras 1 to 3."""
    centres = rng.normal(size=(n_ids, DIM))
    pids = np.repeat(np.arange(1, n_ids + 1), 4)
    gallery = centres[pids - 1] + noise * rng.normal(size=(len(pids), DIM))
    query_pids = np.repeat(np.arange(1, n_ids + 1), 2)
    query = centres[query_pids - 1] + noise * rng.normal(size=(len(query_pids), DIM))
    cameras = np.tile([1, 2, 3, 1], n_ids)
    return query, query_pids, np.tile([2, 3], n_ids), gallery, pids, cameras


def problems_of(query, query_pids, query_cameras, gallery, pids, cameras, topk=20, **options):
    sides = FeatureSet.from_arrays(query, query_pids, query_cameras), FeatureSet.from_arrays(gallery, pids, cameras)
    return evaluate(*sides, topk=topk, progress=False, **options)


def test_a_wrong_label_is_the_suspect():
    rng = np.random.default_rng(0)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng, n_ids=120, noise=0.3)
    # The second item of identity 3 looks like identity 7, in a camera that neither query is in.
    wrong = 4 * 2
    gallery[wrong] = query[12:14].mean(axis=0)
    # A query of identity 9 looks like identity 5.
    query[16] = gallery[16:20].mean(axis=0)
    found = problems_of(query, query_pids, query_cameras, gallery, pids, cameras).data_problems
    doubtful = {(each["side"], each[each["side"]]): each for each in found["suspects"]}
    # An item whose only relevant query has a wrong label is doubtful as well, with less evidence.
    assert next(iter(doubtful)) in {("gallery", wrong), ("query", 16)}
    assert {("gallery", wrong), ("query", 16)} <= doubtful.keys()
    assert all(34 <= row < 36 for side, row in doubtful.keys() - {("gallery", wrong), ("query", 16)})
    first = doubtful["gallery", wrong]
    assert first["query"] in (12, 13)
    assert first["pids"] == [7, 3]
    assert first["camids"] == [int(query_cameras[first["query"]]), 1]
    assert first["own"] > 2 * first["distance"]
    assert doubtful["query", 16]["pids"] == [9, 5]
    evidence = [each["evidence"] for each in found["suspects"]]
    assert evidence == sorted(evidence, reverse=True)
    assert found["identities"] == []


def test_an_identity_with_two_labels():
    """Texts as labels: the report has them as they were given, and names of files."""
    rng = np.random.default_rng(1)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng, noise=0.3)
    query[8:10] = query[2:4] + 0.1 * rng.normal(size=(2, DIM))
    gallery[16:20] = gallery[4:8] + 0.1 * rng.normal(size=(4, DIM))
    names = np.array([f"p{number:02}" for number in range(41)])
    files = [np.array([f"{side}{row}.jpg" for row in range(n)]) for side, n in (("q", 80), ("g", 160))]
    sides = (
        FeatureSet.from_arrays(query, names[query_pids], query_cameras, image_paths=files[0]),
        FeatureSet.from_arrays(gallery, names[pids], cameras, image_paths=files[1]),
    )
    report = evaluate(*sides, topk=20, progress=False)
    (pair,) = report.data_problems["identities"]
    assert (pair["pids"], pair["queries"], pair["paths"]) == (["p02", "p05"], [2, 8], ["q2.jpg", "q8.jpg"])
    assert "q8.jpg" in report.to_html()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("noise", [1.0, 1.6, 2.2])
@pytest.mark.parametrize("k", [10, 50])
def test_of_ten_runs_with_right_labels_at_most_one_shows_a_label(noise, k):
    shape = replace(MARKET1501, noise=noise, n_identity=110, n_query=500, n_gallery=2900, n_distractor=400, n_junk=560)
    shown = 0
    for seed in range(10):
        made_sets = make_sets(shape, seed)
        sides = (FeatureSet.from_arrays(each.features, each.pids, each.camids) for each in made_sets)
        found = evaluate(*sides, topk=k, confidence=None, metrics=["mAP"]).data_problems
        shown += bool(found["n_suspects"] + found["n_identities"])
    assert shown <= 1


def test_planted_errors_are_found_among_many():
    """Wrong labels of a twentieth of a per cent of the rows, and split identities, in sets of the usual difficulty."""
    shape = replace(MARKET1501, noise=1.2, n_identity=225, n_query=1010, n_gallery=5900, n_distractor=840, n_junk=1100)
    query, gallery = make_sets(shape, 0)
    rng = np.random.default_rng(3)
    query_pids, pids = query.pids.copy(), gallery.pids.copy()
    ids = np.unique(pids[pids > 0])
    wrong = rng.choice(np.flatnonzero(pids > 0), 5, replace=False)
    pids[wrong] = rng.choice(ids, 5)
    split = rng.choice(ids, 3, replace=False)
    for pid in split.tolist():
        for each in (query_pids, pids):
            rows = np.flatnonzero(each == pid)
            each[rows[::2]] = pid + 10_000
    sides = (
        FeatureSet.from_arrays(query.features, query_pids, query.camids),
        FeatureSet.from_arrays(gallery.features, pids, gallery.camids),
    )
    found = evaluate(*sides, topk=50, confidence=None, metrics=["mAP"]).data_problems
    rows = [each["gallery"] for each in found["suspects"] if each["side"] == "gallery"]
    assert len(set(rows) & set(wrong.tolist())) >= 3
    pairs = [each["pids"] for each in found["identities"]]
    assert pairs
    assert all(b - a == 10_000 for a, b in pairs)


def test_small_sets_and_given_distances_below_0_show_nothing():
    rng = np.random.default_rng(0)
    sides = made(rng, n_ids=12)
    found = problems_of(*sides).data_problems
    assert (found["n_suspects"], found["n_identities"]) == (0, 0)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng)
    labels = (LabelledRows(query_pids, query_cameras), LabelledRows(pids, cameras))
    report = evaluate_distances(DistanceBlock.from_array(-(query @ gallery.T) - 1e3), *labels, topk=20)
    assert (report.data_problems["n_suspects"], report.data_problems["n_identities"]) == (0, 0)


def test_duplicates_are_told_apart_by_relevance():
    rng = np.random.default_rng(2)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng)
    gallery[0] = query[0]
    gallery[8] = 3.0 * query[6]
    found = problems_of(query, query_pids, query_cameras, gallery, pids, cameras).data_problems
    pairs = {(each["query"], each["gallery"]): each["relevant"] for each in found["duplicates"]}
    assert pairs == {(0, 0): True, (6, 8): False}
    assert found["n_duplicates"] == 2


def by_definition(query, query_pids, gallery, pids, kept, genuine):
    """Own distance and nearest row of another identity of every row, by comparing all distances."""
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (query, gallery)]
    distance = 1.0 - units[0] @ units[1].T
    other = kept & (query_pids[:, None] != pids) & (query_pids[:, None] > 0) & (pids > 0)
    found = {}
    for side, axis, n in (("query", 0, len(query)), ("gallery", 1, len(gallery))):
        for row in range(n):
            at = (row, slice(None)) if axis == 0 else (slice(None), row)
            if genuine[at].any() and other[at].any():
                found[side, row] = (
                    np.median(distance[at][genuine[at]]),
                    distance[at][other[at]].min(),
                )
    return found


def nearest_others(query, query_pids, gallery, pids, kept):
    """The nearest row of another identity of every row, as side and row."""
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (query, gallery)]
    other = kept & (query_pids[:, None] != pids) & (query_pids[:, None] > 0) & (pids > 0)
    distance = np.where(other, 1.0 - units[0] @ units[1].T, np.inf)
    found = {("query", row): ("gallery", int(at)) for row, at in enumerate(distance.argmin(axis=1))}
    return found | {("gallery", row): ("query", int(at)) for row, at in enumerate(distance.argmin(axis=0))}


@settings(max_examples=examples(20))
@given(seed=seeds(), noise=st.sampled_from([0.3, 1.0, 2.0]))
def test_suspects_are_those_of_their_definition(seed, noise):
    rng = np.random.default_rng(seed)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng, n_ids=30, noise=noise)
    # Distractors, wrong labels, and an identity without queries.
    pids = np.where(rng.random(len(pids)) < 0.1, 0, pids)
    pids = np.where(rng.random(len(pids)) < 0.05, rng.integers(1, 31, len(pids)), pids)
    query_pids = np.where(query_pids == 6, 5, query_pids)
    same = query_pids[:, None] == pids
    junk = same & (query_cameras[:, None] == cameras)
    report = problems_of(query, query_pids, query_cameras, gallery, pids, cameras, topk=len(pids))
    expected = by_definition(query, query_pids, gallery, pids, ~junk, same & ~junk)
    limit = -NormalDist().inv_cdf(0.01 / len(expected))
    evidence = {}
    for side in ("query", "gallery"):
        scores = np.array(sorted(np.log(own / other) for (of, _), (own, other) in expected.items() if of == side))
        middle, upper, top = (scores[int(share * len(scores))] for share in (0.5, 0.75, 0.977))
        spread = max((upper - middle) / NormalDist().inv_cdf(0.75), (top - middle) / NormalDist().inv_cdf(0.977))
        evidence |= {
            key: (np.log(own / other) - middle) / spread for key, (own, other) in expected.items() if key[0] == side
        }
    found = report.data_problems
    doubtful = {key: value for key, value in evidence.items() if value > limit}
    partners = nearest_others(query, query_pids, gallery, pids, ~junk)
    for key in sorted(doubtful, key=doubtful.__getitem__, reverse=True):
        # A row near to a doubtful one is doubtful by that alone.
        if key in doubtful and doubtful.get(partners[key], 0.0) > doubtful[key]:
            del doubtful[key]
    n_at_limit = sum(bool(abs(value - limit) < 1e-6) for value in evidence.values())
    assert abs(found["n_suspects"] - len(doubtful)) <= n_at_limit
    for each in found["suspects"]:
        key = each["side"], each[each["side"]]
        assert each["evidence"] == pytest.approx(evidence[key], rel=1e-6)
        assert (each["own"], each["distance"]) == pytest.approx(expected[key], rel=1e-6)


def test_shift_of_a_camera():
    """Known shift and spread: features of length nearly 1, so that scaling to length 1 changes little."""
    rng = np.random.default_rng(3)
    n_ids, dim, spread, shift = 400, 64, 0.01, 0.03
    centres = rng.normal(size=(n_ids, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    direction = np.zeros(dim)
    direction[0] = 1.0
    pids, cameras = np.repeat(np.arange(1, n_ids + 1), 6), np.tile([1, 1, 2, 2, 3, 3], n_ids)
    rows = centres[pids - 1] + spread / np.sqrt(dim) * rng.normal(size=(len(pids), dim))
    rows += shift * direction * (cameras == 3)[:, None]
    found = camera_shifts(FeatureSet.from_arrays(rows, pids, cameras))
    assert found[0]["camid"].tolist() == [3]
    shares = {int(each["camid"][0]): each["shift"] for each in found}
    assert shares[3] == pytest.approx(shift / spread, rel=0.05)
    # Each of the others differs from the mean of one shifted and one unshifted camera.
    assert shares[1] == pytest.approx(shift / spread / 2, rel=0.05)
    # Identities of one row show neither a shift nor a spread.
    single = np.arange(n_ids + 1, n_ids + 301)
    more = np.concatenate([rows, rng.normal(size=(300, dim))]), np.append(pids, single), np.append(cameras, single % 3)
    for each, one in zip(camera_shifts(FeatureSet.from_arrays(*more)), found, strict=True):
        assert (each["camid"], each["n_identities"]) == (one["camid"], one["n_identities"])
        assert each["shift"] == pytest.approx(one["shift"], rel=1e-9)
    unshifted = rows - shift * direction * (cameras == 3)[:, None]
    assert max(each["shift"] for each in camera_shifts(FeatureSet.from_arrays(unshifted, pids, cameras))) < 0.1


def test_shifts_need_identities_in_several_cameras(monkeypatch):
    rng = np.random.default_rng(4)
    rows = rng.normal(size=(60, 8))
    one_each = FeatureSet.from_arrays(rows, np.arange(1, 61), np.tile([1, 2], 30))
    assert camera_shifts(one_each) == []
    assert camera_shifts(FeatureSet.from_arrays(rows, np.arange(1, 61))) == []
    # Runs of rows of a large set: identities of three rows each, of which a run holds some.
    monkeypatch.setattr(samples, "_RUN_ROWS", 60)
    pids, cameras = np.repeat(np.arange(1, 2001), 3), np.tile([1, 2, 2], 2000)
    large = FeatureSet.from_arrays(rng.normal(size=(6000, 8)), pids, cameras)
    assert [each["n_identities"] for each in camera_shifts(large)] == [320, 320]


def test_chunks_with_several_runs_are_read_once(monkeypatch, tmp_path):
    monkeypatch.setattr(samples, "_RUN_ROWS", 60)
    pids, cameras = np.repeat(np.arange(1, 2001), 3), np.tile([1, 2, 2], 2000)
    in_memory = FeatureSet.from_arrays(np.random.default_rng(4).normal(size=(6000, 8)), pids, cameras)
    expected = camera_shifts(in_memory)
    stored = in_memory.save(tmp_path / "gallery.zarr", chunk_rows=1500)
    chunks, read_raw = [], FeatureSet._read_kept

    def recorded(features: FeatureSet, start: int, stop: int) -> FeatureArray:
        chunks.extend(range(start // 1500, -(-stop // 1500)))
        return read_raw(features, start, stop)

    monkeypatch.setattr(FeatureSet, "_read_kept", recorded)
    assert camera_shifts(stored) == expected
    assert sorted(chunks) == [0, 1, 2, 3]
