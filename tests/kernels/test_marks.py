"""Places of marks against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from reid_dist.kernels.marks import make_marks, marked_places


@njit
def _places(marked):
    marks, places = make_marks(len(marked))
    # An assignment of a slice takes seconds to compile.
    for place in range(len(marked)):
        marks[place] = marked[place]
    return marked_places(marks, places), places


def found(marked):
    n, places = _places(marked)
    return places[:n].tolist()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 64, 1001])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_places_are_those_that_are_not_zero(n, share):
    marked = (np.random.default_rng(n).random(n) < share).astype(np.uint8)
    assert found(marked) == np.flatnonzero(marked).tolist()


def test_each_single_place_of_words_is_found():
    for place in range(24):
        marked = np.zeros(24, np.uint8)
        marked[place] = 1
        assert found(marked) == [place]
