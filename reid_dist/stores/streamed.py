"""Arrays that need not fit in memory: Dask arrays, Zarr arrays and HDF5 datasets, and memory maps of other dtypes.

They are read in blocks of whole chunks, once, into a store of their own, in the memory of a few blocks.
"""

from __future__ import annotations

import math
import os
import shutil
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.temporary import temporary_folder
from reid_dist.errors import InputError
from reid_dist.stores.kept_rows import check_shape, natural_dtype
from reid_dist.stores.labels import Labels, to_numpy
from reid_dist.stores.locations import at_location, canonical_uri, remove_present
from reid_dist.stores.writer import FeatureWriter

# Smaller arrays are held in memory, which takes no more than a few blocks of a larger one would.
_HELD_BYTES = 64 << 20
_BLOCK_BYTES = 16 << 20


def is_streamed(features: Any) -> bool:
    """Whether features are read block by block: they are outside memory, must be copied, and are not small."""
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
) -> tuple[str, str | None]:
    """Write features, for which `is_streamed` is true, to a store in the workspace, block by block.

    Returns the URI of the store, and the temporary directory that it is in without a workspace: `remove_streamed`
    takes both.
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
        remove_streamed(uri, temporary)
        raise
    return uri, temporary


def origin_of(features: Any) -> str:
    """Return what rows come from, for reports."""
    module = type(features).__module__.partition(".")[0]
    return "memory map" if isinstance(features, np.memmap) else f"{module} array"


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


def remove_streamed(uri: str, temporary: str | None) -> None:
    """Remove the store that `stream` has written."""
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        remove_present(uri)
