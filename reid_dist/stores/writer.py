"""Write a store, row block by row block, in the memory of about two chunks.

The writer creates the group without a commit marker, writes chunks and labels, and writes the marker, which is the
manifest, in one atomic update.  Killed anywhere before that, it leaves something that is never opened as a store and
that the next writer may replace.  Nothing is forced to disk: the damage of a power cut shows in checksums and digests.

A lock beside the store keeps other writers away.  When the writer replaces a complete store, it writes beside it and
renames at the very end, so that a failure leaves the old store as it was.  Stores that belong together are committed
together: see `reid_dist.stores.commits`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import zarr
from numpy.typing import ArrayLike, DTypeLike, NDArray

from reid_dist.errors import InputError
from reid_dist.stores.commits import StoreWriter
from reid_dist.stores.digests import ContentHasher, digest_label, digest_rows
from reid_dist.stores.kept_rows import (
    FeatureArray,
    RowFaults,
    as_feature_array,
    conversion_note,
    convert_rows,
    find_faults,
    kept_dtype,
)
from reid_dist.stores.labels import COLUMN_PREFIX, Labels, as_column, label_arguments, make_labels
from reid_dist.stores.layout import chunk_length, create_array, write_label
from reid_dist.stores.manifest import LabelEntry, Manifest
from reid_dist.stores.object_errors import is_object_uri, storage_errors
from reid_dist.stores.objects import begin, in_flight

_SCANNED_BYTES = 4 << 20


class FeatureWriter(StoreWriter):
    """Append feature rows to a new store; a context manager that commits at its end and removes all on an error.

    Parameters
    ----------
    uri
        Where to write.
    dim
        Values per row.
    n_rows
        Rows to come, if known: chunks are then cut equally long, and another number of rows is an error.
    dtype
        ``"float32"`` or ``"float16"``: how features are kept.
    chunk_rows
        Rows per chunk; about 16 MiB of features when None.
    allow_zero
        Recorded in the store: whether rows of zeros are meant.
    overwrite
        Replace a complete store once the new one is complete; not on object storage.
    notes
        Changes made to the values before, one line each.
    source
        Where the rows come from, as JSON, for information.

    Attributes
    ----------
    is_committed : bool
        Whether the store is committed, and stays after `abort`.

    Raises
    ------
    StoreExistsError
        If a complete store, another writer, or something else is there.
    InputError
        If an option or a row cannot be used.

    Examples
    --------
    >>> with FeatureWriter("gallery.zarr", dim=2048) as writer:  # doctest: +SKIP
    ...     for features, pids, camids in batches:
    ...         writer.append(features, pids=pids, camids=camids)
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dim: int,
        n_rows: int | None = None,
        dtype: DTypeLike = "float32",
        chunk_rows: int | None = None,
        allow_zero: bool = False,
        overwrite: bool = False,
        notes: Iterable[str] = (),
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self.dtype = kept_dtype(dtype)
        if dim < 1 or (n_rows is not None and n_rows < 1):
            raise InputError(f"a store needs at least one row and one column, not {n_rows} x {dim}")
        self._dim, self._expected_rows = dim, n_rows
        row_bytes = dim * self.dtype.itemsize
        self._chunk_rows = chunk_length(row_bytes, n_rows, chunk_rows)
        self._allow_zero = allow_zero
        self._notes = list(notes)
        self._source = dict(source or {})
        self._labels: Labels | None = None
        self._label_blocks: dict[str, list[ArrayLike]] = {}
        self._hasher, self._chunk_digests = ContentHasher(), list[str]()
        self._features: zarr.Array[Any] | None = None
        self._unit = np.empty((0, dim), dtype=self.dtype)
        self._filled = self._written = 0
        self._behind: deque[Future[None]] = deque()
        self.faults = RowFaults()
        super().__init__(uri, overwrite=overwrite)

    @property
    def n_rows(self) -> int:
        """Rows appended so far."""
        return self._written + self._filled

    def append(
        self,
        features: ArrayLike,
        pids: ArrayLike | None = None,
        camids: ArrayLike | None = None,
        item_ids: ArrayLike | None = None,
        *,
        columns: Mapping[str, ArrayLike] | None = None,
        image_paths: ArrayLike | None = None,
    ) -> None:
        """Append rows, with their labels unless `set_labels` gives all labels at once.

        Parameters
        ----------
        features
            (rows, dim), any number of rows.
        pids, camids, item_ids, columns, image_paths
            (rows,) as in `FeatureSet.from_arrays`; every block must give the same ones.

        Raises
        ------
        InputError
            If the block has another width or a value that cannot be kept.
        """
        block = np.asarray(features) if np.size(features) == 0 else as_feature_array(features)
        if block.ndim != 2 or block.shape[1] != self._dim:
            raise InputError(f"a block of shape {block.shape} does not fit a store of {self._dim} columns")
        given: dict[str, ArrayLike | None] = {
            "pids": pids, "camids": camids, "item_ids": item_ids, "image_paths": image_paths
        }  # fmt: skip
        given |= {COLUMN_PREFIX + name: values for name, values in (columns or {}).items()}
        blocks = {name: values for name, values in given.items() if values is not None}
        if self.n_rows and blocks.keys() != self._label_blocks.keys():
            raise InputError(
                f"this block gives {sorted(blocks) or 'no labels'}, "
                f"earlier ones {sorted(self._label_blocks) or 'none'}; give the same labels with every block"
            )
        for name, values in blocks.items():
            self._label_blocks.setdefault(name, []).append(values)
        note = conversion_note(block.dtype, self.dtype)
        if note and note not in self._notes:
            self._notes.append(note)
        self._take(block)

    def _take(self, block: NDArray[Any]) -> None:
        step = max(1, _SCANNED_BYTES // (self._dim * self.dtype.itemsize))
        start = 0
        while start < len(block):
            if self._filled == len(self._unit):
                self._grow()
            take = min(step, len(block) - start, len(self._unit) - self._filled)
            # Digests are of the bytes that are written, which a memory map might give otherwise a second time.
            rows = self._unit[self._filled : self._filled + take]
            rows[:] = convert_rows(block[start : start + take], self.dtype, self.n_rows)
            self.faults += find_faults(rows, self.n_rows)
            self._hasher.update(rows)
            self._filled += take
            start += take
            if self._filled == self._chunk_rows:
                self._flush()

    def _grow(self) -> None:
        # Grown step by step, so that a small set of unknown size takes little memory.
        grown = np.empty((min(self._chunk_rows, max(1024, 4 * len(self._unit))), self._dim), dtype=self.dtype)
        grown[: self._filled] = self._unit[: self._filled]
        self._unit = grown

    def _flush(self) -> None:
        stop = self._written + self._filled
        with storage_errors(self.uri, writing=True):
            if self._features is None:
                self._features = create_array(
                    self._group,
                    "features",
                    (self._expected_rows or self._chunk_rows, self._dim),
                    self.dtype,
                    self._chunk_rows,
                    fill_value=float("nan"),
                )
            if stop > self._features.shape[0]:
                self._features.resize((stop, self._dim))
        block = self._unit[: self._filled]
        self._chunk_digests.append(digest_rows(block))
        self._write_behind(self._features, block)
        self._written, self._filled = stop, 0

    def _write_behind(self, array: zarr.Array[Any], block: FeatureArray) -> None:
        """Write to disk at once; to S3 while the next rows are gathered, several chunks at a time."""
        if not is_object_uri(self.uri):
            self._store_rows(array, block, self._written)
            return
        # The thread that writes keeps the block.
        self._behind.append(begin(self._store_rows, array, block, self._written))
        self._unit = np.empty_like(self._unit)
        self._wait(in_flight(block.nbytes) - 1)

    def _wait(self, at_most: int) -> None:
        while len(self._behind) > at_most:
            self._behind.popleft().result()

    def _store_rows(self, array: zarr.Array[Any], block: FeatureArray, first: int) -> None:
        with storage_errors(self.uri, writing=True):
            array[first : first + len(block)] = block

    def set_labels(self, labels: Labels) -> None:
        """Give all labels at once, as `reid_dist.stores.labels.make_labels` returns them."""
        self._labels = labels

    def finish(self) -> None:
        """Write what is left, without committing; no rows can follow.

        InputError if a row is not finite, labels are missing or of another length, or rows are missing.
        """
        n_rows = self.n_rows
        if n_rows == 0 or (self._expected_rows is not None and n_rows != self._expected_rows):
            raise InputError(
                f"{n_rows} rows were given for {self.uri}, expected {self._expected_rows or 'at least one'}"
            )
        self.faults.refuse_non_finite(f"features of {self.uri}")
        if self._features is None and self._filled < self._chunk_rows:
            # A set shorter than one chunk: do not pad it to a full one.
            self._chunk_rows = self._filled
        if self._filled:
            self._flush()
        self._wait(0)
        self._unit = np.empty((0, self._dim), dtype=self.dtype)
        labels = self._labels if self._labels is not None else self._gathered_labels(n_rows)
        if "pids" not in labels:
            raise InputError(f"no pids were given for {self.uri}; every row needs an identity")
        with storage_errors(self.uri, writing=True):
            entries = {
                name: LabelEntry(write_label(self._group, name, values), len(values), digest_label(values))
                for name, values in labels.items()
            }
        digests = {name: entry.digest for name, entry in entries.items()}
        manifest = Manifest(
            n_rows=n_rows,
            dim=self._dim,
            dtype=self.dtype.name,
            chunk_rows=self._chunk_rows,
            chunk_digests=tuple(self._chunk_digests),
            labels=entries,
            allow_zero=self._allow_zero,
            zero_rows=self.faults.zero,
            notes=tuple(self._notes),
            content_digest=self._hasher.finish(self._dim, self.dtype, digests),
            source=self._source,
        )
        self._marker = manifest.to_json()

    def _gathered_labels(self, n_rows: int) -> Labels:
        whole = {
            name: np.concatenate([as_column(values, name) for values in blocks])
            for name, blocks in self._label_blocks.items()
        }
        return make_labels(n_rows, **label_arguments(whole)) if "pids" in whole else {}

    def abort(self) -> None:
        """Remove everything that was written, unless it is committed."""
        # Nothing may be written after all is removed.
        wait(self._behind)
        self._behind.clear()
        super().abort()
