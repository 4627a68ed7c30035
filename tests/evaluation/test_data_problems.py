"""Likely errors of the data: found where they were planted, and those of their definition alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples
from strategies import seeds

from reid_dist import FeatureSet, evaluate
from reid_dist.evaluation import sampled_rows
from reid_dist.evaluation.data_problems import camera_shifts
from reid_dist.reports import Report
from reid_dist.stores.kept_rows import FeatureArray

DIM = 32


def made(rng, *, n_ids=12, noise=0.05):
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


def test_a_wrong_label_is_the_first_suspect():
    rng = np.random.default_rng(0)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng)
    pids = pids.copy()
    # The second item of identity 3 looks like identity 7, in a camera that neither query is in.
    wrong = 4 * 2
    gallery[wrong] = query[12:14].mean(axis=0)
    found = problems_of(query, query_pids, query_cameras, gallery, pids, cameras).data_problems
    first = found["suspects"][0]
    assert first["gallery"] == wrong
    assert first["query"] in (12, 13)
    assert first["pids"] == [7, 3]
    assert first["camids"] == [int(query_cameras[first["query"]]), 1]
    assert {each["gallery"] for each in found["suspects"]} == {wrong}
    assert found["identities"] == []


def test_an_identity_with_two_labels():
    """Texts as labels: the report has them as they were given."""
    rng = np.random.default_rng(1)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng)
    query[8:10] = query[2:4] + 0.01 * rng.normal(size=(2, DIM))
    gallery[16:20] = gallery[4:8] + 0.01 * rng.normal(size=(4, DIM))
    names = np.array([f"p{number:02}" for number in range(13)])
    report = problems_of(query, names[query_pids], query_cameras, gallery, names[pids], cameras)
    assert [each["pids"] for each in report.data_problems["identities"]] == [["p02", "p05"]]
    # Of two queries of each label, one suffices.
    assert 2 <= report.data_problems["identities"][0]["n_queries"] <= 4


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
    """Suspect pairs of all queries by comparing all distances, with their smaller median."""
    units = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (query, gallery)]
    distance = 1.0 - units[0] @ units[1].T
    medians = {pid: np.median(distance[(query_pids == pid)[:, None] & genuine]) for pid in set(query_pids.tolist())}
    overall = np.median(distance[genuine])
    found = {}
    for q, own in enumerate(query_pids.tolist()):
        for g, other in enumerate(pids.tolist()):
            limit = min(medians.get(own, overall), medians.get(other, overall))
            if kept[q, g] and own != other and min(own, other) > 0 and distance[q, g] < limit - 1e-9:
                found[q, g] = distance[q, g] / limit
    return found


@settings(max_examples=examples(20))
@given(seed=seeds(), noise=st.sampled_from([0.3, 1.0, 2.0]))
def test_suspects_are_those_of_their_definition(seed, noise):
    rng = np.random.default_rng(seed)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng, n_ids=6, noise=noise)
    # Distractors, and an identity without queries.
    pids = np.where(rng.random(len(pids)) < 0.2, 0, pids)
    query_pids = np.where(query_pids == 6, 5, query_pids)
    same = query_pids[:, None] == pids
    junk = same & (query_cameras[:, None] == cameras)
    report = problems_of(query, query_pids, query_cameras, gallery, pids, cameras, topk=24)
    expected = by_definition(query, query_pids, gallery, pids, ~junk, same & ~junk)
    found = report.data_problems
    shown = [(each["query"], each["gallery"]) for each in found["suspects"]]
    assert found["n_suspects"] == len(expected)
    assert len(shown) == min(20, len(expected))
    ratios = [expected[pair] for pair in shown]
    np.testing.assert_allclose(ratios, sorted(expected.values())[: len(shown)], rtol=1e-6)


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
    monkeypatch.setattr(sampled_rows, "_RUN_ROWS", 60)
    pids, cameras = np.repeat(np.arange(1, 2001), 3), np.tile([1, 2, 2], 2000)
    large = FeatureSet.from_arrays(rng.normal(size=(6000, 8)), pids, cameras)
    assert [each["n_identities"] for each in camera_shifts(large)] == [320, 320]


def test_chunks_with_several_runs_are_read_once(monkeypatch, tmp_path):
    monkeypatch.setattr(sampled_rows, "_RUN_ROWS", 60)
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


def test_page_and_file(tmp_path):
    rng = np.random.default_rng(5)
    query, query_pids, query_cameras, gallery, pids, cameras = made(rng)
    gallery[8] = query[12]
    sides = (query, query_pids, query_cameras, gallery, pids, cameras)
    report = problems_of(*sides)
    report.save(tmp_path / "run")
    again = Report.load(tmp_path / "run")
    assert again.data_problems == report.data_problems
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Look at these first" in page
    assert "1 duplicate" in page
    without = problems_of(*sides, topk=None)
    assert without.data_problems is None
    assert without.result_digest == report.result_digest
    assert "Look at these first" not in without.to_html()
