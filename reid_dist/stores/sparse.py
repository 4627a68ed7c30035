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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.stores.commits import PendingStore, commit_together
from reid_dist.stores.digests import bytes_of
from reid_dist.stores.folders import folder_at
from reid_dist.stores.layout import array_in, create_array, open_group
from reid_dist.stores.locations import canonical_uri, read_twice
from reid_dist.stores.manifest import NEIGHBOUR_GRAPH, complete_marker, read_complete
from reid_dist.stores.object_errors import storage_errors

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


def write_graph(
    uri: str,
    shape: tuple[int, int, int],
    read: Callable[[RowRange], GraphPiece],
    described: Mapping[str, Any],
    *,
    overwrite: bool,
) -> None:
    """Write a graph, one piece in memory at a time.

    `shape` is items, entries of all rows, and length of a list; `read` gives a range of rows; `described` are
    parameters and inputs for the manifest, as JSON.
    """
    pending = PendingStore(uri, overwrite=overwrite)
    try:
        with storage_errors(pending.uri, writing=True):
            marker = _write(pending.group, shape, read, described)
        pending.prepare(marker)
        commit_together([pending])
    except BaseException:
        pending.abort()
        raise


def _write(
    group: zarr.Group, shape: tuple[int, int, int], read: Callable[[RowRange], GraphPiece], described: Mapping[str, Any]
) -> dict[str, Any]:
    n_items, n_entries, k = shape
    flat = {
        name: _create(group, name, (n,), kind)
        for name, n, kind in (
            ("indptr", n_items + 1, "<i8"),
            ("indices", n_entries, "<i4"),
            ("weights", n_entries, "<f8"),
        )
    }
    lists = group.create_group("neighbours")
    index, distance = _create(lists, "index", (n_items, k), "<i4"), _create(lists, "distance", (n_items, k), "<f8")
    digests, first = [], 0
    flat["indptr"][:1] = np.zeros(1, np.int64)
    for rows in cut_rows(n_items, PIECE_ROWS):
        piece = read(rows)
        last = first + len(piece.indices)
        here = slice(rows.start, rows.stop)
        flat["indptr"][rows.start + 1 : rows.stop + 1] = piece.indptr[1:] + first
        if last > first:
            flat["indices"][first:last] = piece.indices
            flat["weights"][first:last] = piece.weights
        index[here], distance[here] = piece.neighbours, piece.distances
        digests.append(piece.digest())
        first = last
    entry = {
        "shape": [n_items, n_items],
        "n_entries": n_entries,
        "k": k,
        "piece_rows": PIECE_ROWS,
        "piece_digests": digests,
        "content_digest": _content_digest(n_items, digests),
        **described,
    }
    return complete_marker(NEIGHBOUR_GRAPH, entry)


def _create(group: zarr.Group, name: str, shape: tuple[int, ...], kind: str) -> zarr.Array[Any]:
    rows = max(1, min(shape[0], _CHUNK_ENTRIES // (shape[1] if len(shape) > 1 else 1)))
    return create_array(group, name, shape, kind, rows)


def _content_digest(n_items: int, digests: list[str]) -> str:
    header = json.dumps(
        {"kind": f"reid_dist graph {NEIGHBOUR_GRAPH.version}", "n_items": n_items, "piece_rows": PIECE_ROWS}
    )
    return blake3("\n".join([header, *digests]).encode()).hexdigest()


@dataclass(frozen=True)
class StoredGraph:
    """The reading side of a graph that is complete; every row that leaves it has been compared with its digest."""

    uri: str
    manifest: Mapping[str, Any]

    @classmethod
    def open(cls, uri: str) -> StoredGraph:
        """Open a graph; nothing but its manifest is read."""
        place = canonical_uri(uri)
        return read_twice(place, lambda: cls._open(place))

    @classmethod
    def _open(cls, place: str) -> StoredGraph:
        manifest = read_complete(place, NEIGHBOUR_GRAPH)
        if manifest is None:
            raise StoreError(f"{place} is no neighbour graph; NeighbourGraph.save writes one")
        folder_at(place).refuse_links()
        return cls(place, manifest)

    def piece(self, number: int) -> GraphPiece:
        """Read a piece; DamagedStoreError if it is not what was written."""
        return read_twice(self.uri, lambda: self._read_verified(number))

    def _read_verified(self, number: int) -> GraphPiece:
        n_items = self.manifest["shape"][0]
        rows = RowRange(number * PIECE_ROWS, min((number + 1) * PIECE_ROWS, n_items))
        try:
            with storage_errors(self.uri):
                piece = self._read(rows)
            found = piece.digest()
        except (MemoryError, StoreError):
            raise
        except Exception as error:  # Damaged bytes make Zarr fail in many ways.
            raise self._damaged(rows, f"unreadable: {type(error).__name__}: {error}") from error
        if found != self.manifest["piece_digests"][number]:
            raise self._damaged(rows, "they are not those of the manifest, or a chunk is missing")
        return piece

    def _read(self, rows: RowRange) -> GraphPiece:
        group = open_group(self.uri)

        def read(name: str, start: int, stop: int) -> NDArray[Any]:
            return np.asarray(array_in(group, name)[start:stop])

        indptr = read("indptr", rows.start, rows.stop + 1)
        first, last = int(indptr[0]), int(indptr[-1])
        return GraphPiece(
            indptr - first,
            read("indices", first, last),
            read("weights", first, last),
            read("neighbours/index", rows.start, rows.stop),
            read("neighbours/distance", rows.start, rows.stop),
        )

    def _damaged(self, rows: RowRange, what: str) -> DamagedStoreError:
        what = " ".join(what.split())
        return DamagedStoreError(f"{self.uri} is damaged: rows {rows.start} to {rows.stop - 1}: {what}; save it again")
