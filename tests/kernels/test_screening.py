"""The bound of screening: no screening value deviates from its canonical distance by more than epsilon."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms


def features(kind: str, rng: np.random.Generator, n: int, dim: int) -> np.ndarray:
    normal = rng.standard_normal((n, dim))
    made = {
        "normal": normal,
        "constant": np.full((n, dim), 0.1),
        "few values": rng.choice([0.1, 0.3], (n, dim)),
        "collapsed": np.ones((n, dim)) + 1e-4 * normal,
        "far from the origin": normal + 1e3,
        "tiny": normal * 1e-30,
        "subnormal": normal * 1e-42,
        "huge": normal * 1e15,
        "mixed lengths": normal * 10.0 ** rng.integers(-18, 15, (n, 1)),
    }
    return read_only(made[kind].astype(np.float32))


KINDS = (
    *("normal", "constant", "few values", "collapsed", "far from the origin"),
    *("tiny", "subnormal", "huge", "mixed lengths"),
)


def pairs_of(distance: Distance, query: NDArray[np.float32], gallery: NDArray[np.float32]) -> PairRows:
    return PairRows(distance.kind, query, gallery, squared_norms(query), squared_norms(gallery))


@pytest.mark.quick_cases(11)
@pytest.mark.parametrize("name", DISTANCES.names())
@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), dim=st.sampled_from([1, 3, 64, 513, 2048]))
@settings(max_examples=6, deadline=None)
def test_screening_stays_within_its_bound(name: str, kind: str, seed: int, dim: int) -> None:
    rng = np.random.default_rng(seed)
    query, gallery = features(kind, rng, 9, dim), features(kind, rng, 70, dim)
    distance = DISTANCES.get(name)
    pairs = pairs_of(distance, query, gallery)
    i, j = np.divmod(np.arange(9 * 70), 70)
    exact = pair_distances(pairs, i, j).reshape(9, 70)
    falling = exact**2 if distance.squared else exact
    for dtype in (np.float32, np.float64):
        screen = distance.screen(pairs, dtype)
        matrix, bias = screen.gallery_tile(slice(0, 70), np.empty(gallery.shape, dtype))
        tile = np.empty((9, 70), dtype)
        # Consecutive queries, and others.
        for queries in (np.arange(4), np.array([4, 6, 7]), np.array([5, 8])):
            part = np.empty((len(queries), 70), dtype)
            screen.multiply(queries, matrix, part)
            tile[queries] = part
        values = (tile - bias).astype(np.float64)
        expected = screen.centre[:, None] - screen.slope * falling
        slack = 2.0**-50 * (np.abs(screen.centre[:, None]) + np.abs(screen.slope * falling))
        assert (np.abs(values - expected) <= screen.epsilon[:, None] + slack).all()
        lower, upper = screen.edges(i, exact.ravel(), distance.squared)
        assert (lower <= values.ravel()).all()
        assert (values.ravel() <= upper).all()
        assert (lower < upper).all()


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", DISTANCES.names())
@pytest.mark.parametrize("kind", KINDS)
def test_exact_products_of_prepared_rows_stay_within_their_bound(name: str, kind: str) -> None:
    rng, dim = np.random.default_rng(0), 513
    query, gallery = features(kind, rng, 9, dim), features(kind, rng, 70, dim)
    distance = DISTANCES.get(name)
    pairs = pairs_of(distance, query, gallery)
    screen = distance.screen(pairs)
    near = screen.query_rows(np.arange(9))
    far, bias = screen.gallery_tile(slice(0, 70), np.empty(gallery.shape, np.float32))
    i, j = np.divmod(np.arange(9 * 70), 70)
    exact = pair_distances(pairs, i, j).reshape(9, 70)
    values = near.astype(np.longdouble) @ far.astype(np.longdouble).T - bias
    expected = screen.centre[:, None] - screen.slope * (exact**2 if distance.squared else exact)
    slack = 2.0**-50 * np.abs(screen.centre[:, None]) + 2.0**-50 * np.abs(expected)
    assert (np.abs(values - expected) <= screen.epsilon[:, None] + slack).all()


@pytest.mark.parametrize("name", ["euclidean", "sqeuclidean"])
def test_overflow_is_refused_by_name(name: str) -> None:
    rows, distance = read_only(np.full((2, 4), 1e19, np.float32)), DISTANCES.get(name)
    with pytest.raises(InputError, match="Euclidean distances would overflow: the longest row has norm 2e\\+19"):
        distance.screen(pairs_of(distance, rows, rows))


def test_the_band_is_narrow_where_it_can_be() -> None:
    """At 512 dimensions the bound is some 3e-5; a huge bound would hold as well, and be of no use."""
    rng = np.random.default_rng(0)
    query, gallery = features("normal", rng, 3, 512), features("normal", rng, 30, 512)
    cosine, euclidean = DISTANCES.get("cosine"), DISTANCES.get("euclidean")
    assert cosine.screen(pairs_of(cosine, query, gallery)).epsilon.max() < 3.2e-5
    assert cosine.screen(pairs_of(cosine, query, gallery), np.float64).epsilon.max() < 1e-12
    far = euclidean.screen(pairs_of(euclidean, read_only(query + 1000), read_only(gallery + 1000)))
    assert far.epsilon.max() < 0.06
