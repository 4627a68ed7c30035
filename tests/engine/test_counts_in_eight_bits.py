"""Counts for ranks by products of eight-bit integers: those of comparing all canonical distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_products import use_products_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import DISTANCES
from row_blocks import block_of, canonical_matrix, halve_bounds, hard_blocks, hard_rows, rows_at_the_edge
from sampling import examples
from strategies import seeds

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.core.model import GalleryMask, Hidden, Targets
from reid_dist.engine import coarse_tiles
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.distances import integers
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import CountNearer, KeepNearest, coarse_counts
from reid_dist.engine.reductions.base import KnownPairs
from reid_dist.engine.screened_pairs import count_screened, screened_words
from reid_dist.engine.tile_loop import run_tiles

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True, params=integers.LARGEST_INTEGERS)
def largest(request, monkeypatch):
    """Integers of each range for all blocks, however small; no query is known to be left to float32."""
    use_products_of(monkeypatch, request.param)
    monkeypatch.setattr(coarse_tiles, "PLAIN_QUERIES", coarse_counts._PlainQueries())
    return request.param


def csr(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([each for own in lists for each in own], np.int64)


def counting(matrix, positives, numbers, name, label=None, own_label=None):
    """The reduction for positive columns of every query, and what it should count, by comparing distances."""
    thresholds, start, rows, near, tied, before = [], [0], [], [], [], []
    junk = np.zeros(numbers[-1] + 1, np.bool_)
    for i, columns in enumerate(positives):
        own = sorted({matrix[i, j] for j in columns})
        kept = np.ones(matrix.shape[1], np.bool_)
        kept[list(columns)] = False
        if label is not None:
            kept &= label[numbers] != own_label[i]
        thresholds.append(own)
        for t in own:
            here = sorted(numbers[j] for j in columns if matrix[i, j] == t)
            rows += here
            start.append(len(rows))
            near.append(int((matrix[i, kept] < t).sum()))
            ties = numbers[kept & (matrix[i] == t)]
            tied.append(len(ties))
            places = np.searchsorted(here, ties)
            before += [int((places == place).sum()) for place in range(len(here))]
    indptr, distance = np.cumsum([0, *map(len, thresholds)]), np.array([t for own in thresholds for t in own])
    hidden = Hidden(*csr([sorted(numbers[list(own)]) for own in positives]), own_label, False)
    targets = Targets(indptr, distance, np.array(start), np.array(rows, np.int64), hidden)
    return CountNearer(targets, GalleryMask(junk, label), REGISTERED.get(name)), (near, tied, before)


def assert_counts(found, expected, reduction):
    counts = found[0]
    assert counts.near.tolist() == expected[0]
    assert counts.tied.dense(len(expected[1])).tolist() == expected[1]
    assert counts.before.dense(len(expected[2])).tolist() == expected[2]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(seed=seeds(), tile=st.sampled_from([3, 17, 64]), labelled=st.booleans(), data=st.data())
def test_counts_of_every_threshold(name, seed, tile, labelled, data):
    """Thresholds at the distances of random gallery rows, duplicates of negatives among them; decisions anywhere.

    With lists beside the counts, or without; also of queries that turn out to be left to float32 later.
    """
    rng, distance = np.random.default_rng(seed), REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    positives = [np.flatnonzero(rng.random(len(far)) < rng.choice([0.0, 0.1, 0.5])) for _ in range(len(near))]
    label = rng.integers(0, 3, 100 + len(far)) if labelled else None
    own_label = rng.integers(0, 4, len(near)) if labelled else None
    reduction, expected = counting(matrix, positives, far.numbers, name, label, own_label)
    k, order = data.draw(st.sampled_from([0, 2, 6])), np.argsort(matrix, axis=1, kind="stable")
    nearest_columns = order[:, :k]
    reach = matrix[np.arange(len(near)), order[:, min(k, len(far)) - 1]] if k and data.draw(st.booleans()) else None
    wanted = [KeepNearest(k, distance, reach=reach)] if k else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse_tiles, "PLAIN_QUERIES", coarse_counts._PlainQueries())
        patch.setattr(coarse_tiles, "_TRIED_ROWS", data.draw(st.integers(1, 20)))
        rows_of_chunk = data.draw(st.sampled_from([1, 7, 16, 40]))
        patch.setattr(coarse_tiles, "_RECONSIDERED_ELEMENTS", rows_of_chunk * far.features.shape[1])
        patch.setattr(coarse_tiles, "_MOST_OPENED_WITH_RESIDUALS", data.draw(st.sampled_from([-1.0, 0.3, 1.0])))
        patch.setattr(coarse_tiles, "_MOST_PLAIN", data.draw(st.sampled_from([0.0, 0.5, 1.0])))
        patch.setattr(coarse_counts, "_MOST_OPENED_PER_ELEMENT", data.draw(st.sampled_from([0.0, 1e-3, 10.0])))
        # Queries left to float32 by the first run are known in the second.
        for _ in range(2):
            *lists, found = run_tiles(near, far, distance, TileShape(tile, tile), [*wanted, reduction])
            assert_counts(found, expected, reduction)
            for listed in lists:
                n = nearest_columns.shape[1]
                assert listed.index[:, :n].tolist() == far.numbers[nearest_columns].tolist()
                assert listed.distance[:, :n].tolist() == np.take_along_axis(matrix, nearest_columns, 1).tolist()
                assert (listed.index[:, n:] == -1).all()


def counts_at_the_edge(sign, largest, dim=512):
    """A positive, and a negative that equals it; their integers are off by nearly all of the bound."""
    query, row = rows_at_the_edge(dim, sign, largest)
    near, far = block_of(query), block_of(np.concatenate([row, row, -np.ones((3, dim))]))
    reduction, expected = counting(canonical_matrix(near, far, REGISTERED.get("cosine")), [[1]], far.numbers, "cosine")
    (found,) = run_tiles(near, far, REGISTERED.get("cosine"), TileShape(8, 8), [reduction])
    counts = found[0]
    return (counts.near.tolist(), counts.tied.dense(1).tolist(), counts.before.dense(1).tolist()), expected


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_threshold_at_the_edge_of_a_bound(sign, largest, monkeypatch):
    """The tie is found, by integers; with half the bound it is not."""
    monkeypatch.setattr(coarse_counts, "_MOST_OPENED_PER_ELEMENT", 1.0)
    found, expected = counts_at_the_edge(sign, largest)
    assert found == expected == ([0], [1], [1])
    halve_bounds(monkeypatch)
    assert counts_at_the_edge(sign, largest)[0] == ([int(sign < 0)], [0], [0])


def tie_by_residuals(monkeypatch, dim=512):
    """A positive, and a negative that equals it and the query; the products of their residuals are not computed."""
    monkeypatch.setattr(coarse_counts, "_MOST_OPENED_PER_ELEMENT", 0.0)
    monkeypatch.setattr(coarse_tiles, "_MOST_OPENED_WITH_RESIDUALS", 1.0)
    monkeypatch.setattr(coarse_tiles, "PLAIN_QUERIES", coarse_counts._PlainQueries())
    # All residuals are half a step, all of it in their integers: the bound is that of what is not computed.
    row = np.full((1, dim), 1.5, np.float32)
    row[0, 0] = 127
    near, far = block_of(row), block_of(np.concatenate([row, row, -np.ones((3, dim))]))
    reduction, expected = counting(canonical_matrix(near, far, REGISTERED.get("cosine")), [[1]], far.numbers, "cosine")
    with count_screened() as screened:
        (found,) = run_tiles(near, far, REGISTERED.get("cosine"), TileShape(8, 8), [reduction])
    counts = found[0]
    assert set(screened) == ({"int8"} if integers.integer_product(dim).largest == 127 else {"int8", "float32"})
    return (counts.near.tolist(), counts.tied.dense(1).tolist(), counts.before.dense(1).tolist()), expected


def test_threshold_at_the_edge_of_a_bound_of_products_with_residuals(largest, monkeypatch):
    """The tie is found; with half the bound it is not, unless the query is left to float32."""
    found, expected = tie_by_residuals(monkeypatch)
    assert found == expected == ([0], [1], [1])
    halve_bounds(monkeypatch)
    assert tie_by_residuals(monkeypatch)[0] == (([0], [0], [0]) if largest == 127 else expected)


@pytest.mark.parametrize("n_thresholds", [2, 3])
def test_products_with_residuals_among_few_thresholds(n_thresholds, largest, monkeypatch):
    """Queries that integers decide too little of are left to float32 where they have more thresholds than pay."""
    monkeypatch.setattr(coarse_counts, "_MOST_OPENED_PER_ELEMENT", 0.0)
    monkeypatch.setattr(coarse_tiles, "_MOST_OPENED_WITH_RESIDUALS", 1.0)
    monkeypatch.setattr(coarse_tiles, "_MOST_THRESHOLDS_WITH_RESIDUALS", 2)
    rng = np.random.default_rng(0)
    near, far, distance = block_of(rng.normal(size=(2, 64))), block_of(rng.normal(size=(40, 64))), "cosine"
    # The second query has no threshold, and is not counted among those that have.
    positives = [range(n_thresholds), []]
    matrix = canonical_matrix(near, far, REGISTERED.get(distance))
    reduction, expected = counting(matrix, positives, far.numbers, distance)
    with count_screened() as screened:
        (found,) = run_tiles(near, far, REGISTERED.get(distance), TileShape(8, 8), [reduction])
    assert_counts(found, expected, reduction)
    assert set(screened) == ({"int8"} if largest == 127 and n_thresholds == 2 else {"int8", "float32"})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(
    seed=seeds(),
    tile=st.sampled_from([3, 17, 64]),
    weight=st.sampled_from([0.3, 1.0]),
    squares=st.booleans(),
    values=st.sampled_from([1, 3, 1000]),
    data=st.data(),
)
def test_counts_under_reranked_distances(name, seed, tile, weight, squares, values, data):
    """Known pairs have few values or many, also among thresholds, hidden rows and queries left to float32."""
    rng, distance = np.random.default_rng(seed), REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    plain, far = block_of(rows[0]), block_of(rows[1], 100)
    n = len(plain)
    given_pairs = rng.random((n, len(far))) < rng.choice([0.05, 0.9])
    known = rng.integers(0, values + 1, given_pairs.sum()) / (values + 1)
    indptr, row = np.concatenate([[0], np.cumsum(given_pairs.sum(axis=1))]), far.numbers[np.nonzero(given_pairs)[1]]
    scale = canonical_matrix(plain, far, distance).max(axis=1) * rng.uniform(0.5, 2.0, n) + 1e-30
    scale = scale**2 if squares and name != "euclidean" else scale
    near = replace(
        plain, reranked=KnownPairs(weight, squares and name != "euclidean", scale, indptr, row, known, 1.0, False)
    )
    matrix = canonical_matrix(near, far, distance)
    assume(np.isfinite(matrix).all())
    label, own_label = rng.integers(0, 3, 100 + len(far)), rng.integers(0, 4, n)
    share = rng.choice([0.02, 0.3])
    positives = [np.flatnonzero(rng.random(len(far)) < share) for _ in range(n)]
    reduction, expected = counting(matrix, positives, far.numbers, name, label, own_label)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coarse_tiles, "PLAIN_QUERIES", coarse_counts._PlainQueries())
        patch.setattr(coarse_tiles, "_TRIED_ROWS", data.draw(st.integers(1, 20)))
        rows_of_chunk = data.draw(st.sampled_from([7, 40]))
        patch.setattr(coarse_tiles, "_RECONSIDERED_ELEMENTS", rows_of_chunk * far.features.shape[1])
        patch.setattr(coarse_counts, "_MOST_OPENED_PER_ELEMENT", data.draw(st.sampled_from([0.0, 1e-3, 10.0])))
        (found,) = run_tiles(near, far, distance, TileShape(tile, tile), [reduction])
    assert_counts(found, expected, reduction)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(seed=seeds(), k=st.integers(1, 6), tile=st.sampled_from([3, 17, 64]), data=st.data())
def test_lists_without_hidden_rows(name, seed, k, tile, data):
    """Rows hidden from all queries, and rows of a label hidden from those of the same one; with counts and without."""
    rng, distance = np.random.default_rng(seed), REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    label, own_label = rng.integers(0, 3, 100 + len(far)), rng.integers(0, 4, len(near))
    junk = rng.random(100 + len(far)) < rng.choice([0.0, 0.2, 1.0])
    visible = ~junk[far.numbers] & (label[far.numbers] != own_label[:, None])
    hidden = Hidden(np.zeros(len(near) + 1, np.int64), np.empty(0, np.int64), own_label, False)
    wanted = [KeepNearest(k, distance, hidden, GalleryMask(junk, label))]
    positives = [np.flatnonzero(rng.random(len(far)) < 0.1) for _ in range(len(near))]
    counted, expected = counting(matrix, positives, far.numbers, name)
    if data.draw(st.booleans()):
        wanted.append(counted)
    with pytest.MonkeyPatch.context() as patch, count_screened() as screened:
        patch.setattr(coarse_tiles, "PLAIN_QUERIES", coarse_counts._PlainQueries())
        patch.setattr(coarse_tiles, "_TRIED_ROWS", 5)
        listed, *counts = run_tiles(near, far, distance, TileShape(tile, tile), wanted)
    assert screened["int8"]
    for query, kept in enumerate(visible):
        columns = np.flatnonzero(kept)
        columns = columns[np.argsort(matrix[query, columns], kind="stable")][:k]
        n = len(columns)
        assert listed.index[query].tolist() == [*far.numbers[columns].tolist(), *[-1] * (k - n)]
        assert listed.distance[query].tolist() == [*matrix[query, columns].tolist(), *[np.inf] * (k - n)]
    for found in counts:
        assert_counts(found, expected, counted)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_same_report_as_in_float32(name, data):
    n = data.draw(st.integers(40, 160))
    rows = data.draw(hard_rows(n, data.draw(st.sampled_from((1, 7, 64, 512))), name))
    rng = np.random.default_rng(data.draw(seeds()))
    if data.draw(st.booleans()):
        rows = np.clip(rows, -6e4, 6e4).astype(np.float16)
    if name == "cosine":
        rows = rows[np.abs(rows).max(axis=1) > 0]
    assume(len(rows) > 20)
    pids, camids = rng.integers(-1, 5, len(rows)), rng.integers(0, 3, len(rows))
    pids[:2], camids[0] = 1, 5
    # One list beside the counts, of all gallery rows or of those that a query without relevant ones sees.
    topk, metrics = data.draw(st.sampled_from([(None, []), (3, []), (None, ["DIR@FAR=0.1"])]))
    found, lists = {}, {}
    for screen in ("int8", "float32"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(integers.VARIABLE, screen)
            patch.setattr(coarse_tiles, "PLAIN_QUERIES", coarse_counts._PlainQueries())
            items = asked = FeatureSet.from_arrays(rows, pids, camids)
            if metrics:
                asked = FeatureSet.from_arrays(rows, np.where(np.arange(len(rows)) % 5 == 4, 77, pids), camids)
            chunk_rows = data.draw(st.sampled_from([16, 64]))
            found[screen] = evaluate(
                asked, items, distance=name, chunk_rows=chunk_rows, topk=topk, metrics=["mAP", *metrics]
            )
            # Another job: what is known of the lists of one must not be taken for another.
            lists[screen] = nearest(
                items, FeatureSet.from_arrays(rows[::-1], pids), k=4, distance=name, chunk_rows=chunk_rows
            )
    assert lists["int8"].index.tobytes() == lists["float32"].index.tobytes()
    assert lists["int8"].distance.tobytes() == lists["float32"].distance.tobytes()
    if topk is not None:
        assert found["int8"].topk.digest == found["float32"].topk.digest
    assert found["int8"].result_digest == found["float32"].result_digest
    assert found["float32"].environment["products"] == "float32"
    assert topk is not None or "int8" in found["int8"].environment["products"]


def test_queries_left_to_float32_are_known_of_their_own_block_alone():
    """Blocks of other sizes with the same thresholds; the same block of another task."""
    known = coarse_counts._PlainQueries()

    def targets(*sizes):
        indptr = np.cumsum([0, *sizes])
        return Targets(indptr, np.ones(indptr[-1]), np.arange(indptr[-1] + 1), np.arange(indptr[-1]), None)

    assert known.take_residuals(targets(2, 0, 1))
    known.keep(targets(2, 0, 1), np.array([2]), residuals=False)
    assert not known.take_residuals(targets(2, 0, 1))
    assert known.take_residuals(targets(2, 0, 1, 0))
    assert known.of(targets(2, 0, 1)).tolist() == [False, False, True]
    assert known.share_of(targets(2, 0, 1)) == 0.5
    assert known.of(targets(2, 0, 1, 0)) is None
    assert known.of(targets(2, 0, 1, 1)) is None
    assert known.share_of(targets(3)) == 0.0


def test_pairs_are_counted_by_product():
    """Hard queries are left to float32, the others to integers; each pair once, but for rows that were tried."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 64))
    near, far = block_of(centres[:20]), block_of(np.repeat(centres, 30, axis=0) + 0.01 * rng.normal(size=(1200, 64)))
    positives = [range(30 * i, 30 * i + 30) if i % 2 else range(0, 1200, 13) for i in range(20)]
    distance = REGISTERED.get("cosine")
    reduction, expected = counting(canonical_matrix(near, far, distance), positives, far.numbers, "cosine")
    with count_screened() as screened:
        (found,) = run_tiles(near, far, distance, TileShape(256, 256), [reduction])
    assert_counts(found, expected, reduction)
    assert screened["float32"] == 10 * 1200
    assert screened["int8"] == 10 * 1200 + 10 * coarse_tiles._TRIED_ROWS
    assert screened_words(screened) == "int8 for 52.5 %, float32 for 47.5 % of the pairs"
    assert [screened_words(each) for each in ({}, {"int8": 5}, {"float32": 2})] == ["", "int8", "float32"]


@pytest.mark.parametrize("has_reach", [False, True])
def test_lists_and_counts_read_the_same_products(has_reach):
    """Each pair once for both, in eight bits or in float32, but for rows that were tried."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 64))
    near, far = block_of(centres[:20]), block_of(np.repeat(centres, 30, axis=0) + 0.01 * rng.normal(size=(1200, 64)))
    # One query has its positives among all others: it is left to float32.
    positives = [range(30 * i, 30 * i + 30) if i else range(0, 1200, 13) for i in range(20)]
    distance = REGISTERED.get("cosine")
    matrix = canonical_matrix(near, far, distance)
    reduction, expected = counting(matrix, positives, far.numbers, "cosine")
    reach = np.sort(matrix, axis=1)[:, 4] if has_reach else None
    with count_screened() as screened:
        wanted = [KeepNearest(5, distance, reach=reach), reduction]
        lists, found = run_tiles(near, far, distance, TileShape(256, 256), wanted)
    assert_counts(found, expected, reduction)
    nearest_columns = np.argsort(matrix, axis=1, kind="stable")[:, :5]
    assert lists.index.tolist() == far.numbers[nearest_columns].tolist()
    assert lists.distance.tolist() == np.take_along_axis(matrix, nearest_columns, axis=1).tolist()
    tried = coarse_tiles._TRIED_ROWS
    assert screened["float32"] == 1200
    # Lists take the rows that are tried apart from counts.
    assert screened["int8"] == 20 * tried + 19 * tried + 19 * (1200 - tried)


@pytest.mark.parametrize("hides", [False, True])
def test_lists_nearer_than_all_thresholds(hides):
    """Lists take the pairs that counts have found: not of queries without positives, nor if counts hide some rows.

    Tiles of queries without positives follow those of others.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 64))
    near, far = block_of(centres), block_of(np.repeat(centres, 30, axis=0) + 0.5 * rng.normal(size=(600, 64)))
    positives = [range(30 * i, 30 * i + 30) if i < 10 else () for i in range(20)]
    distance = REGISTERED.get("cosine")
    matrix = canonical_matrix(near, far, distance)
    labels = (np.arange(600) % 2, np.zeros(20, np.int64)) if hides else ()
    reduction, expected = counting(matrix, positives, far.numbers, "cosine", *labels)
    wanted = [KeepNearest(5, distance, reach=np.sort(matrix, axis=1)[:, 4]), reduction]
    lists, found = run_tiles(near, far, distance, TileShape(10, 100), wanted)
    assert_counts(found, expected, reduction)
    assert lists.index.tolist() == far.numbers[np.argsort(matrix, axis=1, kind="stable")[:, :5]].tolist()
