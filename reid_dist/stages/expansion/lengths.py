"""Lengths of expanded rows, and their compatibility with distances that depend on length.

``aqe``, ``alpha_qe`` and ``dba`` give rows of length 1 on one side, ``camera_norm``, ``gcr`` and ``l2`` on both.  Under
cosine, rows of the other side may have any length.  Under a Euclidean distance they must have length 1 as well:
otherwise the distances between the sides reflect the difference in length.  ``fastreid`` averages both sides without
normalisation, so both keep the same scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reid_dist.engine.distances import Distance
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import squared_norms
from reid_dist.stages.expansion.expansion_steps import Step, spelled
from reid_dist.stores import FeatureSet

_GIVEN, _UNIT, _AVERAGED = "as they are given", "of length 1", "un-normalised averages"
_SIDES = ("query", "gallery")

# Rows of float16 that were scaled to length 1 are off by some 2e-4.
_TOLERANCE = 1e-3
_READ_BYTES = 16 << 20


def refuse_unlike_lengths(query: FeatureSet, gallery: FeatureSet, steps: Sequence[Step], distance: Distance) -> None:
    """Refuse an expansion that leaves the two sides with different lengths, under a distance that depends on length.

    The sides are those before expansion.  Features are read only where the result depends on them, up to the first row
    whose length is not 1.
    """
    if not distance.sees_length:
        return
    for states in _compared(steps):
        if states[0] == states[1]:
            continue
        for features, side, state, other in zip((query, gallery), _SIDES, states, reversed(states), strict=True):
            if state == _UNIT:
                continue
            found = _first_other_length(features) if state == _GIVEN else (None, "")
            if found is not None:
                near = next(name for name in _SIDES if name != side)
                raise InputError(
                    f"under distance {distance.name!r}, expand {spelled(steps)!r} makes query and gallery rows of "
                    "different length; use the distance 'cosine', or expand both sides alike",
                    details=(
                        f"{near} rows become {other}, and {side} rows stay {state}{found[1]}",
                        "expand both sides alike with dba(k=…)+aqe(k=…) or fastreid(k=…), or scale all features to "
                        "length 1 before",
                    ),
                )


def _compared(steps: Sequence[Step]) -> list[tuple[str, str]]:
    """Length states of query and gallery rows at each comparison: in averages over both sides, and at the end."""
    query, gallery = _GIVEN, _GIVEN
    met = []
    for step in steps:
        if not step.sets_lengths:
            continue
        if not step.method.unit:
            met.append((query, gallery))
            query = gallery = _AVERAGED
        else:
            query = _UNIT if step.method.expands_query else query
            gallery = _UNIT if step.method.expands_gallery else gallery
    return [*met, (query, gallery)]


def _first_other_length(features: FeatureSet) -> tuple[int, str] | None:
    """First row with neither length 1 nor length 0, and its description; None if there is none."""
    step = features.chunk_rows if features.is_stored else max(1, _READ_BYTES // (4 * features.dim))
    for start in range(0, features.n_rows, step):
        length = np.sqrt(squared_norms(features.read(start, min(start + step, features.n_rows))))
        other = np.flatnonzero((np.abs(length - 1.0) > _TOLERANCE) & (length > 0))
        if len(other):
            row = start + int(other[0])
            return row, f" (row {row} has length {length[other[0]]:.4g})"
    return None
