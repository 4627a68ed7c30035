"""Blocks of feature rows, as tiles and kernels take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import GalleryMask, Hidden, RowRange
from reid_dist.engine.distances import Distance
from reid_dist.engine.distances.device_rows import StoredRows
from reid_dist.kernels.canonical import PLAIN, PairRows, Rescoring, bytes_of_given, read_only

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, weakref_slot=True)
class FeatureBlock:
    """Feature rows in memory."""

    # Row numbers in the set, ascending, shape (n,), int64.
    numbers: Int64
    # Shape (n, dim), float32, C order, read-only.  For precomputed distances, see
    # `reid_dist.kernels.canonical.PairRows`.
    features: NDArray[np.float32]
    # Canonical squared norms, shape (n,), float64.
    norm: NDArray[np.float64]
    # Group of each gallery row, shape (n,), int64, for separate counts per group; None for counts of all together.
    group: Int64 | None = None
    # For queries under a re-ranked distance: its values for some gallery rows of the block pair, numbered as in the set
    # (``column``), and its formula for all others.
    reranked: Rescoring | None = None
    # Labels, shape (n,), int64: rows of equal labels are in no list of nearest rows of each other.  None for all rows.
    label: Int64 | None = None
    # The rows as they are stored, where a device may take them.
    stored: StoredRows | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", read_only(self.features))

    @classmethod
    def of_distances(cls, rows: RowRange, values: Float64) -> FeatureBlock:
        """Queries with precomputed distances, shape (len(rows), n), float64, to n rows of `of_places`."""
        return cls(np.arange(rows.start, rows.stop), bytes_of_given(values), np.zeros(len(rows)))

    @classmethod
    def of_places(cls, rows: RowRange) -> FeatureBlock:
        """Gallery rows of precomputed distances, each with its place in the range."""
        places = np.arange(len(rows), dtype=np.float64)[:, None]
        return cls(np.arange(rows.start, rows.stop), bytes_of_given(places), np.zeros(len(rows)))

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, place: Int64) -> FeatureBlock:
        """Select rows without re-ranked distances by position, ascending, shape (m,)."""
        group, label = (None if each is None else each[place] for each in (self.group, self.label))
        return FeatureBlock(self.numbers[place], self.features[place], self.norm[place], group, label=label)

    def find(self, row: Int64) -> tuple[Int64, Int64]:
        """Find rows of the set, in any order, in the block.

        Returns the positions in `row` of the rows in this block, ascending, and their positions in the block, both
        int64.
        """
        if not len(self.numbers):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        first, last = self.numbers[0], self.numbers[-1]
        within = np.flatnonzero((row >= first) & (row <= last))
        if last - first + 1 == len(self.numbers):
            return within, row[within] - first
        place = np.searchsorted(self.numbers, row[within])
        here = self.numbers[place] == row[within]
        return within[here], place[here]


class HiddenColumns:
    """Gallery rows hidden from each query of a block, as columns of a gallery block."""

    def __init__(self, hidden: Hidden, mask: GalleryMask, gallery: FeatureBlock) -> None:
        # Columns ``column[indptr[i]:indptr[i + 1]]``, ascending, are hidden from query ``i``; int64.
        here, self.column = gallery.find(hidden.row)
        self.indptr = np.searchsorted(here, hidden.indptr)
        self._junk = mask.junk_row[gallery.numbers]
        self._label = None if mask.label is None or hidden.label is None else mask.label[gallery.numbers]
        self._query_label = hidden.label

    def bias(self, bias: NDArray[np.floating], columns: RowRange, queries: Int64) -> tuple[NDArray[np.floating], Int64]:
        """Set the bias of hidden columns of a tile to infinity, for each kind of query.

        Returns biases, shape (kinds, n_column), and the kind of each query, shape (n_query,), int64.
        """
        place = slice(columns.start, columns.stop)
        seen = np.where(self._junk[place], np.inf, bias).astype(bias.dtype)
        if self._label is None or self._query_label is None:
            return seen[None], np.zeros(len(queries), np.int64)
        kinds, bias_of = np.unique(self._query_label[queries], return_inverse=True)
        return np.where(self._label[place] == kinds[:, None], np.array(np.inf, bias.dtype), seen), bias_of


def pair_rows(distance: Distance, query: FeatureBlock, gallery: FeatureBlock) -> PairRows:
    """Convert both blocks to the arguments of kernels."""
    rescoring = PLAIN if query.reranked is None else _on_columns(query.reranked, gallery)
    return PairRows(distance.kind, query.features, gallery.features, query.norm, gallery.norm, rescoring)


def _on_columns(known: Rescoring, gallery: FeatureBlock) -> Rescoring:
    """Rescoring by columns of a gallery block; where all its rows are in the block, nothing is copied."""
    first, row = int(gallery.numbers[0]) if len(gallery) else 0, known.column
    stop = first + len(gallery)
    is_range = len(gallery) > 0 and gallery.numbers[-1] == stop - 1
    if is_range and (not len(row) or (row.min() >= first and row.max() < stop)):
        return known._replace(first_column=first)
    here, column = gallery.find(row)
    return known._replace(indptr=np.searchsorted(here, known.indptr), column=column, value=known.value[here])
