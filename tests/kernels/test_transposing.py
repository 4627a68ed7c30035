"""Columns of eight-bit integers against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from reid_dist.kernels.quantising import transpose_integers


@pytest.mark.parametrize("dim", [1, 15, 16, 64, 67, 512])
def test_columns_are_those_of_numpy(dim: int) -> None:
    for n in (0, 1, 16, 31, 80):
        integers = np.random.default_rng(n).integers(-128, 128, (n, dim)).astype(np.int8)
        columns = np.full((dim, n), 99, np.int8)
        transpose_integers(integers, columns)
        np.testing.assert_array_equal(columns, integers.T)
