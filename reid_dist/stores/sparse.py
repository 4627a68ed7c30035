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
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import zarr
from blake3 import blake3
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.errors import DamagedStoreError, IncompleteStoreError, StoreError, StoreNotFoundError
from reid_dist.stores.commits import Replacement, commit_together, remove_leftovers
from reid_dist.stores.digests import bytes_of
from reid_dist.stores.folders import folder_at
from reid_dist.stores.locations import (
    MANIFEST_KEY,
    WRITING_MARKER,
    State,
    canonical_uri,
    hidden_beside,
    read_marker,
    read_twice,
    refuse_unless_free,
    remove,
    state_by,
    state_of,
    zarr_store,
)
from reid_dist.stores.locks import lock, unlock
from reid_dist.stores.object_errors import storage_errors

PIECE_ROWS = 16384
"""Rows of a piece.  Part of the format: another number gives other digests."""

_KIND = "neighbour_graph"
_FORMAT_VERSION = 1
_CHUNK_ENTRIES = 1 << 20


class GraphPiece(NamedTuple):
    """Some rows of a graph, in memory.

    Attributes
    ----------
    indptr
        From 0, shape (rows + 1,), int64.
    indices, weights
        Shape (entries,), int32 and float64.
    neighbours, distances
        Shape (rows, k), int32 and float64.
    """

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

    Parameters
    ----------
    uri
        Where to.
    shape
        Items, entries of all rows, and length of a list.
    read
        Gives a range of rows.
    described
        Parameters and inputs, for the manifest, as JSON.
    overwrite
        Whether a complete store may be replaced.

    Raises
    ------
    StoreExistsError
        If a complete store, or something else, is there.
    StoreError
        If it cannot be written.
    """
    place = canonical_uri(uri)
    reserved = lock(place)
    try:
        state = refuse_unless_free(place, overwrite=overwrite)
        target = hidden_beside(place, "incoming") if state is State.COMPLETE else place
        if state is not State.NOTHING and state_of(target) is not State.NOTHING:
            remove(target)
        _write_or_remove(place, target, shape, read, described)
        if target != place:
            replacement = [Replacement(place)]
            commit_together(replacement)
            remove_leftovers(replacement)
    finally:
        unlock(reserved, os.getpid())


def _write_or_remove(
    place: str,
    target: str,
    shape: tuple[int, int, int],
    read: Callable[[RowRange], GraphPiece],
    described: Mapping[str, Any],
) -> None:
    try:
        with storage_errors(place, writing=True):
            _write(target, shape, read, described)
    except BaseException as error:
        if state_of(target) is not State.NOTHING:
            remove(target)
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"cannot write {place}: {error.strerror or error}") from None
        raise


def _write(
    target: str, shape: tuple[int, int, int], read: Callable[[RowRange], GraphPiece], described: Mapping[str, Any]
) -> None:
    n_items, n_entries, k = shape
    group = zarr.create_group(
        zarr_store(target, read_only=False), zarr_format=3, attributes={MANIFEST_KEY: WRITING_MARKER}
    )
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
        "state": "complete",
        "kind": _KIND,
        "format_version": _FORMAT_VERSION,
        "shape": [n_items, n_items],
        "n_entries": n_entries,
        "k": k,
        "piece_rows": PIECE_ROWS,
        "piece_digests": digests,
        "content_digest": _content_digest(n_items, digests),
        **described,
    }
    group.attrs[MANIFEST_KEY] = {**entry, "manifest_digest": _own_digest(entry)}


def _create(group: zarr.Group, name: str, shape: tuple[int, ...], kind: str) -> zarr.Array[Any]:
    rows = max(1, min(shape[0], _CHUNK_ENTRIES // (shape[1] if len(shape) > 1 else 1)))
    return group.create_array(
        name,
        shape=shape,
        dtype=np.dtype(kind),
        chunks=(rows, *shape[1:]),
        serializer=BytesCodec(endian="little"),
        compressors=[Crc32cCodec()],
        fill_value=0,
        config={"write_empty_chunks": True},
    )


def _content_digest(n_items: int, digests: list[str]) -> str:
    header = json.dumps({"kind": f"reid_dist graph {_FORMAT_VERSION}", "n_items": n_items, "piece_rows": PIECE_ROWS})
    return blake3("\n".join([header, *digests]).encode()).hexdigest()


def _own_digest(entry: Mapping[str, Any]) -> str:
    return blake3(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@dataclass(frozen=True)
class StoredGraph:
    """The reading side of a graph that is complete; every row that leaves it has been compared with its digest.

    Attributes
    ----------
    uri
        Absolute path.
    manifest
        What it holds.
    """

    uri: str
    manifest: Mapping[str, Any]

    @classmethod
    def open(cls, uri: str) -> StoredGraph:
        """Open a graph; nothing but its manifest is read.

        Raises
        ------
        StoreNotFoundError, IncompleteStoreError, StoreError, DamagedStoreError
            If there is none, or it is not whole.
        """
        place = canonical_uri(uri)
        return read_twice(place, lambda: cls._open(place))

    @classmethod
    def _open(cls, place: str) -> StoredGraph:
        marker = read_marker(place) or {}
        state = state_by(marker or None, place)
        if state is State.NOTHING:
            raise StoreNotFoundError(f"no neighbour graph at {place}: nothing is there")
        if state is State.WRITING:
            raise IncompleteStoreError(
                f"{place} has no commit marker: its writer was stopped, or is still running; save the graph again"
            )
        if marker.get("kind") != _KIND:
            raise StoreError(f"{place} is no neighbour graph; NeighbourGraph.save writes one")
        version = marker.get("format_version")
        if isinstance(version, int) and version > _FORMAT_VERSION:
            raise StoreError(
                f"{place} has format version {version} and this release reads up to {_FORMAT_VERSION}; update reid-dist"
            )
        written = {name: value for name, value in marker.items() if name != "manifest_digest"}
        if marker.get("manifest_digest") != _own_digest(written):
            raise DamagedStoreError(
                f"{place}: the manifest in zarr.json does not match its own digest: it was damaged or edited; save the "
                "graph again"
            )
        folder_at(place).refuse_links()
        return cls(place, written)

    def piece(self, number: int) -> GraphPiece:
        """Read a piece, verified.

        Raises
        ------
        DamagedStoreError
            If it is not what was written.
        """
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
        group = zarr.open_group(zarr_store(self.uri, read_only=True), mode="r", zarr_format=3, use_consolidated=False)

        def read(name: str, start: int, stop: int) -> NDArray[Any]:
            node = group[name]
            if not isinstance(node, zarr.Array):
                raise KeyError(name)
            return np.asarray(node[start:stop])

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
