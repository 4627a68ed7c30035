"""Features of several models side by side: the cosine of two items is the weighted mean of the models' cosines.

A row holds the rows of the models, each of length 1 times the square root of its weight.  It is made when it is read,
from the sets of the models, and is nowhere stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.numeric import is_number
from reid_dist.core.specs import value_text
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.normalising import unit_rows
from reid_dist.stores.digests import digest_json
from reid_dist.stores.featureset import FeatureSet, reopened, rows_read_at_once
from reid_dist.stores.labelled import Role, joint_labels
from reid_dist.stores.labels import join_item_ids
from reid_dist.stores.opening import FeatureSource, as_feature_set
from reid_dist.stores.rows import Address, FeatureArray, Offenders, Rows

FUSED_NOTE = "fused: cosine = "
"""Beginning of the note on the weights of a fused set."""

# Rows of a model that are scaled at once, in bytes of float64: few enough for the cache of a core.
_SCALED_BYTES = 1 << 20


@dataclass(frozen=True)
class FusedAddress:
    """Where the rows and labels of a fused set are read from, for processes that open it again."""

    labels: tuple[Address, str]
    parts: tuple[tuple[Address, str], ...]
    weights: tuple[float, ...]

    def __str__(self) -> str:
        parts = zip(self.parts, self.weights, strict=True)
        return " + ".join(f"{value_text(weight)} {address}" for (address, _), weight in parts)

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        """URIs and content digests of the stores that are read."""
        found: list[tuple[str, str]] = []
        for address, digest in (self.labels, *self.parts):
            found += [(address, digest)] if isinstance(address, str) else address.stores
        return tuple(dict.fromkeys(found))

    def open(self) -> Rows:
        """Rows of the sets at these places."""
        return FusedRows(reopened(*self.labels), tuple(reopened(*part) for part in self.parts), self.weights)


class FusedRows(Rows):
    """Rows of several models, read together; the labels are those of one set.

    A single part is read as it is, so that a model of weight 1 gives the results of its own features.
    """

    dtype: np.dtype[Any] = np.dtype(np.float32)
    allow_zero = False
    zero_rows = Offenders()

    def __init__(self, labelled: FeatureSet, parts: tuple[FeatureSet, ...], weights: tuple[float, ...]) -> None:
        self._labelled, self._parts, self._weights = labelled, parts, weights
        sets = (labelled, *parts)
        places = tuple((each.address, each.content_digest) for each in sets)
        self.address = FusedAddress(places[0], places[1:], weights)
        self.uri = str(self.address)
        self.is_stored: bool = all(each.is_stored for each in sets)
        self.shape: tuple[int, int] = (labelled.n_rows, sum(part.dim for part in parts))
        # The chunks that cost most to read twice.
        self.chunk_rows: int = max(parts, key=lambda part: part.dim).chunk_rows
        self.labels: Mapping[str, NDArray[Any]] = labelled.lazy_labels
        self.labels_uri = labelled.origin or labelled.uri
        self.content_digest: str = digest_json(
            {
                "kind": "reid_dist fused 1",
                "labels": labelled.labels_digest,
                "parts": [part.content_digest for part in parts],
                "weights": [weight.hex() for weight in weights],
            }
        )
        notes = [note for part in parts for note in part.notes]
        self.notes = (*dict.fromkeys(notes), f"{FUSED_NOTE}{self.uri}")

    def __reduce__(self) -> Any:
        return FusedRows, (self._labelled, self._parts, self._weights)

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array."""
        return self._labelled.label_digest(name)

    def read_raw(self, start: int, stop: int) -> FeatureArray:
        """Return rows, (stop - start, dim) float32."""
        if len(self._parts) == 1:
            return self._parts[0].read(start, stop)
        rows, column = np.empty((stop - start, self.shape[1]), np.float32), 0
        for part, weight in zip(self._parts, self._weights, strict=True):
            step = rows_read_at_once(part)
            # Cut at multiples of the step, where the chunks of the part begin.
            edges = [start, *range((start // step + 1) * step, stop, step), stop]
            for first, last in pairwise(edges):
                _put(rows[first - start : last - start, column : column + part.dim], part.read(first, last), weight)
            column += part.dim
        return rows

    def read_rows(self, rows: NDArray[np.int64]) -> FeatureArray:
        """Return single rows, (n, dim) float32."""
        if len(self._parts) == 1:
            return self._parts[0].read_rows(rows)
        found, column = np.empty((len(rows), self.shape[1]), np.float32), 0
        for part, weight in zip(self._parts, self._weights, strict=True):
            _put(found[:, column : column + part.dim], part.read_rows(rows), weight)
            column += part.dim
        return found


def _put(target: NDArray[np.float32], rows: NDArray[np.float32], weight: float) -> None:
    """Write rows of length 1 times the root of a weight, each element rounded once from float64 to float32."""
    step = max(1, _SCALED_BYTES // (8 * rows.shape[1]))
    for start in range(0, len(rows), step):
        target[start : start + step] = math.sqrt(weight) * unit_rows(read_only(rows[start : start + step]))


def fuse(
    features: FeatureSource, others: Sequence[tuple[FeatureSource, float]], *, role: Role | None = None
) -> FeatureSet:
    """Fuse features of several models: the cosine of two items is a weighted mean of the models' cosines.

    The rows of all models, each of length 1 times the square root of its weight, stand side by side in one row, and
    are made when they are read.  Rows are rounded to float32; everything is exact for these rows.  Fuse queries and
    gallery alike.

    Parameters
    ----------
    features
        The set whose labels are kept, or its path.  Its weight is 1 minus the sum of the others.
    others
        Sets of the same items in the same order, or their paths, each with its weight from 0 to 1.  A set of weight 0
        is left out, and a set of weight 1 is taken as it is.
    role
        The side, ``"query"`` or ``"gallery"``, where paths hold both.

    Returns
    -------
    FeatureSet
        The fused set, of shape (n_rows, sum of the dims), float32.

    Raises
    ------
    InputError
        If rows or labels differ, a set holds rows of zeros, or weights are out of range.
    """
    own = as_feature_set(features, role)
    opened = [as_feature_set(source, role) for source, _ in others]
    weights = _all_weights([weight for _, weight in others])
    side = "" if role is None else f" of the {role} side"
    for other in opened:
        _refuse_other_items(own, other, side)
    used = [(each, weight) for each, weight in zip((own, *opened), weights, strict=True) if weight > 0]
    if used[0][0] is own and len(used) == 1:
        return own
    for each, _ in used:
        if each.n_zero_rows:
            raise InputError(
                f"{each.n_zero_rows} of {each.n_rows} rows{side} in {each.uri} are zero vectors (rows "
                f"{', '.join(map(str, each.first_zero_rows))}), which have no cosine to fuse; drop these items from "
                "all models"
            )
    made = FeatureSet(FusedRows(own, tuple(each for each, _ in used), tuple(weight for _, weight in used)))
    if any(each.origin for each in (own, *opened)):
        # Parts in temporary stores move with the set.
        made.origin = made.uri
    return made


def _all_weights(given: Sequence[float]) -> list[float]:
    """Weights of all models, that of the first one being what is left of 1."""
    for weight in given:
        if not is_number(weight) or not 0 <= weight <= 1:
            raise InputError(f"the weight of a fused model must be a number from 0 to 1, found {weight!r}")
    # In decimal numbers, as they are written: 1 - 0.7 is 0.3.
    left = 1 - sum((Decimal(repr(float(weight))) for weight in given), Decimal(0))
    if left < 0:
        raise InputError(
            f"the weights of the fused models add up to {1 - left}, and the run's own features have what is left of 1; "
            "give smaller weights"
        )
    return [float(left), *map(float, given)]


def _refuse_other_items(own: FeatureSet, other: FeatureSet, side: str) -> None:
    """Refuse a set that does not hold the same items in the same order, as far as labels tell."""
    where = f"{own.uri} and {other.uri}"
    if own.n_rows != other.n_rows:
        raise InputError(
            f"fused models need the same items in the same order: {where}{side} have {own.n_rows} and {other.n_rows} "
            "rows"
        )
    if own.labels_digest == other.labels_digest:
        return
    for name, kind in (("pid", "pids"), ("camid", "camids"), ("item id", "item_ids")):
        if kind not in own.lazy_labels or kind not in other.lazy_labels:
            continue
        if name == "item id":
            near, far = join_item_ids(own.lazy_labels[kind], other.lazy_labels[kind])
        else:
            near, far = joint_labels(name, (own, other))
        if (near != far).any():
            row = int(np.argmax(near != far))
            raise InputError(
                f"fused models need the same items in the same order: {where}{side} have other {name}s, row {row} "
                "being the first"
            )
