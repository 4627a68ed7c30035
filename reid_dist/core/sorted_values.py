"""Look-ups in sorted values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_among(known: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether values, of any shape, are among `known` ones, (n,), which ascend."""
    if not len(known):
        return np.zeros(wanted.shape, np.bool_)
    return _is_at(known, _nearest(known, wanted), wanted)


def places_among(known: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    """First place of each value, of any shape, among `known` ones, (n,), which ascend; int64, -1 for none."""
    if not len(known):
        return np.full(wanted.shape, -1)
    place = _nearest(known, wanted)
    return np.where(_is_at(known, place, wanted), place, -1)


def _nearest(known: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.int64]:
    return np.minimum(np.searchsorted(known, wanted), len(known) - 1)


def _is_at(known: NDArray[Any], place: NDArray[np.int64], wanted: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray(known[place] == wanted, np.bool_)
