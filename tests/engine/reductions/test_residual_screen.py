"""Values of products with residuals against canonical distances."""

from __future__ import annotations

import numpy as np
import pytest
from exact_products import use_products_of
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import DISTANCES
from row_blocks import block_of, canonical_matrix, hard_blocks
from sampling import examples
from strategies import seeds

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.distances.quantised import quantise
from reid_dist.engine.reductions import pair_rows, screen_pairs
from reid_dist.engine.reductions.residual_screen import ResidualScreen

pytest.importorskip("onnxruntime")


def screen_of(near, far, distance, queries, first):
    """Screen of some queries, and of all gallery rows from `first` on."""
    pairs = pair_rows(distance, near, far)
    products = quantise(screen_pairs(distance, pairs, np.float32, multiplied=False))
    columns = RowRange(1, len(far) - first + 1) if first else RowRange(0, len(far))
    # One row more than is screened, if there is one before them.
    quantised = products.columns(RowRange(first - 1, len(far)) if first else columns)
    some = pair_rows(distance, near.take(queries, 0), far.part(slice(first, len(far))))
    return ResidualScreen(products, some, queries, quantised, columns, first)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", DISTANCES)
@settings(max_examples=examples(60))
@given(seed=seeds(), data=st.data())
def test_values_lie_within_the_bands_of_their_distances(name, seed, data):
    rng, distance = np.random.default_rng(seed), REGISTERED.get(name)
    near, far = map(block_of, data.draw(hard_blocks(name)))
    queries = np.flatnonzero(rng.random(len(near)) < 0.6)
    first = data.draw(st.sampled_from([0, len(far) // 2]))
    exact = canonical_matrix(near, far, distance)[queries, first:]
    with pytest.MonkeyPatch.context() as patch:
        use_products_of(patch, 127)
        screen = screen_of(near, far, distance, queries, first)
        n_query, n_gallery = exact.shape
        values = np.empty(exact.shape, np.float32)
        half = n_query // 2
        for columns in (RowRange(0, n_gallery // 3), RowRange(n_gallery // 3, n_gallery)):
            size = len(columns), far.features.shape[1]
            matrix, bias = screen.gallery_tile(columns.start, columns.stop, np.empty(size, np.float32))
            for rows in (RowRange(0, half), RowRange(half, n_query)):
                tile = np.empty((len(rows), len(columns)), np.float32)
                screen.multiply(rows, matrix, tile)
                values[rows.start : rows.stop, columns.start : columns.stop] = tile - bias
    lower, upper = screen.edges(np.repeat(np.arange(n_query), n_gallery), exact.ravel(), distance.squared)
    assert (lower <= values.ravel()).all()
    assert (values.ravel() <= upper).all()


def test_bands_are_narrow_where_they_can_be(monkeypatch):
    """With 512 elements, bands of eight bits alone are a hundred times wider."""
    use_products_of(monkeypatch, 127)
    rng = np.random.default_rng(0)
    near, far = block_of(rng.normal(size=(9, 512))), block_of(rng.normal(size=(300, 512)))
    screen = screen_of(near, far, REGISTERED.get("cosine"), np.arange(9), 0)
    assert np.median(screen.epsilon) < 1.6e-4
