"""An obvious oracle: whole rows, sorted, one query at a time, in plain Python over NumPy and nothing else.

Distances are float64 values of the stored numbers (float16 and float32 convert without loss)::

    cosine       1 - xy / sqrt(xx * yy), and 1 when a vector is zero
    sqeuclidean  sum of (x - y) ** 2
    euclidean    its square root

A tie is an equal float64 distance, ties are ordered by gallery row, and whatever is junk to a query is taken out
of its list before anything is counted.  The functions below are the definitions, written to be read.

**When this file may decide a tie.**  Its sums run over the columns in ascending order; another program may sum in
another fixed order and differ in the last bit.  The two must agree on every rank only when the order does not hang
on that bit, which `order_is_unambiguous` establishes: of two neighbours in a sorted row, either the distances
are clearly apart, or the summed terms are the same numbers in the same places (exact duplicates, for example), or
all sums are exact in float64 whatever their order (small integers, few-valued features).  A test draws features
for which that holds, or asks that function first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

import numpy as np

DISTANCES = ("cosine", "sqeuclidean", "euclidean")
PROTOCOLS = ("market1501", "no_cameras", "same_set")


@dataclass(frozen=True)
class ItemSet:
    """Features (n, dim), identities (n,), and cameras and item names (n,) or None."""

    features: np.ndarray
    pids: np.ndarray
    camids: np.ndarray | None = None
    item_ids: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.pids)

    def take(self, rows) -> ItemSet:
        """Rows in the order given; a row may come more than once."""
        rows = np.asarray(rows, dtype=np.int64)
        return ItemSet(
            self.features[rows],
            self.pids[rows],
            None if self.camids is None else self.camids[rows],
            None if self.item_ids is None else self.item_ids[rows],
        )

    def with_features(self, features) -> ItemSet:
        """The same items with other features."""
        return replace(self, features=features)

    def __add__(self, other: ItemSet) -> ItemSet:
        return ItemSet(
            np.concatenate([self.features, other.features]),
            np.concatenate([self.pids, other.pids]),
            None if self.camids is None else np.concatenate([self.camids, other.camids]),
            None if self.item_ids is None else np.concatenate([self.item_ids, other.item_ids]),
        )


# ---------------------------------------------------------------------------------------------- distances


def _row_sums(terms):
    """Sums of rows (n, dim), columns ascending: equal rows have equal sums."""
    return np.add.accumulate(terms, axis=1)[:, -1]


def _cosine(xy, xx, yy):
    """1 - xy / sqrt(xx * yy); 1 where a vector is zero."""
    zero = (xx == 0) | (yy == 0)
    return np.where(zero, 1.0, 1.0 - xy / np.sqrt(np.where(zero, 1.0, xx * yy)))


def _pair_sums(query, gallery, term):
    """Sums of a term over the columns of all pairs of rows, columns ascending: as `_row_sums`, pair by pair."""
    sums = np.zeros((len(query), len(gallery)))
    for x, y in zip(query.T, gallery.T, strict=True):
        sums += term(x[:, None], y)
    return sums


def canonical_distances(query_features, gallery_features, distance):
    """Distances of all pairs, (n_query, n_gallery) float64."""
    if distance not in DISTANCES:
        raise ValueError(distance)
    query = np.asarray(query_features, dtype=np.float64)
    gallery = np.asarray(gallery_features, dtype=np.float64)
    if distance == "cosine":
        xx, yy = _row_sums(query * query), _row_sums(gallery * gallery)
        return _cosine(_pair_sums(query, gallery, np.multiply), xx[:, None], yy)
    squared = _pair_sums(query, gallery, lambda x, y: (x - y) ** 2)
    return np.sqrt(squared) if distance == "euclidean" else squared


def _summed_terms(x, gallery_rows, distance):
    """What is summed for the distances of one query to some gallery rows, as (rows, dim) arrays."""
    if distance == "cosine":
        return [x * gallery_rows, np.broadcast_to(x * x, gallery_rows.shape), gallery_rows * gallery_rows]
    return [(x - gallery_rows) ** 2]


def sums_are_exact(terms):
    """Which rows (n, dim) sum without rounding in any order: all their partial sums fit the 53 bits of a float64."""
    mantissa, exponent = np.frexp(terms)
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    lowest_bit = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    unit = np.where(terms == 0, np.iinfo(np.int32).max // 2, exponent - 53 + lowest_bit).min(axis=1)
    with np.errstate(over="ignore"):
        return np.abs(terms).sum(axis=1) < np.ldexp(1.0, np.minimum(unit + 53, 2000))


def order_is_unambiguous(query_features, gallery_features, distance, margin=1e-12, distances=None):
    """Whether every fixed order of summation ranks these rows as this file does; see the head of the file.

    `margin` is a difference of cosines, and a share of the larger one of two (squared) Euclidean distances;
    `distances` are the canonical ones, if they are known.
    """
    query = np.asarray(query_features, dtype=np.float64)
    gallery = np.asarray(gallery_features, dtype=np.float64)
    if distances is None:
        distances = canonical_distances(query, gallery, distance)
    for x, row in zip(query, distances, strict=True):
        order = np.argsort(row, kind="stable")
        near_to_far = row[order]
        unit = 1.0 if distance == "cosine" else near_to_far[1:]
        together = np.flatnonzero(np.diff(near_to_far) <= margin * unit)
        near, far = (_summed_terms(x, gallery[order[places]], distance) for places in (together, together + 1))
        same = np.logical_and.reduce([(one == other).all(axis=1) for one, other in zip(near, far, strict=True)])
        if not all(sums_are_exact(terms[~same]).all() for terms in (*near, *far)):
            return False
    return True


# ------------------------------------------------------------------------------------------------ ranking


@dataclass(frozen=True)
class Ranking:
    """The list of one query, junk taken out.

    Gallery rows from near to far, 1-based ranks of the positives in the default order, and the ranks that they
    have at best and at worst among negatives of the same distance.
    """

    rows: list[int]
    ranks: list[int]
    optimistic: list[int]
    pessimistic: list[int]


def rank_one_query(distances, relevant, junk):
    """Sort what is kept by (distance, gallery row) and look where the positives are."""
    distances = [float(distance) for distance in distances]
    kept = [row for row in range(len(distances)) if not junk[row]]
    rows = sorted(kept, key=lambda row: (distances[row], row))
    ranks = [place for place, row in enumerate(rows, start=1) if relevant[row]]
    positives = [distances[row] for row in rows if relevant[row]]
    negatives = [distances[row] for row in rows if not relevant[row]]  # from near to far
    optimistic = [bisect_left(negatives, distance) + j for j, distance in enumerate(positives, start=1)]
    pessimistic = [bisect_right(negatives, distance) + j for j, distance in enumerate(positives, start=1)]
    return Ranking(rows, ranks, optimistic, pessimistic)


def reference_topk(query_features, gallery_features, k, distance, own_rows=None):
    """The k nearest gallery rows by (distance, row): rows (n, k), -1 where absent, and distances, +inf there.

    With `own_rows`, the gallery row that each query is, that row comes first whatever else is at its distance.
    """
    index = np.full((len(query_features), k), -1, dtype=np.int64)
    nearest = np.full((len(query_features), k), np.inf)
    for i, row in enumerate(canonical_distances(query_features, gallery_features, distance)):
        own = None if own_rows is None else own_rows[i]
        order = sorted(range(len(row)), key=lambda j, row=row, own=own: (j != own, row[j], j))[:k]
        index[i, : len(order)] = order
        nearest[i, : len(order)] = row[order]
    return index, nearest
