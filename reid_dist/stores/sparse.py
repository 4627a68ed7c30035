"""Neighbour graphs in a Zarr v3 group: lists, and sparse rows, written piece by piece and verified piece by piece.

::

    GRAPH/zarr.json              the group; its attribute "reid_dist" is the manifest, written last
    GRAPH/indptr                 int64 (n + 1,): row i is at indptr[i]:indptr[i + 1]
    GRAPH/indices  weights       int32 and float64 (nnz,): columns, ascending in a row, and what is in them
    GRAPH/neighbours/index       int32 (n, k), each item first in its own list; -1 where there are no more
    GRAPH/neighbours/distance    float64 (n, k); inf where there are no more

The manifest has a digest for every piece of so many rows, over all five arrays, and Zarr's own checksums guard chunks.
The content digest is over those of the pieces, so it does not depend on how anything was cut while it was computed.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import zarr
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.core.model import nth_rows
from reid_dist.errors import StoreError
from reid_dist.stores.digests import bytes_of
from reid_dist.stores.layout import NEIGHBOUR_GRAPH, array_in, complete_marker, create_array
from reid_dist.stores.objects import storage_errors
from reid_dist.stores.stored import VerifiedReader
from reid_dist.stores.writer import StoreWriter

PIECE_ROWS = 16384
"""Rows of a piece.  Part of the format: another number gives other digests."""

_CHUNK_ENTRIES = 1 << 20


class GraphPiece(NamedTuple):
    """Some rows of a graph: `indptr` from 0, (rows + 1,); (entries,) entries; (rows, k) lists."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float64]
    neighbours: NDArray[np.int32]
    distances: NDArray[np.float64]

    def digest(self) -> str:
        """BLAKE3 of all arrays, in hex."""
        hasher = blake3()
        whole = (self.indptr.astype("<i8"), self.indices.astype("<i4"), self.neighbours.astype("<i4"))
        real = (self.weights.astype("<f8"), self.distances.astype("<f8"))
        for array in (*whole, *real):
            hasher.update(f"{array.shape}".encode())
            hasher.update(bytes_of(np.ascontiguousarray(array)))
        return hasher.hexdigest()


class GraphWriter(StoreWriter):
    """Append the pieces of a graph, `PIECE_ROWS` rows each but for the last one; otherwise as `FeatureWriter`.

    `shape` is items, entries of all rows, and length of a list; `described` are parameters and inputs for the manifest,
    as JSON.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        shape: tuple[int, int, int],
        described: Mapping[str, Any],
        *,
        overwrite: bool,
    ) -> None:
        self._shape, self._described = shape, described
        self._n_rows = self._n_entries = 0
        self._digests: list[str] = []
        super().__init__(location, overwrite=overwrite)
        n_items, n_entries, k = shape
        try:
            with storage_errors(self.uri, writing=True):
                self._arrays = [
                    self._create("indptr", (n_items + 1,), "<i8"),
                    self._create("indices", (n_entries,), "<i4"),
                    self._create("weights", (n_entries,), "<f8"),
                    self._create("neighbours/index", (n_items, k), "<i4"),
                    self._create("neighbours/distance", (n_items, k), "<f8"),
                ]
                self._arrays[0][:1] = np.zeros(1, np.int64)
        except BaseException:
            self.abort()
            raise

    def _create(self, name: str, shape: tuple[int, ...], kind: str) -> zarr.Array[Any]:
        # No longer than the array: Zarr pads chunks to their full length.
        rows = max(1, min(shape[0], _CHUNK_ENTRIES // math.prod(shape[1:])))
        return create_array(self._group, name, shape, kind, rows)

    def append(self, piece: GraphPiece) -> None:
        """Write the next piece."""
        rows = slice(self._n_rows, self._n_rows + len(piece.neighbours))
        entries = slice(self._n_entries, self._n_entries + len(piece.indices))
        indptr = slice(rows.start + 1, rows.stop + 1)
        values: tuple[NDArray[Any], ...] = (piece.indptr[1:] + entries.start, *piece[1:])
        with storage_errors(self.uri, writing=True):
            for array, place, own in zip(self._arrays, (indptr, entries, entries, rows, rows), values, strict=True):
                if len(own):
                    array[place] = own
        self._digests.append(piece.digest())
        self._n_rows, self._n_entries = rows.stop, entries.stop

    def finish(self) -> None:
        """Make the manifest; StoreError unless all rows and entries were given."""
        n_items, n_entries, k = self._shape
        if (self._n_rows, self._n_entries) != (n_items, n_entries):
            raise StoreError(
                f"{self._n_rows} rows with {self._n_entries} entries were given for {self.uri}, "
                f"expected {n_items} with {n_entries}"
            )
        header = json.dumps(
            {"kind": f"reid_dist graph {NEIGHBOUR_GRAPH.version}", "n_items": n_items, "piece_rows": PIECE_ROWS}
        )
        entry = {
            "shape": [n_items, n_items],
            "n_entries": n_entries,
            "k": k,
            "piece_rows": PIECE_ROWS,
            "piece_digests": self._digests,
            "content_digest": blake3("\n".join([header, *self._digests]).encode()).hexdigest(),
            **self._described,
        }
        self._marker = complete_marker(NEIGHBOUR_GRAPH, entry)


class StoredGraph(VerifiedReader):
    """The reading side of a graph that is complete; every row that leaves it has been compared with its digest."""

    kind = NEIGHBOUR_GRAPH

    @property
    def shape(self) -> tuple[int, int, int]:
        """Items, entries of all rows, and length of a list."""
        return self.entry["shape"][0], self.entry["n_entries"], self.entry["k"]

    def piece(self, number: int) -> GraphPiece:
        """Read a piece; DamagedStoreError if it is not what was written."""
        rows = nth_rows(number, self.shape[0], PIECE_ROWS)

        def read(name: str, start: int, stop: int) -> NDArray[Any]:
            return np.asarray(array_in(self._group, name)[start:stop])

        def read_piece() -> GraphPiece:
            indptr = read("indptr", rows.start, rows.stop + 1)
            first, last = int(indptr[0]), int(indptr[-1])
            return GraphPiece(
                indptr - first,
                read("indices", first, last),
                read("weights", first, last),
                read("neighbours/index", rows.start, rows.stop),
                read("neighbours/distance", rows.start, rows.stop),
            )

        digest: str = self.entry["piece_digests"][number]
        name = f"rows {rows.start} to {rows.stop - 1}"
        found = self.examine(name, read_piece, lambda piece: piece.digest() == digest)
        return self.verified(found)
