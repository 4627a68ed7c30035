"""Layout of a feature set in a Zarr v3 group, and its manifest: what it holds, with a digest of every part.

::

    STORE/zarr.json            the group; its attribute "reid_dist" is the manifest, written last
    STORE/features             (n, dim) float32 or float16, chunks of (chunk_rows, dim), NaN where nothing was written
    STORE/pids  camids         int64 (n,)
    STORE/columns/NAME         int64 (n,)
    STORE/item_ids             int64 (n,), or text
    STORE/image_paths  pid_names  camid_names    text

    STORE/appended/ID          a group for each `append`: features from its first chunk on, and all labels

Text is a group of two arrays, ``offsets`` int64 (n + 1,) and ``utf8`` uint8, because Zarr's own text dtypes are not
yet stable.  Nothing is compressed, as embeddings hardly shrink and read several times slower; every chunk ends in a
CRC-32C, without which Zarr returns flipped bytes in silence.

The manifest is one JSON object in the attributes of the group and is written last, in one atomic replacement of the
group's metadata; a store without it is not a store.  It carries a digest of itself, so that a flipped bit in it is
found too.

No file of a complete store is ever written again but the manifest.  Rows that are appended fill chunks of the same
length: the last chunk, if it is not full, is written again with them, and the chunks after it, in a group of their own,
and so are all labels, because new texts may number the old ones anew.  The new manifest names that group and the number
of its first chunk, and the group holds the manifest before.  So an append is committed by one atomic replacement; a
process that had the store open reads on, from the files that it knows; and a worker that opens it later finds the
manifest that it was told of.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec

from reid_dist.errors import (
    DamagedStoreError,
    IncompleteStoreError,
    InputError,
    ReidDistError,
    StoreError,
    StoreNotFoundError,
)
from reid_dist.stores.digests import digest_json, encoded_blocks
from reid_dist.stores.folders import folder_at
from reid_dist.stores.kept_rows import KEPT_DTYPES, Offenders
from reid_dist.stores.locations import State, cut_short_note, read_marker, state_by
from reid_dist.stores.objects import storage_errors

CHUNK_BYTES = 16 << 20
"""Aim for a chunk of features: long enough to amortise a request, short enough to keep many in memory."""

_LABEL_CHUNK = 1 << 20


def chunk_length(row_bytes: int, n_rows: int | None, chunk_rows: int | None) -> int:
    """Rows per chunk of a set, whose number of rows may be unknown.

    A given number is kept, only never longer than the set.  Otherwise chunks are equally long: Zarr pads the last one
    to full length in storage, which is then less than a row per chunk.
    """
    if chunk_rows is not None and chunk_rows < 1:
        raise InputError(f"chunk_rows must be a positive number of rows, not {chunk_rows}")
    rows = chunk_rows or max(1, CHUNK_BYTES // row_bytes)
    if n_rows is None:
        return rows
    return -(-n_rows // -(-n_rows // rows)) if chunk_rows is None else min(rows, n_rows)


def create_array(
    group: zarr.Group,
    name: str,
    shape: tuple[int, ...],
    dtype: str | np.dtype[Any],
    rows: int,
    fill_value: float = 0,
) -> zarr.Array[Any]:
    """Create a little-endian array with checksums, in chunks of so many rows."""
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(rows, *shape[1:]),
        serializer=BytesCodec(endian="little"),
        compressors=[Crc32cCodec()],
        fill_value=fill_value,
        config={"write_empty_chunks": True},
    )


def _write_flat(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    array = create_array(group, name, values.shape, values.dtype, max(1, min(_LABEL_CHUNK, len(values))))
    if len(values):
        array[:] = values


def write_label(group: zarr.Group, name: str, values: NDArray[Any]) -> str:
    """Write a label array, int64 or ``<U``, and return its kind."""
    if values.dtype.kind != "U":
        _write_flat(group, name, values.astype("<i8", copy=False))
        return "int64"
    offsets, utf8 = np.zeros(len(values) + 1, dtype="<i8"), bytearray()
    filled = 1
    for texts in encoded_blocks(values):
        offsets[filled : filled + len(texts)] = np.fromiter(map(len, texts), dtype="<i8", count=len(texts))
        utf8 += b"".join(texts)
        filled += len(texts)
    np.cumsum(offsets, out=offsets)
    text_group = group.create_group(name)
    _write_flat(text_group, "offsets", offsets)
    _write_flat(text_group, "utf8", np.frombuffer(utf8, dtype=np.uint8))
    return "utf8"


def read_label(group: zarr.Group, name: str, kind: str) -> NDArray[Any]:
    """Read a label array as int64 or ``<U``; the caller compares its digest.

    Damaged bytes raise whatever Zarr and Unicode make of them.
    """
    if kind != "utf8":
        return np.asarray(array_in(group, name)[:]).astype(np.int64, copy=False)
    offsets = np.asarray(array_in(group, f"{name}/offsets")[:]).tolist()
    utf8 = np.asarray(array_in(group, f"{name}/utf8")[:]).tobytes()
    texts = [utf8[start:stop].decode() for start, stop in pairwise(offsets)]
    return np.array(texts, dtype=np.str_)


def array_in(group: zarr.Group, name: str) -> zarr.Array[Any]:
    """Return an array of a group; KeyError if there is none of that name."""
    node = group[name]
    if not isinstance(node, zarr.Array):
        raise KeyError(name)
    return node


def open_group(uri: str) -> zarr.Group:
    """Open the group of a store for reading; DamagedStoreError if its metadata is unreadable."""
    try:
        with storage_errors(uri):
            store = folder_at(uri).zarr_store(read_only=True)
            return zarr.open_group(store, mode="r", zarr_format=3, use_consolidated=False)
    except (MemoryError, ReidDistError):
        raise
    except Exception as error:  # Whatever damaged metadata makes Zarr raise.
        damaged = DamagedStoreError(f"{uri}: the metadata in zarr.json is unreadable ({type(error).__name__})")
        damaged.place = uri
        raise damaged from error


# ---- the manifest ----------------------------------------------------------------------------------------------------

# Names become keys inside the store, and must not lead out of it.
_NAME = re.compile(r"\w+(/\w+)*")


@dataclass(frozen=True)
class StoreKind:
    """Label in messages, kind in manifests, newest version that can be read, and advice after damage."""

    label: str
    kind: str | None
    version: int
    advice: str


FEATURE_STORE = StoreKind("feature store", None, 2, "ingest the source again")
NEIGHBOUR_GRAPH = StoreKind("neighbour graph", "neighbour_graph", 1, "save the graph again")


FEATURES = "features"
"""Array of features, in a store and in its parts."""

APPENDED = "appended"
"""Folder of the parts that were appended to a store."""

# Fields of a manifest that its entry holds under another name, or lacks in stores of earlier releases.
_NOT_IN_ALL = ("n_rows", "dim", "block_digests", "parts")


@dataclass(frozen=True)
class StorePart:
    """A part of a store: its folder, relative to the store, and the number of its first chunk of features."""

    folder: str
    first_chunk: int

    def inside(self, name: str) -> str:
        """Return the name, relative to the store, of something in the part."""
        return f"{self.folder}/{name}" if self.folder else name

    def file_of_chunk(self, index: int) -> str:
        """Return the key, relative to the store, of the file that holds a chunk, by its number in the store."""
        return self.inside(f"{FEATURES}/c/{index - self.first_chunk}/0")


FIRST_PART = (StorePart("", 0),)
"""Parts of a store to which nothing was appended, which earlier releases read as well."""


@dataclass(frozen=True)
class LabelEntry:
    """One label array: kind (``int64``, or ``utf8`` for text), number of entries, BLAKE3 of its values in hex."""

    kind: str
    length: int
    digest: str


@dataclass(frozen=True)
class Manifest:
    """What a store holds.

    Every chunk is a file; the last one may hold fewer rows than `chunk_rows`.  `chunk_digests` are BLAKE3, in hex, of
    the rows of each chunk; `content_digest` is of rows and labels, whatever their chunks.  `allow_zero`: rows of zeros
    are meant.  `notes` are changes made to the values before, one line each; `source` is where the rows came from and
    with which options, for information.  `block_digests` are those of `ContentHasher.whole_blocks`, in hex; None in
    stores of earlier releases.  `parts` are those that rows are read from, in the order of their chunks; the last one
    holds all labels.
    """

    n_rows: int
    dim: int
    dtype: str
    chunk_rows: int
    chunk_digests: tuple[str, ...]
    labels: dict[str, LabelEntry]
    allow_zero: bool
    zero_rows: Offenders
    notes: tuple[str, ...]
    content_digest: str
    source: dict[str, Any]
    block_digests: str | None = None
    parts: tuple[StorePart, ...] = FIRST_PART

    @property
    def n_chunks(self) -> int:
        """Number of chunks of features."""
        return -(-self.n_rows // self.chunk_rows)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype in which features are stored, little-endian."""
        return KEPT_DTYPES[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.dim * self.numpy_dtype.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the rows of a chunk; the last one is padded to this."""
        return self.chunk_rows * self.row_bytes

    def rows_of_chunk(self, index: int) -> range:
        """Return the rows that a chunk holds."""
        return range(index * self.chunk_rows, min((index + 1) * self.chunk_rows, self.n_rows))

    def file_of_chunk(self, index: int) -> str:
        """Return the key, relative to the store, of the file that holds a chunk of features."""
        return self.parts[bisect_right(self.parts, index, key=attrgetter("first_chunk")) - 1].file_of_chunk(index)

    @property
    def replaced_files(self) -> dict[str, int]:
        """Keys of files of chunks that a later part holds again, where one was not full, and the numbers of these."""
        return {part.file_of_chunk(later.first_chunk): later.first_chunk for part, later in pairwise(self.parts)}

    def to_json(self) -> dict[str, Any]:
        """Return the attribute of a complete store."""
        fields = asdict(self)
        shape = [fields.pop("n_rows"), fields.pop("dim")]
        # Earlier releases of this format read an entry on shards.
        entry = {"shape": shape, "shard_rows": None, **fields}
        return complete_marker(FEATURE_STORE, entry, 1 if self.parts == FIRST_PART else FEATURE_STORE.version)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], uri: str) -> Manifest:
        """Read the verified attribute of a complete store; DamagedStoreError if it is not what a writer writes.

        StoreError for the shards of an earlier release.
        """
        if entry.get("shard_rows") is not None:
            raise StoreError(
                f"{uri} keeps several chunks in one file (shards), which only earlier releases read; ingest the "
                "source again"
            )
        try:
            fields = {name: entry[name] for name in cls.__dataclass_fields__ if name not in _NOT_IN_ALL}
            fields["n_rows"], fields["dim"] = entry["shape"]
            fields["block_digests"] = entry.get("block_digests")
            parts = [StorePart(**part) for part in entry["parts"]] if "parts" in entry else FIRST_PART
            fields["parts"] = tuple(sorted(parts, key=attrgetter("first_chunk")))
            fields |= {name: tuple(entry[name]) for name in ("chunk_digests", "notes")}
            fields["labels"] = {name: LabelEntry(**label) for name, label in entry["labels"].items()}
            fields["zero_rows"] = Offenders(entry["zero_rows"]["count"], tuple(entry["zero_rows"]["first"]))
            leaving = [
                name
                for name in (*entry["labels"], *(part.folder for part in parts if part.folder))
                if not _NAME.fullmatch(name)
            ]
            if not parts or parts[0].first_chunk != 0:
                raise ValueError("it names no first part")
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedStoreError(f"{uri}: the manifest in zarr.json is not readable: {error!r}") from error
        if leaving:
            raise DamagedStoreError(
                f"{uri}: the manifest names {leaving[0]!r}, which is no part of a store; ingest the source again"
            )
        return cls(**fields)


def complete_marker(of: StoreKind, entry: Mapping[str, Any], version: int | None = None) -> dict[str, Any]:
    """Return the attribute of a complete store, with a digest of itself; of the newest version when None."""
    kind = {} if of.kind is None else {"kind": of.kind}
    written = {"state": "complete", **kind, "format_version": version or of.version, **entry}
    return {**written, "manifest_digest": digest_json(written)}


def read_complete(uri: str, of: StoreKind) -> dict[str, Any] | None:
    """Return the verified attribute of a complete store of a kind; None if something else is at a canonical URI.

    Errors: StoreNotFoundError, IncompleteStoreError, DamagedStoreError, and StoreError for a newer format.
    """
    marker = read_marker(uri)
    state = state_by(marker, uri)
    if state is State.NOTHING:
        raise StoreNotFoundError(f"no such {of.label}: {uri}{cut_short_note(uri)}")
    if state is State.WRITING:
        raise IncompleteStoreError(
            f"{uri} has no commit marker: its writer was stopped, or is still running; {of.advice}"
        )
    if marker is None or marker.get("kind") != of.kind:
        return None
    return verified_entry(marker, uri, of)


def verified_entry(marker: Mapping[str, Any], uri: str, of: StoreKind) -> dict[str, Any]:
    """Return the attribute of a complete store without the digest of itself, which it must match.

    DamagedStoreError if it does not, and StoreError for a newer format.
    """
    found = marker.get("format_version")
    if isinstance(found, int) and found > of.version:
        raise StoreError(
            f"{uri} has format version {found} and this release reads up to {of.version}; update reid-dist"
        )
    written = {key: value for key, value in marker.items() if key != "manifest_digest"}
    if marker.get("manifest_digest") != digest_json(written):
        raise DamagedStoreError(
            f"{uri} is damaged: the manifest in zarr.json does not match its own digest; {of.advice}"
        )
    return written
