"""Rows and labels of a store, read and verified; and what all verified readers have in common.

A chunk is a file of its rows and a checksum, and is read as such: Zarr gives the same bytes through an event loop, a
copy and a checksum that is weaker than the digest compared here.  Every chunk is compared with its digest in the
manifest when it is read: every row that leaves this module is the row that was written, even when another store is
written to the same place between two reads.
`reid_dist.stores.digests` says how that holds for single rows.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from reid_dist.core.formatting import short_digests
from reid_dist.errors import DamagedStoreError, ReidDistError, StoreError
from reid_dist.stores.digests import RowChecks, bytes_of, digest_label, row_checksums
from reid_dist.stores.folders import folder_at, read_fully
from reid_dist.stores.kept_rows import FeatureArray
from reid_dist.stores.labels import LazyLabels
from reid_dist.stores.layout import (
    FEATURE_STORE,
    FEATURES,
    FIRST_PART,
    NEIGHBOUR_GRAPH,
    Manifest,
    StoreKind,
    array_in,
    open_group,
    read_complete,
    read_label,
    verified_entry,
)
from reid_dist.stores.locations import (
    BEFORE,
    at_location,
    canonical_uri,
    holds,
    read_marker,
    read_twice,
    refuse_stripped,
)
from reid_dist.stores.objects import storage_errors

if TYPE_CHECKING:
    from typing import Self

Read = TypeVar("Read")

# What the crc32c codec appends to a chunk.
_CHECKSUM_BYTES = 4
# A chunk is called damaged after so many reads: what is wrong once may pass, and a run reads many.
_READS = 4
# Rows that are verified at once: few enough for the cache of a core.
_PIECE_BYTES = 1 << 18


@dataclass(frozen=True)
class Damage:
    """One damaged part of a store: array or rows, what is wrong, file relative to the store, and chunk if it is one."""

    array: str
    what: str
    file: str = ""
    chunk: int | None = None

    def __str__(self) -> str:
        chunk = "" if self.chunk is None else f" chunk {self.chunk}"
        return f"{self.array}{chunk}{self.file and f' ({self.file})'}: {self.what}"


class VerifiedReader:
    """The reading side of one complete store, with the verified attribute of its group; for several threads at once.

    All that leaves it has been compared with a digest in the attribute.
    """

    kind: ClassVar[StoreKind]

    def __init__(self, uri: str, entry: Mapping[str, Any]) -> None:
        self.uri, self.entry = uri, entry
        self._group = open_group(uri)

    @classmethod
    def open(cls, location: str | os.PathLike[str]) -> Self:
        """Open a complete store for reading; nothing but its manifest and metadata is read.

        Errors: as `read_complete`; StoreError for something else, and DamagedStoreError if its metadata is damaged.
        """
        uri = canonical_uri(location)
        return read_twice(uri, lambda: cls._open(uri))

    @classmethod
    def _open(cls, uri: str) -> Self:
        entry = read_complete(uri, cls.kind)
        if entry is None:
            raise StoreError(_another(uri, cls.kind))
        # Only now: the folder is a store, and no other tree, however large, is searched.
        folder_at(uri).refuse_links(but_to_files=True)
        return cls(uri, entry)

    def examine(
        self,
        name: str,
        read: Callable[[], Read],
        is_written: Callable[[Read], bool],
        file: str = "",
        wrong: str = "its values are not those of the manifest, or a chunk is missing",
    ) -> Read | Damage:
        """Read by Zarr, or return what is wrong: nothing can be read, or `is_written` is false, which `wrong` words."""

        def attempt() -> Read | Damage:
            try:
                with storage_errors(self.uri):
                    found = read()
                if is_written(found):
                    return found
            except (MemoryError, ReidDistError):
                raise
            except Exception as error:  # Damaged bytes make Zarr and Unicode fail in many ways.
                return Damage(name, f"unreadable ({_cause(error)})", file)
            return Damage(name, wrong, file)

        return read_twice(self.uri, attempt, lambda found: isinstance(found, Damage))

    def verified(self, found: Read | Damage) -> Read:
        """Return what was read; DamagedStoreError for damage, with a note if the store was replaced meanwhile."""
        if not isinstance(found, Damage):
            return found
        current = None
        with contextlib.suppress(ReidDistError):
            current = (read_marker(self.uri) or {}).get("content_digest")
        if current != self.entry["content_digest"]:
            error = DamagedStoreError(f"{self.uri} was changed while in use, found at {found}; run again")
        else:
            error = DamagedStoreError(f"{self.uri} is damaged: {found}; {self.kind.advice}")
        error.place = self.uri
        raise error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.uri, self.entry)


class StoreReader(VerifiedReader):
    """The reading side of one complete feature store."""

    kind = FEATURE_STORE

    def __init__(self, uri: str, entry: Mapping[str, Any]) -> None:
        self.manifest = manifest = Manifest.from_json(entry, uri)
        super().__init__(uri, entry)
        self.chunk_rows = manifest.chunk_rows
        self._folder = folder_at(uri)
        self._checks = RowChecks(manifest.n_rows, manifest.n_chunks)
        self.labels = LazyLabels(manifest.labels, lambda name: self.verified(self.examine_label(name)))
        self._last = manifest.parts[-1]
        # What was written before the last part is part of an array that nobody reads as a whole.
        shape = manifest.n_rows - self._last.first_chunk * manifest.chunk_rows, manifest.dim
        expected, array = (
            (shape, manifest.numpy_dtype, (manifest.chunk_rows, manifest.dim)),
            self._last.inside(FEATURES),
        )
        found = self.examine(
            "features",
            lambda: array_in(self._group, array),
            lambda array: (array.shape, array.dtype, array.chunks) == expected,
            f"{array}/zarr.json",
            "metadata differs from the manifest",
        )
        self.verified(found)

    @classmethod
    def of_content(cls, uri: str, content_digest: str) -> StoreReader:
        """Open the store at a canonical URI as it was when it had a content digest, if rows were only appended since.

        DamagedStoreError if it was changed otherwise, or files of that time have been removed; others as `open`.
        """
        current = found = cls.open(uri)
        while found.manifest.content_digest != content_digest:
            before = cls._before(uri, found.manifest)
            # Earlier ones have fewer rows: those that refer to each other in a circle were not written by an append.
            if before is None or before["shape"][0] >= found.manifest.n_rows:
                now, then = short_digests(current.manifest.content_digest, content_digest)
                raise DamagedStoreError(
                    f"{uri} was changed while in use; run again",
                    details=(f"content digest: {now}", f"when it was opened: {then}"),
                )
            found = cls(uri, before)
        return found

    @classmethod
    def _before(cls, uri: str, manifest: Manifest) -> dict[str, Any] | None:
        """Manifest attribute from before the last append; None if there is none."""
        if manifest.parts == FIRST_PART:
            return None
        part = at_location(uri, manifest.parts[-1].folder)
        marker = (read_marker(part) or {}).get(BEFORE)
        return None if marker is None else verified_entry(marker, part, cls.kind)

    def read(self, start: int, stop: int) -> FeatureArray:
        """Return rows, (stop - start, dim) C-contiguous in the stored dtype; the range is not empty.

        DamagedStoreError names the first chunk that is missing or not what was written.
        """
        first, last = start // self.chunk_rows, (stop - 1) // self.chunk_rows
        begin, end = first * self.chunk_rows, self.manifest.rows_of_chunk(last).stop
        rows = np.empty((end - begin, self.manifest.dim), self.manifest.numpy_dtype)

        def fetch(chunk: int) -> Damage | None:
            held = self.manifest.rows_of_chunk(chunk)
            return self._read_chunk(chunk, rows[held.start - begin : held.stop - begin])

        for damage in self._folder.map(fetch, range(first, last + 1), self.manifest.chunk_bytes):
            self.verified(damage)
        return rows if (begin, end) == (start, stop) else rows[start - begin : stop - begin].copy()

    def read_rows(self, rows: NDArray[np.int64]) -> FeatureArray:
        """Return single rows, ascending, shape (n,): (n, dim) in the stored dtype; see `reid_dist.stores.digests`.

        DamagedStoreError names the first chunk that is missing or not what was written.
        """
        found = np.empty((len(rows), self.manifest.dim), self.manifest.numpy_dtype)
        chunks, starts = np.unique(rows // self.chunk_rows, return_index=True)
        pieces = np.split(np.arange(len(rows)), starts[1:]) if len(rows) else []
        left = list(zip(chunks.tolist(), pieces, strict=True))

        def fetch(piece: tuple[int, NDArray[np.int64]]) -> bool:
            """Read the rows of one chunk; False if another thread is verifying it."""
            chunk, place = piece
            part = self._rows_of_chunk(chunk, rows[place])
            if part is not None:
                found[place[0] : place[-1] + 1] = part
            return part is not None

        while left:
            done = list(self._folder.map(fetch, left, self.manifest.chunk_bytes))
            left = [piece for piece, is_done in zip(left, done, strict=True) if not is_done]
            if left:
                self._checks.wait(left[0][0])
        return found

    def _rows_of_chunk(self, chunk: int, rows: NDArray[np.int64]) -> FeatureArray | None:
        """Read single rows of one chunk, verified; None if another thread is verifying it."""
        first = chunk * self.chunk_rows
        if not self._checks.knows(chunk):
            return self._checks.verify(chunk, lambda: self._verified_rows(chunk, rows - first))
        manifest = self.manifest
        n_bytes = manifest.chunk_bytes + _CHECKSUM_BYTES
        held = self._folder.gather(manifest.file_of_chunk(chunk), rows - first, manifest.row_bytes, n_bytes)
        part = None if held is None else cast("FeatureArray", held.view(manifest.numpy_dtype))
        if part is not None and self._checks.agree(rows, row_checksums(part)):
            return part
        # Read whole, it is what was written, or the damage is named.
        return self.read(first, manifest.rows_of_chunk(chunk).stop)[rows - first]

    def _verified_rows(self, chunk: int, inside: NDArray[np.int64]) -> FeatureArray:
        """Verify a chunk, put the checksums of all of its rows, and return some of them, all from the same bytes."""
        manifest, first = self.manifest, chunk * self.chunk_rows
        found = np.empty((len(inside), manifest.dim), manifest.numpy_dtype)
        buffer = np.empty((max(1, _PIECE_BYTES // manifest.row_bytes), manifest.dim), manifest.numpy_dtype)

        def take(start: int, piece: FeatureArray) -> None:
            self._checks.put(first + start, row_checksums(piece))
            low, high = np.searchsorted(inside, [start, start + len(piece)])
            found[low:high] = piece[inside[low:high] - start]

        self.verified(self._read_chunk(chunk, buffer, take))
        return found

    def _read_chunk(
        self, chunk: int, buffer: FeatureArray, take: Callable[[int, FeatureArray], None] | None = None
    ) -> Damage | None:
        """Read the rows of a chunk, a buffer of (rows, dim) full at a time, and return what is wrong with them.

        `take` gets every piece, and the number of its first row in the chunk.
        """
        file, what = self.manifest.file_of_chunk(chunk), ""
        for _ in range(_READS):
            what = self._fault_of_file(chunk, file, buffer, take)
            if not what:
                return None
        return Damage("features", what, file, chunk)

    def _fault_of_file(
        self, chunk: int, file: str, buffer: FeatureArray, take: Callable[[int, FeatureArray], None] | None
    ) -> str:
        manifest = self.manifest
        n_rows, hasher = len(manifest.rows_of_chunk(chunk)), blake3()
        try:
            with storage_errors(self.uri), self._folder.open(file) as opened:
                for start in range(0, n_rows, len(buffer)):
                    piece = buffer[: n_rows - start]
                    if not read_fully(opened, bytes_of(piece)):
                        return f"cut short: {self._folder.size(file) or 0} bytes in it"
                    hasher.update(bytes_of(piece))
                    if take is not None:
                        take(start, piece)
        except StoreError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            return "missing"
        except OSError as error:
            return f"unreadable ({error.strerror or type(error).__name__})"
        if hasher.hexdigest() == manifest.chunk_digests[chunk]:
            return ""
        return "its rows do not match their digest"

    def examine_chunks(self) -> Iterator[FeatureArray | Damage]:
        """Read and verify all chunks in their order, several at a time where each takes a while to begin.

        Each is (rows, dim) in the stored dtype, or what is wrong.
        """
        manifest = self.manifest

        def examine(chunk: int) -> FeatureArray | Damage:
            rows = np.empty((len(manifest.rows_of_chunk(chunk)), manifest.dim), manifest.numpy_dtype)
            return self._read_chunk(chunk, rows) or rows

        return self._folder.map(examine, range(manifest.n_chunks), manifest.chunk_bytes)

    def examine_label(self, name: str) -> NDArray[Any] | Damage:
        """Read and verify one label array; KeyError if there is none of that name."""
        entry, place = self.manifest.labels[name], self._last.inside(name)
        return self.examine(
            name,
            lambda: read_label(self._group, place, entry.kind),
            lambda values: len(values) == entry.length and digest_label(values) == entry.digest,
            place,
        )


def _cause(error: Exception) -> str:
    """Cause of a failed read, in words for users: messages of the libraries may print the bytes."""
    if "checksum" in str(error):
        return "its bytes do not match their checksum"
    return "a file of it is missing" if isinstance(error, FileNotFoundError | KeyError) else type(error).__name__


def _another(uri: str, kind: StoreKind) -> str:
    """Say that something else than a store of a kind is at a URI."""
    if kind is NEIGHBOUR_GRAPH:
        return f"{uri} is no neighbour graph; NeighbourGraph.save writes one"
    refuse_stripped(uri)
    if (read_marker(uri) or {}).get("kind") == NEIGHBOUR_GRAPH.kind:
        return f"{uri} is a neighbour graph, not a feature store; NeighbourGraph.open reads it"
    parts = [name for name in ("query.zarr", "gallery.zarr") if holds(uri, name)]
    if parts:
        return f"{uri} is a directory that holds {' and '.join(parts)}; open one of these"
    if Path(uri).is_file():
        return f"{uri} is a file, not a feature store; `reid-dist ingest` makes a store of it"
    return f"{uri} is not a feature store of reid-dist; `reid-dist ingest` makes one of a Zarr group with features"
