"""Zarr: stores of this package, folders of them, and any other group or array of features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.stores.folders import folder_at
from reid_dist.stores.importers.file_rows import MOST_CHUNK_BYTES, chunked_rows, too_large_chunks
from reid_dist.stores.importers.source import FORMATS, ComputedRows, Format, HeldRows, RowArray, Source
from reid_dist.stores.labels import NUMBERED, given_labels
from reid_dist.stores.locations import State, at_location, refuse_stripped, state_of
from reid_dist.stores.stored import StoreReader


def _features_of_store(store: StoreReader) -> RowArray:
    """Features of a store of this package, verified as they are read."""
    shape, dtype = (store.manifest.n_rows, store.manifest.dim), store.manifest.numpy_dtype

    def read(start: int, stop: int) -> NDArray[Any]:
        return store.read(start, stop) if stop > start else np.empty((0, shape[1]), dtype)

    return ComputedRows(shape, dtype, read)


def _open_zarr(path: Path) -> Source:
    return _open_stores(str(path)) or _source_of_group(path)


def _open_stores(uri: str) -> Source | None:
    """Open a store, or a folder of two; None if it is neither."""
    if state_of(uri) in (State.COMPLETE, State.WRITING):
        return _source_of_stores(uri, {"": StoreReader.open(uri)})
    refuse_stripped(uri)
    sides = {f"{role}_": at_location(uri, f"{role}.zarr") for role in ("query", "gallery")}
    for side in sides.values():
        refuse_stripped(side)
    if all(state_of(side) in (State.COMPLETE, State.WRITING) for side in sides.values()):
        return _source_of_stores(uri, {prefix: StoreReader.open(side) for prefix, side in sides.items()})
    return None


def _source_of_stores(uri: str, stores: dict[str, StoreReader]) -> Source:
    arrays: dict[str, RowArray] = {}
    notes: dict[str, None] = {}
    vocabularies = _shared_vocabularies(stores)
    for prefix, rows in stores.items():
        arrays[f"{prefix}features"] = _features_of_store(rows)
        notes |= dict.fromkeys(rows.manifest.notes)
        for name in rows.labels:
            if not name.endswith("_names"):
                arrays[prefix + name] = HeldRows(_label_of_store(rows, name, vocabularies))
    return Source(uri, arrays, vocabularies=vocabularies, notes=tuple(notes))


def _shared_vocabularies(stores: Mapping[str, StoreReader]) -> dict[str, NDArray[Any]]:
    """Texts of identities and cameras under which all stores have equal numbers.

    One of two stores that were made together may have others: rows that are appended number its texts anew.
    """
    held = [rows.labels for rows in stores.values()]
    return {
        name: held[0][name]
        for name in NUMBERED.values()
        if all(name in each and np.array_equal(each[name], held[0][name]) for each in held)
    }


def _label_of_store(rows: StoreReader, name: str, shared: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """A label of a store: as texts where its numbers are those of texts of its own."""
    vocabulary, values = NUMBERED.get(name, ""), rows.labels[name]
    if vocabulary not in rows.labels or vocabulary in shared:
        return values
    return np.array(given_labels(values, tuple(rows.labels[vocabulary].tolist())), np.str_)


def _source_of_group(path: Path) -> Source:
    folder = folder_at(str(path))
    if any(folder.size(name) is not None for name in ("zarr.json", ".zgroup", ".zarray")):
        folder.refuse_links()
    node = zarr.open(folder.zarr_store(read_only=True), mode="r")
    arrays = {"features": node} if isinstance(node, zarr.Array) else dict(node.arrays())
    return Source.of(str(path), {name: _rows_of(array, f"{path}: {name}") for name, array in arrays.items()})


def _rows_of(array: zarr.Array[Any], what: str) -> RowArray | str:
    """Return the rows of an array of any program, or the reason why it has none."""
    if array.dtype.kind not in "fiubU" or not array.shape:
        return f"{array.dtype} of shape {array.shape}"
    if array.dtype.kind == "f" and len(array.shape) > 1 and array.nchunks_initialized < array.nchunks:
        # Of labels, a chunk of zeros is usual, and Zarr leaves it out.
        missing = array.nchunks - array.nchunks_initialized
        return (
            f"missing {missing} of its {counted(array.nchunks, 'chunk', separator='')}, which were never written "
            "(write_empty_chunks=True writes chunks of zeros)"
        )
    if math.prod(array.chunks) * array.dtype.itemsize > MOST_CHUNK_BYTES:
        return f"in {too_large_chunks(array.chunks, array.dtype)}"
    if len(array.shape) > 2 or 0 in array.shape:
        return HeldRows(array)
    return chunked_rows(
        array.shape, array.dtype, array.chunks, what, lambda: nullcontext(lambda places: np.asarray(array[places]))
    )


FORMATS.register(
    Format(
        "zarr",
        "a store, a directory of stores, or any group with features",
        "Zarr v2 and v3",
        (".zarr",),
        _open_zarr,
        _open_stores,
    )
)
