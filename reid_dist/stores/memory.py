"""Rows and labels in memory, or in a mapped file, whose rows are verified as they are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.stores.digests import digest_label, scan
from reid_dist.stores.labels import Labels, refuse_batches, to_numpy
from reid_dist.stores.row_checks import RowChecksums, is_owned, row_checksums
from reid_dist.stores.rows import FeatureArray, Rows, conversion_note, convert_rows, natural_dtype

_CONVERTED_BYTES = 64 << 20


class MemoryRows(Rows):
    """The reading side of a set in memory: features, validated, in the dtype in which they are kept, and their digest.

    `features` are (n, dim) in any form that `as_feature_array` takes; they are kept C-contiguous and read-only.
    `labels` are from `make_labels`; `notes` are earlier conversions; `uri` is where the arrays come from, for reports.
    InputError if the features cannot be kept, or a row is not finite.
    """

    is_stored = False

    def __init__(
        self, features: Any, labels: Labels, *, allow_zero: bool = False, notes: Iterable[str] = (), uri: str = "memory"
    ) -> None:
        array = as_feature_array(features)
        self.dtype = natural_dtype(array.dtype)
        note = conversion_note(array.dtype, self.dtype)
        self.features = _convert(array, self.dtype).view()
        self.features.flags.writeable = False
        self.shape: tuple[int, int] = (self.features.shape[0], self.features.shape[1])
        # Memory has no natural chunk.
        self.chunk_rows = len(self.features)
        self._checks = None if is_owned(self.features) else RowChecksums(len(self.features))
        hasher, faults = scan(self.features, self._checks)
        # A file may hold both sides.
        place, _, side = uri.partition("#")
        faults.refuse_non_finite("features" if uri == "memory" else f"{f'{side} ' if side else ''}features of {place}")
        self.labels, self.allow_zero, self.uri = labels, allow_zero, uri
        self.address = uri
        self.content_digest = hasher.finish(
            self.shape[1], self.dtype, {name: self.label_digest(name) for name in labels}
        )
        self.zero_rows = faults.zero
        self.notes = (*notes, note) if note else tuple(notes)

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array."""
        return digest_label(self.labels[name])

    def read_raw(self, start: int, stop: int) -> FeatureArray:
        """Return a view of rows; of a mapped file a copy, or DamagedStoreError if it was changed."""
        rows = self.features[start:stop]
        return rows if self._checks is None else self._verified(np.array(rows), slice(start, stop))

    def read_rows(self, rows: NDArray[np.int64]) -> FeatureArray:
        """Return single rows, copied; DamagedStoreError if a mapped file was changed."""
        found = self.features[rows]
        return found if self._checks is None else self._verified(found, rows)

    def __getstate__(self) -> dict[str, Any]:
        """In another process, all rows are in memory of its own."""
        if self._checks is None:
            return self.__dict__
        return {**self.__dict__, "features": self.read_raw(0, len(self.features)), "_checks": None}

    def _verified(self, found: FeatureArray, rows: slice | NDArray[np.int64]) -> FeatureArray:
        if self._checks is not None and not self._checks.agree(rows, row_checksums(found)):
            source = "a memory map" if self.uri == "memory" else self.uri
            raise DamagedStoreError(f"the features of {source} were changed while in use; open the file again")
        return found


def as_feature_array(features: Any) -> NDArray[Any]:
    """Bring whatever a caller holds to a two-dimensional numpy array, without a copy where there is one already."""
    refuse_batches(features, "features", 1)
    try:
        array = np.asarray(to_numpy(features))
    except ValueError as error:
        raise InputError(f"features must be one (n, dim) array: {error}") from None
    check_shape(array.shape)
    return array


def check_shape(shape: tuple[int, ...], what: str = "features") -> tuple[int, int]:
    """Return rows and columns of features; InputError if they are not (n, dim), or there are none."""
    if len(shape) != 2:
        advice = ""
        if len(shape) == 3:
            advice = (
                f"; for {shape[0]} tracklets of {shape[1]} frames, give their means (features.mean(axis=1)), or give "
                "every frame a row and a label column tracklet, and pool the rows (`reid-dist pool`, reid_dist.pool)"
            )
        raise InputError(f"{what} must be (n, dim), two-dimensional, not of shape {shape}{advice}")
    n_rows, dim = shape
    if n_rows == 0 or dim == 0:
        raise InputError(f"{what} are empty: shape {shape}; a set needs at least one row and one column")
    return n_rows, dim


def _convert(array: NDArray[Any], target: np.dtype[Any]) -> FeatureArray:
    if array.dtype == target and array.flags.c_contiguous:
        return array
    # By blocks, so that checking a large array needs little beside the result.
    kept = np.empty(array.shape, dtype=target)
    step = max(1, _CONVERTED_BYTES // (array.shape[1] * 8))
    for start in range(0, len(array), step):
        kept[start : start + step] = convert_rows(array[start : start + step], target, start)
    return kept
