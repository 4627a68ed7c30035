"""Arrays that need not fit in memory: Dask arrays, Zarr arrays and HDF5 datasets, and memory maps of other dtypes.

They are read in blocks of whole chunks, once, into a store of their own, in the memory of a few blocks.
"""

from __future__ import annotations

import math
import os
import shutil
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.temporary import temporary_folder
from reid_dist.errors import InputError
from reid_dist.stores.labels import Labels, to_numpy
from reid_dist.stores.locations import State, at_location, canonical_uri, remove, state_of
from reid_dist.stores.memory import check_shape
from reid_dist.stores.rows import natural_dtype
from reid_dist.stores.writer import FeatureWriter

# Smaller arrays are held in memory, which takes no more than a few blocks of a larger one would.
_HELD_BYTES = 64 << 20
_BLOCK_BYTES = 16 << 20


class StreamedStore:
    """A store that holds rows of an array for as long as a feature set uses it.

    Attributes
    ----------
    uri
        Where it lies.
    origin
        What the rows come from, for reports.
    """

    def __init__(self, uri: str, origin: str, temporary: str | None) -> None:
        self.uri, self.origin = uri, origin
        self._temporary = temporary

    def remove_with(self, owner: object) -> None:
        """Remove the store when its owner is no longer used, or the process ends."""
        weakref.finalize(owner, _remove, self.uri, self._temporary)


def is_streamed(features: Any) -> bool:
    """Whether features are read block by block: they lie outside memory, must be copied, and are not small.

    Raises
    ------
    InputError
        For a Dask array whose number of rows is not known.
    """
    shape, dtype = getattr(features, "shape", None), getattr(features, "dtype", None)
    if not isinstance(shape, tuple) or not isinstance(dtype, np.dtype) or len(shape) != 2:
        return False
    if isinstance(features, np.ndarray):
        # What is mapped as it is kept stays mapped.
        kept = dtype.kind in "fiub" and dtype == natural_dtype(dtype) and features.flags.c_contiguous
        if kept or not isinstance(features, np.memmap):
            return False
    elif not hasattr(features, "chunks"):
        return False
    if any(isinstance(size, float) for size in shape):
        raise InputError("features have chunks of unknown size; call their compute_chunk_sizes() first")
    return math.prod(shape) * dtype.itemsize > _HELD_BYTES


def stream(
    features: Any, labels: Labels, *, allow_zero: bool, workspace: str | os.PathLike[str] | None
) -> StreamedStore:
    """Write features to a store, block by block.

    Parameters
    ----------
    features
        (n, dim), for which `is_streamed` is true.
    labels
        From `reid_dist.stores.labels.make_labels`.
    allow_zero
        As in `FeatureSet.from_arrays`.
    workspace
        Directory or URI that the store is written in; None for a temporary directory.

    Raises
    ------
    InputError
        If a row is not finite, or a value cannot be kept.
    StoreError
        If the store cannot be written.
    """
    n_rows, dim = check_shape(features.shape)
    temporary = temporary_folder() if workspace is None else None
    uri = at_location(canonical_uri(temporary or str(workspace)), f"arrays-{uuid.uuid4().hex[:16]}.zarr")
    try:
        with FeatureWriter(
            uri, dim=dim, n_rows=n_rows, dtype=natural_dtype(features.dtype), allow_zero=allow_zero
        ) as writer:
            for block in _blocks(features, n_rows, dim):
                writer.append(block)
            writer.set_labels(labels)
    except BaseException:
        _remove(uri, temporary)
        raise
    module = type(features).__module__.partition(".")[0]
    kind = "memory map" if isinstance(features, np.memmap) else f"{module} array"
    return StreamedStore(writer.uri, kind, temporary)


def _blocks(features: Any, n_rows: int, dim: int) -> Iterator[NDArray[Any]]:
    """Consecutive rows, whole chunks at a time, some 16 MiB each or one chunk."""
    most = max(1, _BLOCK_BYTES // (dim * features.dtype.itemsize))
    start = 0
    for stop in _chunk_ends(features, n_rows, most):
        block = features[start:stop]
        yield np.asarray(to_numpy(block))
        start = stop


def _chunk_ends(features: Any, n_rows: int, most: int) -> Iterator[int]:
    """Rows at which blocks end: at ends of chunks, at most so many rows after the last one where chunks allow it."""
    chunks = getattr(features, "chunks", None)
    first = chunks[0] if chunks else 1
    # Dask lists the rows of every chunk, the others have one number for all.
    rows = first if isinstance(first, tuple) else None
    if rows is None:
        step = max(1, most // int(first)) * int(first)
        yield from range(step, n_rows, step)
        yield n_rows
        return
    begin = end = 0
    for each in rows:
        if end > begin and end + each - begin > most:
            yield end
            begin = end
        end += each
    yield end


def _remove(uri: str, temporary: str | None) -> None:
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    elif state_of(uri) is not State.NOTHING:
        remove(uri)
