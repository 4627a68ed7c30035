"""Features of several models side by side: the cosine of two items is the weighted mean of the models' cosines.

A row holds the rows of the models, each of length 1 times the square root of its weight.  It is made when it is read,
from the sets of the models, and is nowhere stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
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
from reid_dist.stores.featureset import Facts, FeatureSet, StoredSet, rows_read_at_once
from reid_dist.stores.kept_rows import FeatureArray, Offenders
from reid_dist.stores.labels import Role, join_item_ids, joint_labels
from reid_dist.stores.opening import FeatureSource, as_feature_set

# Rows of a model that are scaled at once, in bytes of float64: few enough for the cache of a core.
_SCALED_BYTES = 1 << 20


class FusedSet(FeatureSet):
    """Rows of several models, read together; the labels are those of one set.

    A single part is read as it is, so that a model of weight 1 gives the results of its own features.
    """

    is_made_of_sets = True
    uri: str

    def __init__(
        self,
        labelled: FeatureSet,
        parts: tuple[FeatureSet, ...],
        weights: tuple[float, ...],
        content_digest: str | None = None,
    ) -> None:
        self._labelled, self._parts, self._weights = labelled, parts, weights
        self.uri = " + ".join(f"{value_text(weight)} {part.uri}" for part, weight in zip(parts, weights, strict=True))
        self.is_stored = all(each.is_stored for each in (labelled, *parts))
        if content_digest is not None:
            self.content_digest = content_digest

    @cached_property
    def content_digest(self) -> str:
        """Hex digest of labels, and of the parts and their weights."""
        return digest_json(
            {
                "kind": "reid_dist fused 1",
                "labels": self._labelled.labels_digest,
                "parts": [part.content_digest for part in self._parts],
                "weights": [weight.hex() for weight in self._weights],
            }
        )

    @property
    def note(self) -> str:
        """Its note on the weights."""
        return f"fused: cosine = {self.uri}"

    @cached_property
    def _facts(self) -> Facts:
        notes = dict.fromkeys(note for part in self._parts for note in part.notes)
        return Facts(
            (self._labelled.n_rows, sum(part.dim for part in self._parts)),
            np.dtype(np.float32),
            # The chunks that cost most to read twice.
            max(self._parts, key=lambda part: part.dim).chunk_rows,
            False,
            (*notes, self.note),
        )

    @property
    def _labels(self) -> Mapping[str, NDArray[Any]]:
        return self._labelled._labels

    def _label_digest(self, name: str) -> str:
        return self._labelled._label_digest(name)

    def describe(self) -> dict[str, Any]:
        """Return the entry of an input in a report, with the uri of the labels."""
        return {**super().describe(), "labels_uri": self._labelled._shown}

    @property
    def _zero_rows(self) -> Offenders:
        return Offenders()

    @property
    def _stores(self) -> tuple[StoredSet, ...]:
        return tuple(dict.fromkeys(store for each in (self._labelled, *self._parts) for store in each._stores))

    def __reduce__(self) -> tuple[Any, ...]:
        return self._by_reference(self._labelled, self._parts, self._weights, self.content_digest)

    def _read(self, start: int, stop: int) -> FeatureArray:
        if len(self._parts) == 1:
            return self._parts[0].read(start, stop)
        rows, column = np.empty((stop - start, self.dim), np.float32), 0
        for part, weight in zip(self._parts, self._weights, strict=True):
            step = rows_read_at_once(part)
            # Cut at multiples of the step, where the chunks of the part begin.
            edges = [start, *range((start // step + 1) * step, stop, step), stop]
            for first, last in pairwise(edges):
                _put(rows[first - start : last - start, column : column + part.dim], part.read(first, last), weight)
            column += part.dim
        return rows

    def _read_rows(self, rows: NDArray[np.int64]) -> FeatureArray:
        if len(self._parts) == 1:
            return self._parts[0].read_rows(rows)
        found, column = np.empty((len(rows), self.dim), np.float32), 0
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

    Each row is scaled to length 1, multiplied by the square root of the model's weight, and concatenated with those of
    the other models.  Fused rows are computed when they are read and rounded to float32; everything is exact for these
    rows.  Fuse queries and gallery in the same way.

    Parameters
    ----------
    features
        The set whose labels are kept, or its path.  Its weight is 1 minus the sum of the others.
    others
        Sets of the same items in the same order, or their paths, each with its weight from 0 to 1.  A set of weight 0
        is left out, and a set of weight 1 is returned unchanged.
    role
        The side to use, ``"query"`` or ``"gallery"``, if paths hold both.

    Returns
    -------
    FeatureSet
        The fused set, of shape (n_rows, sum of the dims), float32.

    Raises
    ------
    InputError
        If rows or labels differ, a set has rows of zeros, or a weight is out of range.
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
    return FusedSet(own, tuple(each for each, _ in used), tuple(weight for _, weight in used))


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
        if kind not in own._labels or kind not in other._labels:
            continue
        if name == "item id":
            near, far = join_item_ids(own._labels[kind], other._labels[kind])
        else:
            near, far = joint_labels(name, (own, other))
        if (near != far).any():
            row = int(np.argmax(near != far))
            raise InputError(
                f"fused models need the same items in the same order: {where}{side} have other {name}s, row {row} "
                "being the first"
            )
