"""Scorers: what gives the distances of pairs of rows, as canonical values and as tiles to screen.

Everything above (the sweep, ranks, lists, verification) is written against this one interface and does not know
whether distances come from features or from a block of distances that somebody else computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.segments import order_of_rows
from reid_dist.engine.distances import GIVEN_DISTANCE, Distance
from reid_dist.engine.plan import SetShape
from reid_dist.engine.reductions import FeatureBlock
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.canonical import PairRows, pair_distances, squared_norms
from reid_dist.stores import DistanceBlock, FeatureSet

__all__ = ["BlockScorer", "FeatureScorer", "Scorer"]

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Gallery rows held at once for the distances of single pairs.
_PEEKED_ROWS = 8192


class Scorer(ABC):
    """Distances between query and gallery rows; a value that travels to workers, never an array of features.

    Attributes
    ----------
    distance
        The distance.
    """

    distance: Distance

    @property
    @abstractmethod
    def shapes(self) -> tuple[SetShape, SetShape]:
        """What a plan must know of the query and the gallery side."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """Content digests of what the distances come from."""

    @property
    def bytes_per_pair(self) -> int:
        """What a task holds for every pair of its rows besides the tile at hand."""
        return 0

    @abstractmethod
    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read query rows, to be compared with a range of gallery rows."""

    @abstractmethod
    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Read gallery rows."""

    def meet(self, query: FeatureBlock, gallery: FeatureBlock) -> FeatureBlock:
        """Put into a block of queries what must be known of its pairs with a gallery block: nothing, as a rule."""
        return query

    @abstractmethod
    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Canonical distances of listed pairs, from rows that are fetched one by one and not verified.

        Parameters
        ----------
        rows
            A block of queries.
        owner
            Position in it of each pair's query, shape (n,), int64.
        gallery_row
            Gallery row of each pair, shape (n,), int64.
        """


def read_block(features: FeatureSet, rows: RowRange) -> FeatureBlock:
    """Read rows with their canonical norms.

    Raises
    ------
    DamagedStoreError
        If a row is not finite, or its chunk is not what was written.
    """
    block = features.read(rows.start, rows.stop)
    norm = squared_norms(block)
    if not np.isfinite(norm).all():
        row = rows.start + int(np.flatnonzero(~np.isfinite(norm))[0])
        raise DamagedStoreError(f"row {row} of {features.uri} is not finite; run `reid-dist check` on it")
    return FeatureBlock(np.arange(rows.start, rows.stop), block, norm)


@dataclass(frozen=True)
class FeatureScorer(Scorer):
    """Distances of features, by one of the registered distances."""

    query: FeatureSet
    gallery: FeatureSet
    distance: Distance

    @property
    def shapes(self) -> tuple[SetShape, SetShape]:
        """Of the two sets."""
        return _shape(self.query), _shape(self.gallery)

    @property
    def identity(self) -> tuple[str, ...]:
        """Of the two sets."""
        return (self.query.uri, self.query.content_digest, self.gallery.uri, self.gallery.content_digest)

    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read query rows."""
        return read_block(self.query, rows)

    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Read gallery rows."""
        return read_block(self.gallery, rows)

    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Peek at the gallery rows, some thousand at a time; see `Scorer.pair_distances`."""
        query = read_block(self.query, rows)
        # Gallery row by gallery row: each is fetched once, and stays in the cache for all pairs that it belongs to.
        order = order_of_rows(gallery_row)
        ordered = gallery_row[order]
        opens = np.flatnonzero(np.diff(ordered, prepend=-1))
        bounds = np.append(opens, len(ordered))
        distance = np.empty(len(owner))
        for start in range(0, len(opens), _PEEKED_ROWS):
            stop = min(start + _PEEKED_ROWS, len(opens))
            features = self.gallery.read_unverified(ordered[opens[start:stop]])
            position = np.repeat(np.arange(stop - start), np.diff(bounds[start : stop + 1]))
            mine = order[bounds[start] : bounds[stop]]
            pairs = PairRows(self.distance.kind, query.features, features, query.norm, squared_norms(features))
            distance[mine] = pair_distances(pairs, owner[mine], position)
        return distance


def _shape(features: FeatureSet) -> SetShape:
    return SetShape(features.n_rows, features.dim, features.dtype.itemsize, features.chunk_rows)


@dataclass(frozen=True)
class BlockScorer(Scorer):
    """Distances of a block that was computed elsewhere, one row per query and one column per gallery row."""

    block: DistanceBlock
    distance: Distance = GIVEN_DISTANCE

    @property
    def shapes(self) -> tuple[SetShape, SetShape]:
        """A "feature" of either side is one distance: what a task holds is a piece of the block."""
        n_query, n_gallery = self.block.shape
        return SetShape(n_query, 1, 8, n_query), SetShape(n_gallery, 1, 8, n_gallery)

    @property
    def identity(self) -> tuple[str, ...]:
        """Of the block."""
        return (self.block.uri, self.block.content_digest)

    @property
    def bytes_per_pair(self) -> int:
        """The distance itself, as it is read and as it is used."""
        return 16

    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read a piece of the block, float64."""
        values = self.block.read(rows.start, rows.stop, gallery_rows.start, gallery_rows.stop)
        return FeatureBlock(np.arange(rows.start, rows.stop), values, np.zeros(len(values)))

    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Number the places in a piece of the block."""
        places = np.arange(len(rows), dtype=np.float64)[:, None]
        return FeatureBlock(np.arange(rows.start, rows.stop), places, np.zeros(len(rows)))

    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Look pairs up; see `Scorer.pair_distances`."""
        return self.block.read_unverified(rows.start + owner, gallery_row)
