"""Bounds from float32 sums against canonical distances."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.kernels import bounds
from reid_dist.kernels.canonical import (
    COSINE,
    EUCLIDEAN,
    GIVEN,
    SQEUCLIDEAN,
    PairRows,
    bytes_of_given,
    pair_distances,
    read_only,
    squared_norms,
)
from tests.support.compiled import from_python

bound_pairs = from_python(bounds.bound_pairs)


def _sets(name: str, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Query and gallery rows of one hostile kind, float32."""
    rng = np.random.default_rng(dim)
    query, gallery = rng.standard_normal((7, dim)), rng.standard_normal((60, dim))
    if name == "duplicates":
        gallery[:] = np.repeat(query, 9, axis=0)[:60]
    elif name == "one huge coordinate":
        query[:, 0] = 1e7
        gallery[:, 0] = 1e7
    elif name == "few values":
        query, gallery = np.sign(query), np.abs(np.sign(gallery))
    elif name == "cancelling":
        gallery[:, 1::2] = -gallery[:, : dim - dim % 2 : 2]
        query[:, 1::2] = query[:, : dim - dim % 2 : 2]
    elif name == "norms from 1e-15 to 1e15":
        query *= 10.0 ** np.linspace(-15, 15, 7)[:, None]
        gallery *= 10.0 ** rng.uniform(-15, 15, (60, 1))
    elif name == "subnormal":
        query *= 1e-40
        gallery *= 1e-40
    elif name == "overflowing":
        query *= 1e18
        gallery *= 1e19
    elif name == "zero rows":
        query[::2] = 0
        gallery[::3] = 0
    elif name == "far from the origin":
        query += 100.0
        gallery += 100.0
    return query.astype(np.float32), gallery.astype(np.float32)


@pytest.mark.quick_cases(108)
@pytest.mark.parametrize("kind", [COSINE, SQEUCLIDEAN, EUCLIDEAN])
@pytest.mark.parametrize("dim", [1, 7, 31, 32, 127, 128, 160, 512, 2048])
@pytest.mark.parametrize(
    "name",
    [
        "random",
        "duplicates",
        "one huge coordinate",
        "few values",
        "cancelling",
        "norms from 1e-15 to 1e15",
        "subnormal",
        "overflowing",
        "zero rows",
        "far from the origin",
    ],
)
def test_bounds_hold_the_canonical_distance(name: str, dim: int, kind: int) -> None:
    query, gallery = map(read_only, _sets(name, dim))
    rows = PairRows(kind, query, gallery, squared_norms(query), squared_norms(gallery))
    rng = np.random.default_rng(1)
    # In the order of the counts, single pairs of a query among them, and in no order.
    i = np.concatenate([np.sort(rng.integers(0, len(query), 301)), rng.integers(0, len(query), 200)])
    j = rng.integers(0, len(gallery), len(i))
    least, most = np.empty(len(i)), np.empty(len(i))
    bound_pairs(rows, i, j, least, most)
    distance = pair_distances(rows, i, j)
    assert ((least <= distance) & (distance <= most)).all()


@pytest.mark.parametrize("kind", [COSINE, SQEUCLIDEAN])
def test_bounds_of_unit_rows_are_narrow(kind: int) -> None:
    """Some twenty roundings of float32, where a product in any order is bounded by as many as there are elements."""
    query, gallery = (read_only(rows / np.linalg.norm(rows, axis=1, keepdims=True)) for rows in _sets("random", 512))
    rows = PairRows(kind, query, gallery, squared_norms(query), squared_norms(gallery))
    i, j = np.divmod(np.arange(len(query) * len(gallery)), len(gallery))
    least, most = np.empty(len(i)), np.empty(len(i))
    bound_pairs(rows, i, j, least, most)
    assert (most - least).max() < 2 * 25 * 2.0**-24 * (1 if kind == COSINE else 2)


def test_short_rows_overflow_and_given_distances_are_left_open() -> None:
    cases = []
    for scale in (1e-12, 1e20):
        query = read_only(np.full((1, 512), scale, np.float32))
        cases.append(PairRows(COSINE, query, query, squared_norms(query), squared_norms(query)))
    given = np.ones((1, 3)), np.zeros((1, 1))
    cases.append(PairRows(GIVEN, *(read_only(bytes_of_given(rows)) for rows in given), np.zeros(1), np.zeros(1)))
    for rows in cases:
        least, most = np.zeros(1), np.zeros(1)
        bound_pairs(rows, np.zeros(1, np.int64), np.zeros(1, np.int64), least, most)
        assert least[0] == -np.inf
        assert most[0] == np.inf
