"""Counts for ranks in every precision of products: those of comparing all canonical distances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.exact_products import begin_with_integers, free_integers, use_integers, use_precisions
from support.reference import DISTANCES
from support.row_blocks import (
    block_of,
    canonical_matrix,
    halve_bounds,
    hard_blocks,
    labelled_hard_rows,
    rows_at_the_edge,
)
from support.sampling import examples
from support.strategies import seeds

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.core.environment import SCREEN_VARIABLE
from reid_dist.core.model import GalleryMask, Hidden, Targets
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import bands
from reid_dist.engine.reductions.costs import Costs, Precision
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.surroundings import KeepNearest
from reid_dist.engine.screened_pairs import count_screened, screened_words
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import Rescoring

pytest.importorskip("onnxruntime")

MULTIPLIED = (Precision.INTEGERS, Precision.PLAIN, Precision.WIDE)


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    """Integers for all blocks, however small."""
    use_integers(monkeypatch)


def force_path(patch, data, n_pairs=1600):
    """Any precision first for each query; little room for open pairs, and tiles that are read again soon."""
    rng = np.random.default_rng(data.draw(seeds()))
    mixed = data.draw(st.sampled_from([*([kind] for kind in MULTIPLIED), MULTIPLIED]))
    use_precisions(patch, lambda n: rng.choice(mixed, n))
    patch.setattr(bands, "OPEN_PAIRS", data.draw(st.sampled_from([0, 1, 20, 1 << 16])))
    given_up = data.draw(st.sampled_from([0.0, 0.01, 0.2, 1.0]))
    spared = data.draw(st.sampled_from([0, 1, 64]))
    patch.setattr(bands, "most_inside", lambda size, _, given_up=given_up: int(given_up * size) + spared)


def csr(lists):
    return np.cumsum([0, *map(len, lists)]), np.array([each for own in lists for each in own], np.int64)


def counting(matrix, positives, numbers, name, label=None, own_label=None, group=None):
    """The reduction for positive columns of every query, and what it should count, by comparing distances.

    It counts columns of a group (a mask), if one is given.
    """
    thresholds, start, rows, counts = [], [0], [], []
    junk = np.zeros(numbers[-1] + 1, np.bool_)
    for i, columns in enumerate(positives):
        own = sorted({matrix[i, j] for j in columns})
        kept = np.ones(matrix.shape[1], np.bool_)
        kept[list(columns)] = False
        if label is not None:
            kept &= label[numbers] != own_label[i]
        if group is not None:
            kept &= group
        thresholds.append(own)
        for last, t in zip([-np.inf, *own], own, strict=False):
            here = sorted(numbers[j] for j in columns if matrix[i, j] == t)
            rows += here
            start.append(len(rows))
            # Nearer than this threshold alone, tied before each of its positives, and behind them.
            counts.append(int((kept & (matrix[i] > last) & (matrix[i] < t)).sum()))
            places = np.searchsorted(here, numbers[kept & (matrix[i] == t)])
            counts += [int((places == place).sum()) for place in range(len(here) + 1)]
    indptr, distance = np.cumsum([0, *map(len, thresholds)]), np.array([t for own in thresholds for t in own])
    hidden = Hidden(*csr([sorted(numbers[list(own)]) for own in positives]), own_label, False)
    targets = Targets(indptr, distance, np.array(start), np.array(rows, np.int64), hidden)
    return CountNearer(targets, GalleryMask(junk, label)), counts


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(seed=seeds(), tile=st.sampled_from([3, 17, 64]), labelled=st.booleans(), data=st.data())
def test_counts_of_every_threshold(name, seed, tile, labelled, data):
    """Thresholds at the distances of random gallery rows, duplicates of negatives among them; decisions anywhere.

    With lists beside the counts, or without.
    """
    rng, distance = np.random.default_rng(seed), REGISTERED.get(name)
    rows = data.draw(hard_blocks(name))
    near, far = block_of(rows[0]), block_of(rows[1], 100)
    matrix = canonical_matrix(near, far, distance)
    positives = [np.flatnonzero(rng.random(len(far)) < rng.choice([0.0, 0.1, 0.5, 0.95])) for _ in range(len(near))]
    label = rng.integers(0, 3, 100 + len(far)) if labelled else None
    own_label = rng.integers(0, 4, len(near)) if labelled else None
    reduction, expected = counting(matrix, positives, far.numbers, name, label, own_label)
    group = rng.integers(5, 8, len(far)) if data.draw(st.booleans()) else None
    k, order = data.draw(st.sampled_from([0, 2, 6])), np.argsort(matrix, axis=1, kind="stable")
    nearest_columns = order[:, :k]
    reach = matrix[np.arange(len(near)), order[:, min(k, len(far)) - 1]] if k and data.draw(st.booleans()) else None
    wanted = [KeepNearest(k, reach=reach)] if k else []
    with pytest.MonkeyPatch.context() as patch:
        force_path(patch, data)
        grouped = replace(far, group=group)
        *lists, found = run_tiles(
            near, grouped, distance, TileShape(tile, tile), [*wanted, reduction], policy=Policy.in_force()
        )
    if group is None:
        assert found[0].tolist() == expected
    else:
        assert set(found) == set(group.tolist())
        for each, own in found.items():
            _, expected = counting(matrix, positives, far.numbers, name, label, own_label, group == each)
            assert own.tolist() == expected
    for listed in lists:
        n = nearest_columns.shape[1]
        assert listed.index[:, :n].tolist() == far.numbers[nearest_columns].tolist()
        assert listed.distance[:, :n].tolist() == np.take_along_axis(matrix, nearest_columns, 1).tolist()
        assert (listed.index[:, n:] == -1).all()


@pytest.mark.parametrize("n_thresholds", [3, 40, 300])
@pytest.mark.parametrize("precision", MULTIPLIED)
def test_few_thresholds_and_many(n_thresholds, precision, monkeypatch):
    """Rows with few values and with many, of which some lie in bands: every way to place them."""
    use_precisions(monkeypatch, lambda n: np.full(n, precision))
    rng, distance = np.random.default_rng(n_thresholds), REGISTERED.get("sqeuclidean")
    centres = rng.normal(size=(3, 64))
    rows = centres[rng.integers(0, 3, 900)] + rng.choice([0.01, 0.3, 3.0], (900, 1)) * rng.normal(size=(900, 64))
    near, far = block_of(np.concatenate([centres, rng.normal(size=(3, 64))])), block_of(rows, 7)
    matrix = canonical_matrix(near, far, distance)
    by_distance = np.argsort(matrix, axis=1, kind="stable")
    # Thresholds of the nearest rows, of every other row, and of one query none.
    positives = [
        order[: n_thresholds * step : step] for order, step in zip(by_distance, (1, 2, 1, 3, 2, 1), strict=True)
    ]
    positives[3] = ()
    reduction, expected = counting(matrix, positives, far.numbers, "sqeuclidean")
    (found,) = run_tiles(near, far, distance, TileShape(4, 700), [reduction], policy=Policy.in_force())
    assert found[0].tolist() == expected


def counts_at_the_edge(sign, n_nearer, swaps):
    """A positive, and a negative that equals it; their integers, or the query's, are off by nearly all of the bound."""
    query, row = rows_at_the_edge(512, sign)[:: -1 if swaps else 1]
    near, far = block_of(query), block_of(np.concatenate([row, row, -np.ones((3, 512)), np.ones((n_nearer, 512))]))
    reduction, expected = counting(canonical_matrix(near, far, REGISTERED.get("cosine")), [[1]], far.numbers, "cosine")
    (found,) = run_tiles(near, far, REGISTERED.get("cosine"), TileShape(8, 128), [reduction], policy=Policy.in_force())
    return found[0].tolist(), expected


@pytest.mark.parametrize(
    ("sign", "n_nearer", "swaps"), [(1.0, 0, False), (1.0, 90, False), (-1.0, 90, False), (1.0, 0, True)]
)
def test_threshold_at_the_edge_of_a_bound(sign, n_nearer, swaps, monkeypatch):
    """The tie is found, by integers, among few values and many; with half the bound it is not."""
    begin_with_integers(monkeypatch)
    found, expected = counts_at_the_edge(sign, n_nearer, swaps)
    assert found == expected == [n_nearer, 1, 0]
    halve_bounds(monkeypatch)
    assert counts_at_the_edge(sign, n_nearer, swaps)[0] == [n_nearer + int(sign < 0), 0, 0]


@pytest.mark.parametrize("name", ["cosine", "sqeuclidean"])
def test_known_pairs_among_products_of_integers(name, monkeypatch):
    """Known pairs are hidden, relevant, nearer than all thresholds or not; others lie among them."""
    begin_with_integers(monkeypatch)
    rng, distance = np.random.default_rng(0), REGISTERED.get(name)
    for share in (0.05, 0.5):
        plain, far = block_of(rng.normal(size=(20, 31))), block_of(rng.normal(size=(90, 31)), 100)
        has_value = rng.random((20, 90)) < share
        indptr, known = np.concatenate([[0], np.cumsum(has_value.sum(axis=1))]), rng.integers(0, 9, has_value.sum()) / 9
        row, scale = far.numbers[np.nonzero(has_value)[1]], canonical_matrix(plain, far, distance).max(axis=1)
        near = replace(plain, reranked=Rescoring(True, 0.3, False, scale, indptr, row, known))
        matrix = canonical_matrix(near, far, distance)
        positives = [np.flatnonzero(rng.random(90) < 0.2) for _ in range(20)]
        label, own_label = rng.integers(0, 3, 190), rng.integers(0, 4, 20)
        reduction, expected = counting(matrix, positives, far.numbers, name, label, own_label)
        with count_screened() as screened:
            (found,) = run_tiles(near, far, distance, TileShape(8, 64), [reduction], policy=Policy.in_force())
        assert screened["ranks, int8"]
        assert found[0].tolist() == expected


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
    near = replace(plain, reranked=Rescoring(True, weight, squares and name != "euclidean", scale, indptr, row, known))
    matrix = canonical_matrix(near, far, distance)
    assume(np.isfinite(matrix).all())
    label, own_label = rng.integers(0, 3, 100 + len(far)), rng.integers(0, 4, n)
    share = rng.choice([0.02, 0.3])
    positives = [np.flatnonzero(rng.random(len(far)) < share) for _ in range(n)]
    reduction, expected = counting(matrix, positives, far.numbers, name, label, own_label)
    with pytest.MonkeyPatch.context() as patch:
        force_path(patch, data)
        (found,) = run_tiles(near, far, distance, TileShape(tile, tile), [reduction], policy=Policy.in_force())
    assert found[0].tolist() == expected


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
    wanted = [KeepNearest(k, hidden, GalleryMask(junk, label))]
    positives = [np.flatnonzero(rng.random(len(far)) < 0.1) for _ in range(len(near))]
    counted, expected = counting(matrix, positives, far.numbers, name)
    if data.draw(st.booleans()):
        wanted.append(counted)
    with pytest.MonkeyPatch.context() as patch:
        force_path(patch, data)
        listed, *counts = run_tiles(near, far, distance, TileShape(tile, tile), wanted, policy=Policy.in_force())
    for query, kept in enumerate(visible):
        columns = np.flatnonzero(kept)
        columns = columns[np.argsort(matrix[query, columns], kind="stable")][:k]
        n = len(columns)
        assert listed.index[query].tolist() == [*far.numbers[columns].tolist(), *[-1] * (k - n)]
        assert listed.distance[query].tolist() == [*matrix[query, columns].tolist(), *[np.inf] * (k - n)]
    for found in counts:
        assert found[0].tolist() == expected


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_same_report_as_in_float32(name, data):
    rows, pids, camids = labelled_hard_rows(data, name)
    # One list beside the counts, of all gallery rows or of those that a query without relevant ones sees.
    topk, metrics = data.draw(st.sampled_from([(None, []), (3, []), (None, ["DIR@FAR=0.1"])]))
    found, lists = {}, {}
    for screen in ("int8", "float32"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SCREEN_VARIABLE, screen)
            if screen == "int8":
                begin_with_integers(patch)
            items = asked = FeatureSet.from_arrays(rows, pids, camids)
            if metrics:
                asked = FeatureSet.from_arrays(rows, np.where(np.arange(len(rows)) % 5 == 4, 77, pids), camids)
            chunk_rows = data.draw(st.sampled_from([16, 64]))
            found[screen] = evaluate(
                asked, items, distance=name, chunk_rows=chunk_rows, topk=topk, metrics=["mAP", *metrics]
            )
            lists[screen] = nearest(
                items, FeatureSet.from_arrays(rows[::-1], pids), k=4, distance=name, chunk_rows=chunk_rows
            )
    assert lists["int8"].index.tobytes() == lists["float32"].index.tobytes()
    assert lists["int8"].distance.tobytes() == lists["float32"].distance.tobytes()
    if topk is not None:
        assert found["int8"].topk.digest == found["float32"].topk.digest
    assert found["int8"].result_digest == found["float32"].result_digest
    assert found["float32"].environment.get("products", "float32") != "int8"
    assert topk is not None or "int8" in found["int8"].environment["products"]


def recorded(report):
    """What a report says of results."""
    others = ("environment", "timing", "document_digest")
    return {name: value for name, value in report.to_dict().items() if name not in others}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    "options",
    [
        {"breakdowns": ["camera_pair", "gallery_size"]},
        {"metrics": ["mAP", "TAR@FAR=1e-2", "EER", "DIR@FAR=0.1"], "roc": True, "topk": 4},
        {
            "rerank": "k_reciprocal(k1=8,k2=3,variant=faiss_k1)",
            "metrics": ["mAP", "TAR@FAR=0.1"],
            "topk": 5,
            "ties": True,
        },
        {"collapse": "pid", "ties": True, "distance": "euclidean"},
        {"protocol": "cuhk03", "metrics": ["CMC_single_shot@1", "CMC_allshots@5", "mAP"], "distance": "sqeuclidean"},
        {"expand": "aqe(k=3)", "rerank": "gnn(k1=8,k2=3)", "breakdowns": ["camera"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_everything_a_report_says_is_the_same_in_float32(options):
    rng = np.random.default_rng(4)
    pids, camids = rng.integers(-1, 12, 260), rng.integers(0, 3, 260)
    rows = rng.normal(size=(13, 40))[pids] + rng.choice([0.1, 1.5], (260, 1)) * rng.normal(size=(260, 40))
    rows[200:230] = rows[rng.integers(0, 200, 30)]
    sides = [FeatureSet.from_arrays(rows[cut].astype(np.float32), pids[cut], camids[cut])
             for cut in (slice(0, 40), slice(40, 260))]  # fmt: skip
    found = {}
    for screen, chunk_rows in (("float32", None), ("int8", None), ("int8", 37)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(SCREEN_VARIABLE, "float32")
            if screen == "int8":
                begin_with_integers(patch)
            report = evaluate(*sides, **options, chunk_rows=chunk_rows)
        found[screen, chunk_rows] = report
        # Mixed distances are read in float32 alone, and so may those be for which thresholds are sought.
        if screen == "int8" and not {"metrics", "expand"} & {*options}:
            assert screen in report.environment["products"]
    one, *others = found.values()
    for other in others:
        assert recorded(other) == recorded(one)
        assert other.result_digest == one.result_digest
        assert one.topk is None or other.topk.digest == one.topk.digest


def heaps():
    """Queries at the middle of forty heaps, and the rows of these; every other query has its positives anywhere."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 64))
    near, far = block_of(centres[:20]), block_of(np.repeat(centres, 30, axis=0) + 0.01 * rng.normal(size=(1200, 64)))
    positives = [range(30 * i, 30 * i + 30) if i % 2 else range(0, 1200, 13) for i in range(20)]
    matrix = canonical_matrix(near, far, REGISTERED.get("cosine"))
    return near, far, matrix, *counting(matrix, positives, far.numbers, "cosine")


def test_pairs_are_counted_by_product(monkeypatch):
    """Hard queries are read in float32 and the others as integers, each pair once."""
    monkeypatch.setattr(bands, "_FEWEST", 1)
    policy = free_integers(monkeypatch)
    near, far, _, reduction, expected = heaps()
    with count_screened() as screened:
        (found,) = run_tiles(near, far, REGISTERED.get("cosine"), TileShape(256, 256), [reduction], policy)
    assert found[0].tolist() == expected
    assert screened["ranks, int8"] == 10 * 1200
    # One of the hard queries has so many pairs inside bands that float64 is cheaper.
    assert screened["ranks, float32"] + screened.get("ranks, float64", 0) == 10 * 1200
    halves = screened_words({"ranks, int8": 7, "ranks, float32": 7})
    assert halves == "int8 for 50%, float32 for 50% of the pairs"
    assert [screened_words(each) for each in ({}, {"ranks, int8": 5}, {"lists, float32": 2})] == ["", "int8", "float32"]
    of_both = {"ranks, int8": 5, "lists, float32": 2, "lists, int8": 6}
    assert screened_words(of_both) == "lists: int8 for 75%, float32 for 25% of the pairs; ranks: int8"
    of_all = {"ranks, float64": 1, "ranks, float32": 3, "ranks, int8": 6}
    assert screened_words(of_all) == "int8 for 60%, float32 for 30%, float64 for 10% of the pairs"


def test_few_queries_get_no_products_of_their_own(monkeypatch):
    """Whatever their precision would be, they share the products of the others."""
    rare = np.where(np.arange(20) % 7, Precision.PLAIN, Precision.WIDE).astype(np.uint8)
    monkeypatch.setattr(Costs, "cheapest", lambda *_: rare)
    near, far, _, reduction, expected = heaps()
    for fewest, screened in (
        (1, {"ranks, float32": 17 * 1200, "ranks, float64": 3 * 1200}),
        (4, {"ranks, float32": 20 * 1200}),
    ):
        monkeypatch.setattr(bands, "_FEWEST", fewest)
        with count_screened() as found:
            (counted,) = run_tiles(near, far, REGISTERED.get("cosine"), TileShape(256, 256), [reduction])
        assert counted[0].tolist() == expected
        assert found == screened


def test_tiles_that_integers_leave_open_are_read_in_float32(monkeypatch):
    """By the estimate at once, or what is left of the queries when a tile is given up."""
    rng, cosine = np.random.default_rng(0), REGISTERED.get("cosine")
    near, far = block_of(rng.normal(size=(8, 512))), block_of(rng.normal(size=(300, 512)))
    matrix = canonical_matrix(near, far, cosine)
    reduction, expected = counting(matrix, [range(0, 300, 15)] * 8, far.numbers, "cosine")
    monkeypatch.setattr(bands, "_FEWEST", 1)
    found, policy = [], free_integers(monkeypatch)
    for begins in (False, True):
        if begins:
            use_precisions(monkeypatch, lambda n: np.full(n, Precision.INTEGERS))
            monkeypatch.setattr(bands, "most_inside", lambda size, given_up: 100)
        with count_screened() as screened:
            (counted,) = run_tiles(near, far, cosine, TileShape(8, 100), [reduction], policy)
        assert counted[0].tolist() == expected
        found.append(screened)
    assert found == [{"ranks, float32": 2400}, {"ranks, int8": 800, "ranks, float32": 2400}]


@pytest.mark.parametrize("has_reach", [False, True])
def test_lists_and_counts_read_the_same_products(has_reach, monkeypatch):
    """Each pair once for both, as integers or in float32."""
    monkeypatch.setattr(bands, "_FEWEST", 1)
    policy = free_integers(monkeypatch)
    near, far, matrix, reduction, expected = heaps()
    distance, reach = REGISTERED.get("cosine"), np.sort(matrix, axis=1)[:, 4] if has_reach else None
    with count_screened() as screened:
        wanted = [KeepNearest(5, reach=reach), reduction]
        lists, found = run_tiles(near, far, distance, TileShape(256, 256), wanted, policy)
    assert found[0].tolist() == expected
    nearest_columns = np.argsort(matrix, axis=1, kind="stable")[:, :5]
    assert lists.index.tolist() == far.numbers[nearest_columns].tolist()
    assert lists.distance.tolist() == np.take_along_axis(matrix, nearest_columns, axis=1).tolist()
    assert screened["ranks, int8"] == screened["lists, int8"] == 10 * 1200
    assert screened["lists, float32"] == 10 * 1200
    assert screened["ranks, float32"] + screened.get("ranks, float64", 0) == 10 * 1200


@pytest.mark.parametrize("hides", [False, True])
def test_lists_nearer_than_all_thresholds(hides):
    """Beside counts, of queries without positives too, and where counts hide some rows."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(20, 64))
    near, far = block_of(centres), block_of(np.repeat(centres, 30, axis=0) + 0.5 * rng.normal(size=(600, 64)))
    positives = [range(30 * i, 30 * i + 30) if i < 10 else () for i in range(20)]
    distance = REGISTERED.get("cosine")
    matrix = canonical_matrix(near, far, distance)
    labels = (np.arange(600) % 2, np.zeros(20, np.int64)) if hides else ()
    reduction, expected = counting(matrix, positives, far.numbers, "cosine", *labels)
    wanted = [KeepNearest(5, reach=np.sort(matrix, axis=1)[:, 4]), reduction]
    lists, found = run_tiles(near, far, distance, TileShape(10, 100), wanted, policy=Policy.in_force())
    assert found[0].tolist() == expected
    assert lists.index.tolist() == far.numbers[np.argsort(matrix, axis=1, kind="stable")[:, :5]].tolist()
