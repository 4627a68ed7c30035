"""Features whose order a screen in float32 does not decide."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_agrees, evaluate_items
from oracles import evaluation
from oracles.protocols import assign_relevance
from support.reference import (
    DISTANCES,
    ItemSet,
    canonical_distances,
    order_is_unambiguous,
)

from reid_dist.errors import InputError

CHUNKS = (None, 7)


def items(features, pids, camera=0, first_id=0):
    """Items of one camera."""
    n = len(features)
    return ItemSet(np.asarray(features), np.asarray(pids), np.full(n, camera), np.arange(first_id, first_id + n))


def check(query, gallery, distance, chunks=CHUNKS, protocol="market1501"):
    """Agreement with the oracle for every tile size, and one digest."""
    assert order_is_unambiguous(query.features, gallery.features, distance)
    expected = evaluation.evaluate(query, gallery, protocol, distance)
    reports = [evaluate_items(query, gallery, protocol, distance, chunk_rows=chunk) for chunk in chunks]
    assert_agrees(reports[0], expected)
    assert len({report.result_digest for report in reports}) == 1
    return reports[0]


def check_up_to_near_ties(query, gallery, distance, margin=1e-12):
    """One digest for every tile size, and first ranks that are right but for negatives near to a positive."""
    relevant, junk = assign_relevance(query, gallery, "market1501")
    assert relevant.any()
    distances = canonical_distances(query.features, gallery.features, distance)
    reports = [evaluate_items(query, gallery, "market1501", distance, chunk_rows=chunk) for chunk in CHUNKS]
    assert len({report.result_digest for report in reports}) == 1
    for row, first_rank in enumerate(reports[0].per_query["first_rank"]):
        if relevant[row].any():
            nearest = distances[row][relevant[row]].min()
            negatives = distances[row][~relevant[row] & ~junk[row]]
            assert 1 + (negatives < nearest * (1 - margin)).sum() <= first_rank
            assert 1 + (negatives <= nearest * (1 + margin)).sum() >= first_rank


def labelled(features, n_query, seed, n_pids=4):
    """The first `n_query` rows as queries, the others as gallery, with identities at random."""
    pids = np.random.default_rng(seed).integers(0, n_pids, len(features))
    return items(features[:n_query], pids[:n_query], 0, 9000), items(features[n_query:], pids[n_query:], 1)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("value", [1.0, 0.1, 1 / 3, -7.25, 1e-4, 1e4])
def test_all_rows_equal(distance, value):
    features = np.full((80, 19), value, np.float32)
    query, gallery = labelled(features, 10, seed=1)
    report = check(query, gallery, distance)
    # All tied, hence ordered by gallery row.
    first = [np.flatnonzero(gallery.pids == pid)[0] + 1 for pid in query.pids]
    assert report.per_query["first_rank"].tolist() == first


def few_valued(rng, scale):
    """Each row repeats one number; each distance comes many times, for positives and negatives."""
    values = rng.choice([0.1, 0.2, 0.3, 0.7, 1.9, -0.4, 100.3], (80, 1)) * scale
    return np.repeat(values, 3000, axis=1)


def tiny_and_huge(rng):
    """Seen from a huge row all others are tied: what is subtracted is below the last bit."""
    scale = 10.0 ** rng.choice([-18, 0, 17], (120, 1))
    features = rng.uniform(0.5, 2, size=(120, 6)) * rng.choice([-1, 1], (120, 6)) * scale
    features[100:110] = features[:10]  # duplicates of queries
    return features


def with_scaled_rows(rng, rows, scale):
    """Normal rows, some of them much longer or shorter than the others."""
    features = rng.normal(size=(100, 12)).astype(np.float32)
    features[rows] *= np.float32(scale)
    return features


def one_column_apart(rng):
    """Rows one ulp apart in one column."""
    features = np.tile(rng.normal(size=16).astype(np.float32), (60, 1))
    rows, columns = np.arange(50), rng.integers(0, 16, 50)
    towards = rng.choice([-np.inf, np.inf], 50).astype(np.float32)
    features[rows, columns] = np.nextafter(features[rows, columns], towards)
    return features


def multiples(rng, dim):
    """Ratios such as 1 / sqrt(3) and 3 / sqrt(27) are equal in float64 or not, as rounding decides."""
    rows = rng.integers(-3, 4, (9, dim))
    rows[(rows == 0).all(axis=1)] = 1
    return rows[rng.integers(0, 9, 150)] * rng.integers(1, 30, (150, 1))


EUCLIDEAN = ("euclidean", "sqeuclidean")
# Features of a generator, and the distances for which they are hard.
HARD = {
    # Rounding errors of one sign add up: bounds that count on chance do not hold here.
    **{f"equal rows of {value:.3g}": (lambda _, value=value: np.full((60, 5000), value), DISTANCES)
       for value in (0.1, -0.3, 1 / 3)},
    **{f"few values times {scale:g}": (lambda rng, scale=scale: few_valued(rng, scale), EUCLIDEAN)
       for scale in (1e-6, 1, 1e6)},
    # All cosine distances within 1e-5: equal as float32 products.
    "collinear": (lambda rng: rng.normal(size=24) + 1e-3 * rng.normal(size=(90, 24)), DISTANCES),
    # The mean is a thousand times the spread and more, as after an activation that is never negative.
    **{f"offset {offset:g}": (lambda rng, offset=offset: offset + rng.normal(size=(90, 24)), EUCLIDEAN)
       for offset in (1e3, 1e6)},
    "one dimension": (lambda rng: rng.integers(1, 40, (100, 1)) - 20.5, DISTANCES),
    "tiny and huge": (tiny_and_huge, EUCLIDEAN),
    # Down to numbers below the normal range of float32.
    **{f"scale {scale:g}": (lambda rng, scale=scale: rng.normal(size=(100, 9)) * scale, EUCLIDEAN)
       for scale in (1e-18, 1e-25, 1e-42)},
    # Tolerances that follow the largest norm must not decide among the small.
    "one huge row": (lambda rng: with_scaled_rows(rng, 50, 1e15), EUCLIDEAN),
    **{f"every third row times {scale:g}": (
        lambda rng, scale=scale: with_scaled_rows(rng, slice(None, None, 3), scale), ("cosine",))
       for scale in (1e-42, 1e-30, 1e-18, 1e18, 1e37)},
    # Whole numbers in [2 ** 23, 2 ** 24), where one ulp is 1: all sums are exact, all cosines but a few ulp apart.
    "one ulp apart": (
        lambda rng: rng.integers(2**23, 2**24 - 2, 12) + rng.integers(-1, 2, (100, 12)), DISTANCES),
    "one column apart": (one_column_apart, EUCLIDEAN),
    **{f"multiples in {dim} dimensions": (lambda rng, dim=dim: multiples(rng, dim), DISTANCES)
       for dim in (1, 2, 4, 8, 12)},
}  # fmt: skip


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(("name", "distance"), [(name, each) for name, (_, hard) in HARD.items() for each in hard])
def test_hard_features(name, distance):
    make, _ = HARD[name]
    query, gallery = labelled(make(np.random.default_rng(3)).astype(np.float32), 10, seed=3)
    check(query, gallery, distance)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("distance", EUCLIDEAN)
@pytest.mark.parametrize("spread", [1e-1, 1e-3, 1e-6])
def test_queries_far_from_a_dense_gallery(distance, spread):
    """Seen from there all distances are nearly one."""
    rng = np.random.default_rng(19)
    features = rng.normal(size=(110, 12)) * np.where(np.arange(110) < 10, 1e3, spread)[:, None]
    features[100:] = features[90:100]
    query, gallery = labelled(features.astype(np.float32), 10, seed=19)
    check_up_to_near_ties(query, gallery, distance)
    check_up_to_near_ties(gallery, query, distance)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("distance", EUCLIDEAN)
@pytest.mark.parametrize("seed", range(3))
def test_norms_from_the_tiny_to_the_huge(distance, seed):
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.integers(-18, 19, (120, 1))  # norms below 1e18
    features = (rng.uniform(-0.4, 0.4, size=(120, 6)) * scale).astype(np.float32)
    features[100:110] = features[:10]  # duplicates of queries
    query, gallery = labelled(features, 20, seed)
    check_up_to_near_ties(query, gallery, distance)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("scale", [3e19, 1e25, 3e37])
def test_what_cannot_be_screened_is_exact_or_refused(distance, scale):
    """Squared norms beyond float32: the right answer or an error by name, never another answer."""
    rng = np.random.default_rng(6)
    features = rng.uniform(-1, 1, size=(60, 9)).astype(np.float32)
    features[::2] *= np.float32(scale)
    query, gallery = labelled(features, 10, seed=6)
    report, refusal = None, ""
    try:
        report = evaluate_items(query, gallery, "market1501", distance)
    except InputError as error:  # a refusal is as correct as a result
        refusal = str(error).lower()
    if report is None:
        assert "overflow" in refusal
    else:
        assert_agrees(report, evaluation.evaluate(query, gallery, "market1501", distance))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("distance", DISTANCES)
def test_half_precision(distance):
    rng = np.random.default_rng(8)
    features = rng.normal(size=(120, 31)).astype(np.float16)
    features[60:80] = features[40:60]
    query, gallery = labelled(features, 20, seed=8)
    half = check(query, gallery, distance)
    single = evaluate_items(
        query.with_features(query.features.astype(np.float32)),
        gallery.with_features(gallery.features.astype(np.float32)),
        "market1501",
        distance,
    )
    assert half.result_digest == single.result_digest


def test_squares_apart_whose_roots_tie():
    """Near 2 ** 52 the roots of two neighbouring whole numbers are one float64: a tie, but only without the square."""
    n = 60
    features = np.full((n, 18), 2.0**24, np.float32)
    features[:, 16:] = np.random.default_rng(17).integers(0, 2, (n, 2))
    query = items(np.zeros((1, 18), np.float32), np.array([1]), 0, 9000)
    gallery = items(features, np.arange(n) % 4, 1)
    squared = canonical_distances(query.features, gallery.features, "sqeuclidean")
    assert len(np.unique(np.sqrt(squared))) < len(np.unique(squared))
    ranks = {distance: check(query, gallery, distance).per_query["AP"][0] for distance in ("euclidean", "sqeuclidean")}
    assert ranks["euclidean"] != ranks["sqeuclidean"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("n_relevant", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129])
def test_any_number_of_positives(distance, n_relevant):
    """With and without ties, in galleries a little shorter and longer than a power of two."""
    rng = np.random.default_rng(n_relevant)
    for n_gallery in (255, 511, 513, 1027):
        features = rng.normal(size=(n_gallery + 2, 6)).astype(np.float32)
        features[1::2] = features[rng.integers(0, 9, len(features[1::2]))]
        pids = np.full(n_gallery, 5)
        pids[rng.choice(n_gallery, n_relevant, replace=False)] = 1
        query, gallery = items(features[:2], np.array([1, 1]), 0, 9000), items(features[2:], pids, 1)
        check(query, gallery, distance, chunks=(None, 100))


@pytest.mark.parametrize("distance", DISTANCES)
def test_copies_of_queries_in_the_gallery(distance):
    """As positives, as negatives, as junk: distance exactly zero for all, and the gallery row decides."""
    rng = np.random.default_rng(15)
    features = rng.normal(size=(8, 27)).astype(np.float32)
    query = items(features, np.arange(8), 0, 9000)
    copies = np.tile(features, (12, 1))
    pids = rng.integers(-1, 8, 96)
    gallery = ItemSet(copies, pids, rng.integers(0, 2, 96), np.arange(96))
    check(query, gallery, distance)


def test_opposite_and_orthogonal_rows():
    axes = np.concatenate([np.eye(8), -np.eye(8)]).astype(np.float32)
    rng = np.random.default_rng(16)
    query = items(axes, np.arange(16) % 5, 0, 9000)
    gallery = items(axes[rng.integers(0, 16, 60)] * rng.integers(1, 9, (60, 1)), rng.integers(0, 5, 60), 1)
    gallery = gallery.with_features(gallery.features.astype(np.float32))
    for distance in DISTANCES:
        check(query, gallery, distance)


def test_zero_rows_are_at_distance_one_from_everything():
    features = np.array([[0, 0], [1, 0], [0, 0], [1, 1], [-1, 0], [0, 2]], np.float32)
    pids = np.array([1, 2, 1, 2, 2, 1])
    gallery = items(features, pids, 1)
    query = items(features[:2], pids[:2], 0, 9000)
    check(query, gallery, "cosine")
    report = evaluate_items(query.take([0]), gallery, "market1501", "cosine")
    # Everything is tied for the zero query: rows 0, 2 and 5 are its own.
    assert report.per_query["first_rank"].tolist() == [1]
    assert report.per_query["AP"].tolist() == [(1 + 2 / 3 + 3 / 6) / 3]
