"""An evaluation under re-ranking equals that of the re-ranked distances, bit for bit, for any blocks and tiles."""

from __future__ import annotations

import numpy as np
import pytest
from oracles import reranking as oracle
from support.reference import DISTANCES, ItemSet
from support.reranking_runs import labelled
from support.strategies import crowded_sets, scattered_sets

from reid_dist import DistanceBlock, evaluate, evaluate_distances, reranked_distances
from reid_dist.stages import search_plan as neighbour_plan
from reid_dist.stages.reranking.k_reciprocal import KReciprocal

RANKED = ("mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec", "CMC@1", "CMC@5", "P@5", "R@10", "mAP@10", "CMC_allshots@3")
MORE = {"topk": 9, "ties": True, "confidence": None}
TABLES = {"breakdowns": ["camera", "camera_pair", "identity", "gallery_size"], "gallery_sizes": [10, 0.5, 1.0]}


def duplicated():
    """Queries and gallery in which most rows have copies: many ties, of positives and negatives alike."""
    return crowded_sets(25, 160, 12, seed=7, n_distinct=70)


def spread():
    """Items around the centres of their identities, no two alike."""
    return scattered_sets(25, 160, 12, seed=8)


SETS = {"duplicated": duplicated, "spread": spread}
# (k1, k2, lambda) that leave most pairs without a common neighbour, or few; large weights and small ones.
SHAPES = ((4, 2, 0.3), (9, 1, 0.0), (6, 3, 1.0), (7, 8, 1e-9))


def assert_same_answer(report, other):
    """Digest, lists, ties and tables."""
    assert report.metrics == other.metrics
    assert report.result_digest == other.result_digest
    assert report.ties == other.ties
    assert (report.topk is None) == (other.topk is None)
    if report.topk is not None:
        assert report.topk.digest == other.topk.digest
        np.testing.assert_array_equal(report.topk.distance, other.topk.distance)
    assert report.breakdowns == other.breakdowns


def both_ways(query, gallery, rerank, distance="cosine", protocol="market1501", metrics=RANKED, **options):
    """Evaluate under a re-ranking, and the block of distances that it comes to."""
    near, far = labelled(query), labelled(gallery)
    options = {"protocol": protocol, "metrics": list(metrics), **MORE, **options}
    report = evaluate(near, far, distance=distance, rerank=rerank, **options)
    block = reranked_distances(near, far, rerank=rerank, distance=distance)
    options.pop("chunk_rows", None)
    return report, evaluate_distances(DistanceBlock.from_array(block), near, far, **options)


# ------------------------------------------------------------------------------------- the block says the same


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("variant", oracle.VARIANTS)
@pytest.mark.parametrize("name", SETS)
def test_is_the_evaluation_of_the_block(name, variant, distance):
    query, gallery = SETS[name]()
    for place, (k1, k2, weight) in enumerate(SHAPES):
        spec = KReciprocal(k1=k1, k2=k2, lambda_value=weight, variant=variant)
        chunk = (None, 13, 64)[place % 3]
        assert_same_answer(*both_ways(query, gallery, spec, distance, chunk_rows=chunk))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("market1501", TABLES),
        ("market1501", {**TABLES, "gallery_order": "random", "seed": 4}),
        ("cuhk03", {"metrics": ["CMC_single_shot@1", "CMC_single_shot@5", "mAP"]}),
        ("cuhk03", {"metrics": ["CMC_single_shot@3"], "single_shot_draws": 20, "seed": 3}),
        ("allshots", {}),
        ("no_cameras", {"breakdowns": ["identity", "gallery_size"]}),
    ],
)
@pytest.mark.parametrize("name", SETS)
def test_protocols_and_tables(name, protocol, options):
    query, gallery = SETS[name]()
    rerank = "k_reciprocal(k1=6,k2=3)"
    options = {"metrics": RANKED, **options}
    report, other = both_ways(query, gallery, rerank, protocol=protocol, chunk_rows=40, **options)
    assert_same_answer(report, other)


@pytest.mark.slow
def test_one_set_among_itself():
    items = duplicated()[1].take(range(120))
    items = ItemSet(items.features, items.pids, items.camids, np.arange(120))
    report, other = both_ways(items, items, "k_reciprocal(k1=8,k2=3)", protocol="same_set")
    assert_same_answer(report, other)


def test_ground_truth():
    query, gallery = spread()
    rng = np.random.default_rng(3)
    place = rng.choice(4, (len(query), len(gallery)), p=[0.05, 0.05, 0.1, 0.8])
    names = ("good", "ok", "junk")
    truth = [{name: np.flatnonzero(row == i).tolist() for i, name in enumerate(names)} for row in place]
    report, other = both_ways(query, gallery, "k_reciprocal(k1=6,k2=3)", protocol="oxford", ground_truth=truth,
                              metrics=["mAP", "mAP_trapezoid", "CMC@1"])  # fmt: skip
    assert_same_answer(report, other)


@pytest.mark.slow
def test_zero_rows():
    """At cosine distance 1 from everything, themselves too."""
    query, gallery = spread()
    query.features[:3], gallery.features[::20] = 0, 0
    for variant in oracle.VARIANTS:
        for chunk in (None, 16):
            rerank = KReciprocal(k1=5, k2=3, variant=variant)
            assert_same_answer(*both_ways(query, gallery, rerank, chunk_rows=chunk))


@pytest.mark.parametrize("distance", DISTANCES)
def test_entries_of_the_report(distance):
    query, gallery = map(labelled, spread())
    report = evaluate(query, gallery, distance=distance, rerank="k_reciprocal(k1=6,variant=zhong_d4)")
    assert report.rerank["name"] == "k_reciprocal"
    requested = {
        "k1": 6,
        "k2": 6,
        "lambda_value": 0.3,
        "variant": "zhong_d4",
        "inclusive": False,
        "weights": "gaussian",
    }
    assert {name: report.rerank[name] for name in requested} == requested
    assert report.distance["name"] == distance
    plain = evaluate(query, gallery, distance=distance)
    assert plain.rerank is None
    assert plain.result_digest != report.result_digest


# ---------------------------------------------------------------------------------------- one answer, however cut


@pytest.fixture(scope="module")
def expected():
    """The undisturbed report on duplicates."""
    query, gallery = duplicated()
    return evaluate(labelled(query), labelled(gallery), rerank="k_reciprocal(k1=6,k2=3)", topk=9, confidence=None)


def again(**options):
    query, gallery = duplicated()
    return evaluate(
        labelled(query), labelled(gallery), rerank="k_reciprocal(k1=6,k2=3)", topk=9, confidence=None, **options
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("chunk", [7, 1, 64, 10_000])
def test_chunk_rows(expected, chunk):
    assert_same_answer(again(chunk_rows=chunk), expected)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("rows", "tile"), [(50, 16), (10, 3), (64, 1024), (184, 50), (185, 185)])
def test_blocks_of_items(expected, monkeypatch, rows, tile):
    monkeypatch.setattr(neighbour_plan, "_MOST_BLOCK_ROWS", rows)
    monkeypatch.setattr(neighbour_plan, "TILE_ROWS", tile)
    assert_same_answer(again(), expected)


@pytest.mark.parametrize("n_threads", [1, 3, 16])
def test_threads(expected, monkeypatch, n_threads):
    monkeypatch.setattr("reid_dist.core.environment.usable_cores", lambda: n_threads)
    assert_same_answer(again(), expected)


@pytest.mark.slow
def test_stores(expected, tmp_path):
    """On disk in chunks of all sizes, one side in memory, and one side on disk."""
    query, gallery = map(labelled, duplicated())
    near = [query, *(query.save(tmp_path / f"query-{rows}.zarr", chunk_rows=rows) for rows in (3, 10))]
    far = [gallery, *(gallery.save(tmp_path / f"gallery-{rows}.zarr", chunk_rows=rows) for rows in (21, 500))]
    for each, other in [(near[1], far[1]), (near[2], far[2]), (near[0], far[1]), (near[1], far[0])]:
        report = evaluate(each, other, rerank="k_reciprocal(k1=6,k2=3)", topk=9, confidence=None)
        assert_same_answer(report, expected)


@pytest.mark.slow
def test_blocks_and_tiles_of_one_item(monkeypatch):
    query, gallery = (each.take(range(6)) for each in duplicated())
    near, far = labelled(query), labelled(gallery)
    whole = reranked_distances(near, far, rerank="k_reciprocal(k1=4,k2=3)")
    monkeypatch.setattr(neighbour_plan, "_MOST_BLOCK_ROWS", 1)
    monkeypatch.setattr(neighbour_plan, "TILE_ROWS", 1)
    assert reranked_distances(near, far, rerank="k_reciprocal(k1=4,k2=3)").tobytes() == whole.tobytes()


# ------------------------------------------------------------------------------------------------- both ends


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", SETS)
def test_lambda_0_ties_what_shares_nothing_at_1(name):
    query, gallery = SETS[name]()
    for variant in oracle.VARIANTS:
        rerank = KReciprocal(k1=5, k2=2, lambda_value=0.0, variant=variant)
        report, other = both_ways(query, gallery, rerank, topk=160)
        assert_same_answer(report, other)
        options = {"variant": variant, "k1": 5, "k2": 2, "lambda_value": 0.0}
        steps = oracle.steps(query.features, gallery.features, **options)
        n = len(query)
        meet = (steps.mean_weights[:n] > 0) @ (steps.mean_weights[n:] > 0).T
        index, found = report.topk.index, report.topk.distance
        for row in range(n):
            apart = index[row][found[row] == 1.0]
            assert set(np.flatnonzero(~meet[row])) == set(apart.tolist())
            assert (np.diff(apart) > 0).all(), "by gallery row"
            assert (found[row][: len(index[row]) - len(apart)] < 1).all()


def test_rows_that_are_wanted():
    query, gallery = map(labelled, duplicated())
    block = reranked_distances(query, gallery, rerank="k_reciprocal(k1=6,k2=3)")
    assert block.shape == (25, 160)
    assert block.dtype == np.float64
    for rows in ([3], [7, 0, 7, 24], np.array([], np.int64), range(5), np.array([2, 1], np.uint8)):
        some = reranked_distances(query, gallery, rerank="k_reciprocal(k1=6,k2=3)", rows=rows)
        assert some.tobytes() == block[np.asarray(rows, np.int64)].tobytes()
