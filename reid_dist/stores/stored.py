"""Rows and labels of a store, read and verified.

Zarr decodes whole chunks for any part of them, so every read here is of whole chunks and every chunk is compared with
its digest in the manifest: every row that leaves this module is the row that was written, even when another store is
written to the same place between two reads.  The one exception is `StoredRows.read_unverified`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    ReidDistError,
    StoreError,
    StoreNotFoundError,
)
from reid_dist.stores.chunks import Chunks
from reid_dist.stores.digests import digest_label, digest_rows
from reid_dist.stores.folders import folder_at
from reid_dist.stores.layout import read_label
from reid_dist.stores.locations import (
    State,
    cut_short_note,
    holds,
    read_marker,
    read_twice,
    refuse_stripped,
    state_by,
)
from reid_dist.stores.manifest import Manifest
from reid_dist.stores.object_errors import storage_errors
from reid_dist.stores.rows import FeatureArray


@dataclass(frozen=True)
class Damage:
    """One damaged part of a store.

    Attributes
    ----------
    array
        ``"features"``, or the name of a label array.
    chunk
        Index of the chunk; None for a label array, which is verified as a whole.
    file
        The file that holds it, relative to the store.
    what
        What is wrong with it.
    """

    array: str
    chunk: int | None
    file: str
    what: str

    def __str__(self) -> str:
        chunk = "" if self.chunk is None else f" chunk {self.chunk}"
        return f"{self.array}{chunk} ({self.file}): {self.what}"


class StoredRows:
    """The reading side of one complete store; several threads may read at once.

    Parameters
    ----------
    uri
        Canonical URI of the store.
    manifest
        Its manifest.
    """

    is_stored = True

    def __init__(self, uri: str, manifest: Manifest) -> None:
        self.uri = uri
        self.manifest = manifest
        self.shape = (manifest.n_rows, manifest.dim)
        self.dtype = manifest.numpy_dtype.newbyteorder("=")
        self.chunk_rows = manifest.chunk_rows
        self.content_digest = manifest.content_digest
        self.allow_zero = manifest.allow_zero
        self.zero_rows = manifest.zero_rows
        self.notes = manifest.notes
        self._folder = folder_at(uri)
        with storage_errors(uri):
            store = self._folder.zarr_store(read_only=True)
            self._group = zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
        self._chunks = Chunks(self._folder, manifest)
        self._features = self._open_features()
        self._labels: dict[str, NDArray[Any]] = {}
        self._lock = threading.Lock()

    def _open_features(self) -> zarr.Array[Any]:
        try:
            with storage_errors(self.uri):
                node = self._group["features"]
        except StoreError:
            raise
        except Exception as error:  # Whatever a damaged zarr.json makes Zarr raise.
            raise self._damaged(
                Damage("features", None, "features/zarr.json", f"metadata unreadable ({_cause(error)})")
            ) from error
        expected = (self.shape, self.manifest.numpy_dtype, (self.chunk_rows, self.shape[1]))
        if not isinstance(node, zarr.Array) or (node.shape, node.dtype, node.chunks) != expected:
            raise self._damaged(Damage("features", None, "features/zarr.json", "metadata differs from the manifest"))
        return node

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the label arrays."""
        return tuple(self.manifest.labels)

    def label(self, name: str) -> NDArray[Any] | None:
        """Return a label array, read and verified on first use; None if the store has none of that name.

        Raises
        ------
        DamagedStoreError
            If it is not what was written.
        """
        with self._lock:
            if name not in self._labels and name in self.manifest.labels:
                found = self.examine_label(name)
                if isinstance(found, Damage):
                    raise self._damaged(found)
                found.flags.writeable = False
                self._labels[name] = found
            return self._labels.get(name)

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array that there is, from the manifest: the array itself is not read."""
        return self.manifest.labels[name].digest

    def read_raw(self, start: int, stop: int) -> FeatureArray:
        """Return rows in the dtype in which they are stored.

        Parameters
        ----------
        start, stop
            Range of rows, within the store and not empty.

        Returns
        -------
        numpy.ndarray
            (stop - start, dim) C-contiguous.

        Raises
        ------
        DamagedStoreError
            Naming the first chunk that is missing or not what was written.
        """
        first, last = start // self.chunk_rows, (stop - 1) // self.chunk_rows
        begin, end = first * self.chunk_rows, self.manifest.rows_of_chunk(last).stop
        rows = self._chunks.read(first, last)
        if rows is None:
            rows = self._read_by_zarr(first, last)
        if (begin, end) == (start, stop):
            return rows
        return rows[start - begin : stop - begin].copy()

    def _read_by_zarr(self, first: int, last: int) -> FeatureArray:
        """Read whole chunks by Zarr: any storage and layout, and a name for what is damaged."""
        begin, end = first * self.chunk_rows, self.manifest.rows_of_chunk(last).stop
        try:
            # All chunks in one call: Zarr fetches them concurrently, which hides the latency of object storage.
            with storage_errors(self.uri):
                rows = np.asarray(self._features[begin:end])
            intact = all(self._matches(rows, begin, chunk) for chunk in range(first, last + 1))
        except (MemoryError, StoreError):
            raise
        except Exception:  # Zarr's error does not name the chunk; examine_chunk does.
            intact = False
        return rows if intact else self._read_one_by_one(first, last)

    def read_unverified(self, rows: NDArray[np.int64]) -> FeatureArray:
        """Return scattered rows, not verified where that would mean to read whole chunks for a few rows.

        Chunks are raw bytes, so a row is found by arithmetic.  The caller must compare
        the rows later with rows from `read_raw`.

        Parameters
        ----------
        rows
            Ascending row numbers, shape (n,), int64.

        Returns
        -------
        numpy.ndarray
            (n, dim) in the stored dtype.

        Raises
        ------
        DamagedStoreError
            If a chunk is missing or of the wrong size.
        """
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        chunks, starts = np.unique(rows // self.chunk_rows, return_index=True)
        bounds = list(zip(chunks.tolist(), starts, [*starts[1:], len(rows)], strict=True))
        wanted = [(chunk, rows[start:stop] - chunk * self.chunk_rows) for chunk, start, stop in bounds]
        for (chunk, start, stop), (_, inside), part in zip(
            bounds, wanted, self._chunks.read_unverified(wanted), strict=True
        ):
            if part is None:
                # Reading it as a whole names the damage.
                held = self.manifest.rows_of_chunk(chunk)
                part = self.read_raw(held.start, held.stop)[inside]
            found[start:stop] = part
        return found

    def _matches(self, rows: FeatureArray, begin: int, chunk: int) -> bool:
        held = self.manifest.rows_of_chunk(chunk)
        return digest_rows(rows[held.start - begin : held.stop - begin]) == self.manifest.chunk_digests[chunk]

    def _read_one_by_one(self, first: int, last: int) -> FeatureArray:
        parts = []
        for chunk in range(first, last + 1):
            found = self.examine_chunk(chunk)
            if isinstance(found, Damage):
                raise self._damaged(found)
            parts.append(found)
        return np.concatenate(parts)

    def examine_chunk(self, index: int) -> FeatureArray | Damage:
        """Read and verify one chunk of features.

        Parameters
        ----------
        index
            Number of the chunk.

        Returns
        -------
        numpy.ndarray or Damage
            (rows, dim) in the stored dtype, or what is wrong.
        """
        return read_twice(self.uri, lambda: self._examine_chunk(index), _is_damage)

    def _examine_chunk(self, index: int) -> FeatureArray | Damage:
        file = self.manifest.file_of_chunk(index)
        held = self.manifest.rows_of_chunk(index)
        try:
            with storage_errors(self.uri):
                rows = np.asarray(self._features[held.start : held.stop])
        except (MemoryError, StoreError):
            raise
        except Exception as error:
            size = self._folder.size(file) or 0
            return Damage("features", index, file, f"unreadable, {size} bytes in the file ({_cause(error)})")
        if digest_rows(rows) == self.manifest.chunk_digests[index]:
            return rows
        if self._folder.size(file) is None:
            return Damage("features", index, file, "missing")
        if np.isnan(rows).all():
            return Damage("features", index, file, "missing in its shard")
        return Damage("features", index, file, "its rows are not those of the manifest")

    def examine_chunks(self) -> Iterator[FeatureArray | Damage]:
        """Read and verify all chunks in their order, several at a time where each takes a while to begin."""
        return self._folder.map(self.examine_chunk, range(self.manifest.n_chunks), self.manifest.chunk_bytes)

    def examine_label(self, name: str) -> NDArray[Any] | Damage:
        """Read and verify one label array."""
        return read_twice(self.uri, lambda: self._examine_label(name), _is_damage)

    def _examine_label(self, name: str) -> NDArray[Any] | Damage:
        entry = self.manifest.labels[name]
        try:
            with storage_errors(self.uri):
                values = read_label(self._group, name, entry.kind)
        except (MemoryError, StoreError):
            raise
        except Exception as error:
            return Damage(name, None, name, f"unreadable ({_cause(error)})")
        if len(values) != entry.length or digest_label(values) != entry.digest:
            return Damage(name, None, name, "its values are not those of the manifest, or a chunk is missing")
        return values

    def _damaged(self, damage: Damage) -> DamagedStoreError:
        current = None
        with contextlib.suppress(ReidDistError):
            current = (read_marker(self.uri) or {}).get("content_digest")
        if current != self.content_digest:
            error = DamagedStoreError(f"{self.uri} was changed while in use, found at {damage}; run again")
        else:
            error = DamagedStoreError(f"{self.uri} is damaged: {damage}; ingest the source again")
        error.place = self.uri
        return error

    def __reduce__(self) -> Any:
        raise TypeError("a reader is not sent anywhere; send its FeatureSet")


def _is_damage(found: NDArray[Any] | Damage) -> bool:
    return isinstance(found, Damage)


def _cause(error: Exception) -> str:
    """Cause of a failed read, in words for users: messages of the libraries may print the bytes."""
    if "checksum" in str(error):
        return "its bytes do not have the checksum that was written with them"
    return "a file of it is missing" if isinstance(error, FileNotFoundError | KeyError) else type(error).__name__


def open_stored(uri: str) -> StoredRows:
    """Open a complete store for reading.

    Parameters
    ----------
    uri
        Canonical URI.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    IncompleteStoreError
        If it has no commit marker.
    StoreError
        If it is something else, or of a newer format.
    DamagedStoreError
        If its manifest or the metadata of its features is damaged.
    """
    return read_twice(uri, lambda: _open_stored(uri))


def _open_stored(uri: str) -> StoredRows:
    marker = read_marker(uri)
    state = state_by(marker, uri)
    if state is State.NOTHING:
        raise StoreNotFoundError(f"no feature store at {uri}: nothing is there{cut_short_note(uri)}")
    if state is State.WRITING:
        raise IncompleteStoreError(
            f"{uri} has no commit marker: its writer was stopped, or is still running; ingest the source again"
        )
    if state is State.FOREIGN or marker is None:
        refuse_stripped(uri)
        raise StoreError(_not_a_store(uri))
    if marker.get("kind") == "neighbour_graph":
        raise StoreError(f"{uri} is a neighbour graph, not a feature store; NeighbourGraph.open reads it")
    try:
        manifest = Manifest.from_json(marker, uri)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedStoreError(f"{uri}: the manifest in zarr.json is not readable: {error!r}") from error
    # Only now: the folder is a store, and no other tree, however large, is searched.
    folder_at(uri).refuse_links()
    return StoredRows(uri, manifest)


def _not_a_store(uri: str) -> str:
    parts = [name for name in ("query.zarr", "gallery.zarr") if holds(uri, name)]
    if parts:
        return f"{uri} is a folder that holds {' and '.join(parts)}; open one of these"
    if Path(uri).is_file():
        return f"{uri} is a file and no feature store; `reid-dist ingest` makes a store of it"
    return f"{uri} is not a feature store of reid-dist; `reid-dist ingest` makes one of a Zarr group with features"
