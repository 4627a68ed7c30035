"""Rows of propagated graphs, and products of blocks of rows, against whole matrices."""

from __future__ import annotations

import numpy as np

from reid_dist.kernels.jaccard import columns_of, listed_products, overlap_block, products_into
from reid_dist.kernels.propagation import depth_first, propagated_rows
from reid_dist.kernels.reciprocal import SparseRows


def sparse(matrix):
    """Rows of a whole matrix."""
    row, column = np.nonzero(matrix)
    indptr = np.searchsorted(row, np.arange(len(matrix) + 1))
    return SparseRows(indptr, column.astype(np.int32), matrix[row, column])


def whole(rows, n_columns):
    matrix = np.zeros((len(rows.indptr) - 1, n_columns))
    matrix[np.repeat(np.arange(len(matrix)), np.diff(rows.indptr)), rows.column] = rows.value
    return matrix


def random_matrix(rng, shape, share):
    return rng.uniform(0.1, 1, shape) * (rng.uniform(size=shape) < share)


def test_a_neighbour_follows_each_item():
    """3 and 1 are neighbours of 0, and 4 of 3; 2 and 5 are named by none, and -1 is the end of a list."""
    index = np.array([[0, 3, 1], [1, 0, 4], [2, 1, -1], [3, 4, 0], [4, 3, -1], [5, -1, -1]], np.int32)
    assert depth_first(index, 3).tolist() == [0, 3, 4, 1, 2, 5]
    assert depth_first(index, 2).tolist() == [0, 3, 4, 1, 2, 5]
    assert depth_first(index, 1).tolist() == [0, 1, 2, 3, 4, 5]


def test_steps_are_products_of_matrices():
    """Numbers of columns with two digits of the sort, rows longer than expected, and rows of zeros."""
    rng = np.random.default_rng(3)
    n = 2100
    one, other = (random_matrix(rng, (n, n), share) for share in (0.002, 0.01))
    begin = random_matrix(rng, (40, n), 0.01)
    begin[7] = 0
    scale = np.stack([np.ones(n), rng.uniform(1, 2, n)])
    steps = np.array([(0, 0, 0, 2), (1, 1, 2, 1), (-1, 0, 2, 2), (1, 0, 0, 2), (0, 1, 2, 1), (-1, 0, 2, 2)])
    exact = (begin @ one / scale[1]) @ other + (begin @ other / scale[1]) @ one
    rows, length = propagated_rows(sparse(begin), sparse(np.concatenate([one, other])), scale, steps)
    np.testing.assert_allclose(length, np.linalg.norm(exact, axis=1), rtol=1e-13)
    assert length[7] == 0
    assert all((np.diff(rows.column[a:b]) > 0).all() for a, b in zip(rows.indptr, rows.indptr[1:], strict=False))
    np.testing.assert_allclose(whole(rows, n) * length[:, None], exact, rtol=1e-13, atol=1e-15)
    unmoved, length = propagated_rows(sparse(begin), sparse(one), scale[:1], steps[:0])
    np.testing.assert_array_equal(whole(unmoved, n), begin)
    np.testing.assert_allclose(length, np.linalg.norm(begin, axis=1), rtol=1e-15)


def test_products_of_all_pairs_are_those_of_overlapping_pairs():
    rng = np.random.default_rng(4)
    a, b = sparse(random_matrix(rng, (21, 90), 0.1)), sparse(random_matrix(rng, (34, 90), 0.1))
    listed = overlap_block(a, b, 90, True)
    products = np.empty((34, 21))
    products_into(columns_of(a, 90), b, products)
    indptr, number, value = listed_products(products, np.arange(100, 134))
    np.testing.assert_array_equal(indptr, listed.indptr)
    np.testing.assert_array_equal(number, 100 + listed.column)
    np.testing.assert_array_equal(value, listed.value)
