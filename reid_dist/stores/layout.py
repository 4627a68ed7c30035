"""Layout of a feature set in a Zarr v3 group.

::

    STORE/zarr.json            the group; its attribute "reid_dist" is the manifest, written last
    STORE/features             (n, dim) float32 or float16, chunks of (chunk_rows, dim), NaN where nothing was written
    STORE/pids  camids         int64 (n,)
    STORE/columns/NAME         int64 (n,)
    STORE/item_ids             int64 (n,), or text
    STORE/image_paths  pid_names  camid_names    text

Text is a group of two arrays, ``offsets`` int64 (n + 1,) and ``utf8`` uint8, because Zarr's own text dtypes are not
yet stable.  Nothing is compressed, as embeddings hardly shrink and read several times slower; every chunk ends in a
CRC-32C, without which Zarr returns flipped bytes in silence.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec

from reid_dist.errors import DamagedStoreError, InputError, ReidDistError
from reid_dist.stores.digests import encoded_blocks
from reid_dist.stores.folders import folder_at
from reid_dist.stores.object_errors import storage_errors

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
