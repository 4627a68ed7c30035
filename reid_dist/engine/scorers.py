"""Scorers: sources of distances of pairs of rows, as canonical values and as blocks for screening.

Tile loop, ranks, lists and verification use this interface only, for distances of features as well as for a
precomputed block of distances.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding
from reid_dist.core.model import RowRange
from reid_dist.core.segments import order_of_rows, run_offsets
from reid_dist.engine.distances import GIVEN_DISTANCE, Distance
from reid_dist.engine.distances.device_rows import StoredRows
from reid_dist.engine.distances.devices import are_loaded
from reid_dist.engine.plan import SetShape
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.reductions.key_counts import ScreenScale
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.stores import DistanceBlock, FeatureSet
from reid_dist.stores.featureset import read_kept
from reid_dist.stores.labels import joint_labels

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Gallery rows in memory at once for the distances of single pairs.
_GATHERED_ROWS = 8192


class Scorer(ABC):
    """Distances between query and gallery rows; a small value sent to workers, without arrays of features."""

    distance: Distance
    # Remarks on the distances, for the report.
    notes: tuple[Finding, ...] = ()

    @property
    @abstractmethod
    def shapes(self) -> tuple[SetShape, SetShape]:
        """Shapes of the query and the gallery side, for the plan."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """URIs and content digests of the inputs of the distances."""

    @property
    def falling_scale(self) -> ScreenScale:
        """Falling values of distances, for thresholds over the pairs of all queries."""
        return ScreenScale(self.distance.squared)

    @property
    def bytes_per_pair(self) -> int:
        """Bytes that a task holds per pair of its rows, in addition to the current tile."""
        return 0

    @abstractmethod
    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read query rows for the comparison with a range of gallery rows."""

    @abstractmethod
    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Read gallery rows."""

    def meet(self, query: FeatureBlock, gallery: FeatureBlock) -> FeatureBlock:
        """Add data of pairs with a gallery block to a block of queries; by default none."""
        return query

    @abstractmethod
    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Canonical distances of listed pairs, shape (n,), float64.

        `rows` are a block of queries, and `owner` the position in it of each pair's query.
        """


def read_block(features: FeatureSet, rows: RowRange) -> FeatureBlock:
    """Read rows and compute their canonical squared norms.

    Raises `DamagedStoreError` if a row is not finite, or the checksum of its chunk differs.
    """
    raw = read_kept(features, rows.start, rows.stop)
    block = read_only(raw.astype(np.float32, copy=False))
    norm = squared_norms(block)
    if not np.isfinite(norm).all():
        row = rows.start + int(np.flatnonzero(~np.isfinite(norm))[0])
        raise DamagedStoreError(f"row {row} of {features.uri} is not finite; run `reid-dist check` on it")
    # Rows in float16 are not kept beside the others for nothing.
    stored = StoredRows((features.content_digest, rows.start, rows.stop, raw.dtype.name), raw)
    is_kept = raw.dtype == np.float32 or are_loaded()
    return FeatureBlock(np.arange(rows.start, rows.stop), block, norm, stored=stored if is_kept else None)


@dataclass(frozen=True)
class FeatureScorer(Scorer):
    """Distances between feature rows, under a registered distance.

    Lists of nearest rows leave out those that have the query's value of the label `exclude`, if there is one.
    """

    query: FeatureSet
    gallery: FeatureSet
    distance: Distance
    exclude: str | None = None

    @property
    def shapes(self) -> tuple[SetShape, SetShape]:
        """Shapes of the two sets."""
        return _shape(self.query), _shape(self.gallery)

    @property
    def identity(self) -> tuple[str, ...]:
        """URIs and content digests of the two sets."""
        excluded = () if self.exclude is None else (f"exclude {self.exclude}",)
        sets = self.query.uri, self.query.content_digest, self.gallery.uri, self.gallery.content_digest
        return (*sets, *excluded)

    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read query rows."""
        return self._open(0, rows)

    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Read gallery rows."""
        return self._open(1, rows)

    def _open(self, side: int, rows: RowRange) -> FeatureBlock:
        both = self.query, self.gallery
        block = read_block(both[side], rows)
        if self.exclude is None:
            return block
        return replace(block, label=joint_labels(self.exclude, both)[side][rows.start : rows.stop])

    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Read the gallery rows singly, some thousand at a time; see `Scorer.pair_distances`."""
        query = read_block(self.query, rows)
        # In order of gallery rows: each is read once and stays in the cache for all its pairs.
        order = order_of_rows(gallery_row)
        ordered = gallery_row[order]
        bounds = run_offsets(ordered)
        opens = bounds[:-1]
        distance = np.empty(len(owner))
        for start in range(0, len(opens), _GATHERED_ROWS):
            stop = min(start + _GATHERED_ROWS, len(opens))
            features, position = self._gather(ordered[opens[start:stop]])
            position = np.repeat(position, np.diff(bounds[start : stop + 1]))
            mine = order[bounds[start] : bounds[stop]]
            pairs = PairRows(self.distance.kind, query.features, features, query.norm, squared_norms(features))
            distance[mine] = pair_distances(pairs, owner[mine], position)
        return distance

    def _gather(self, rows: Int64) -> tuple[NDArray[np.float32], Int64]:
        """Read ascending gallery rows, with others or without; and the position of each in what was read."""
        first, last = int(rows[0]), int(rows[-1])
        if not self.gallery.is_stored and last - first < 2 * len(rows):
            # Rows in memory are read as they are: selecting most of them would copy these.
            return read_only(self.gallery.read(first, last + 1)), rows - first
        return read_only(self.gallery.read_rows(rows)), np.arange(len(rows))


def _shape(features: FeatureSet) -> SetShape:
    return SetShape(features.n_rows, features.dim, features.dtype.itemsize, features.chunk_rows)


@dataclass(frozen=True)
class BlockScorer(Scorer):
    """Precomputed block of distances, with one row per query and one column per gallery row."""

    block: DistanceBlock
    distance: Distance = GIVEN_DISTANCE

    @property
    def shapes(self) -> tuple[SetShape, SetShape]:
        """Shapes of both sides, with one distance as the "feature" of a row: a task holds a piece of the block."""
        n_query, n_gallery = self.block.shape
        return SetShape(n_query, 1, 8, n_query), SetShape(n_gallery, 1, 8, n_gallery)

    @property
    def identity(self) -> tuple[str, ...]:
        """URI and content digest of the block."""
        return (self.block.uri, self.block.content_digest)

    @property
    def bytes_per_pair(self) -> int:
        """Bytes of a distance, as read and as used in a tile."""
        return 16

    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read a piece of the block."""
        values = self.block.read(rows.start, rows.stop, gallery_rows.start, gallery_rows.stop)
        return FeatureBlock.of_distances(rows, values)

    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Positions of gallery rows in a piece of the block."""
        return FeatureBlock.of_places(rows)

    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Read the distances of the pairs; see `Scorer.pair_distances`."""
        return self.block.read_values(rows.start + owner, gallery_row)
