"""Rows and labels that lie in memory, or in a memory-mapped file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.stores.digests import digest_label, scan
from reid_dist.stores.labels import Labels, to_numpy
from reid_dist.stores.rows import FeatureArray, Offenders, conversion_note, convert_rows, natural_dtype

_CONVERTED_BYTES = 64 << 20


@dataclass(frozen=True)
class MemoryRows:
    """The reading side of a set in memory.

    Attributes
    ----------
    features
        (n, dim) float32 or float16, C-contiguous, read-only.
    labels
        As in `reid_dist.stores.labels`.
    content_digest, zero_rows, notes, allow_zero
        As in a manifest.
    uri
        Where the arrays come from, if it is known.
    """

    features: FeatureArray
    labels: Labels
    content_digest: str
    zero_rows: Offenders
    notes: tuple[str, ...]
    allow_zero: bool
    is_stored: bool = False
    uri: str = "memory"

    @property
    def shape(self) -> tuple[int, int]:
        """(n, dim)."""
        return self.features.shape[0], self.features.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float32 or float16."""
        return self.features.dtype

    @property
    def chunk_rows(self) -> int:
        """All rows: memory has no natural chunk."""
        return len(self.features)

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the label arrays."""
        return tuple(self.labels)

    def label(self, name: str) -> NDArray[Any] | None:
        """Return a label array, or None if there is none of that name."""
        return self.labels.get(name)

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array that there is."""
        return digest_label(self.labels[name])

    def read_raw(self, start: int, stop: int) -> FeatureArray:
        """Return a view of rows."""
        return self.features[start:stop]

    def read_unverified(self, rows: NDArray[np.int64]) -> FeatureArray:
        """Return scattered rows."""
        return self.features[rows]


def as_feature_array(features: Any) -> NDArray[Any]:
    """Bring whatever a caller holds to a two-dimensional numpy array, without a copy where there is one already.

    Raises
    ------
    InputError
        If it is ragged, empty, or not two-dimensional.
    """
    try:
        array = np.asarray(to_numpy(features))
    except ValueError as error:
        raise InputError(f"features must be one (n, dim) array: {error}") from None
    check_shape(array.shape)
    return array


def check_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of features.

    Raises
    ------
    InputError
        If they are not (n, dim), or there are none.
    """
    if len(shape) != 2:
        raise InputError(f"features must be two-dimensional, (n, dim), not of shape {shape}")
    n_rows, dim = shape
    if n_rows == 0 or dim == 0:
        raise InputError(f"features are empty: shape {shape}; a set needs at least one row and one column")
    return n_rows, dim


def hold(
    features: Any, labels: Labels, *, allow_zero: bool = False, notes: Iterable[str] = (), uri: str = "memory"
) -> MemoryRows:
    """Validate features, bring them to the dtype in which they are kept, and digest them.

    Parameters
    ----------
    features
        (n, dim) in any form that `as_feature_array` takes.
    labels
        From `reid_dist.stores.labels.make_labels`.
    allow_zero
        Whether rows of zeros are meant.
    notes
        What is known of earlier conversions.
    uri
        Where they come from, for reports.

    Raises
    ------
    InputError
        If the features cannot be kept, or a row is not finite.
    """
    array = as_feature_array(features)
    target = natural_dtype(array.dtype)
    note = conversion_note(array.dtype, target)
    kept = _convert(array, target).view()
    kept.flags.writeable = False
    hasher, faults = scan(kept)
    faults.refuse_non_finite("features")
    digest = hasher.finish(kept.shape[1], target, {name: digest_label(values) for name, values in labels.items()})
    return MemoryRows(
        features=kept,
        labels=labels,
        content_digest=digest,
        zero_rows=faults.zero,
        notes=(*notes, note) if note else tuple(notes),
        allow_zero=allow_zero,
        uri=uri,
    )


def _convert(array: NDArray[Any], target: np.dtype[Any]) -> FeatureArray:
    if array.dtype == target and array.flags.c_contiguous:
        return array
    # By blocks, so that checking a large array needs little beside the result.
    kept = np.empty(array.shape, dtype=target)
    step = max(1, _CONVERTED_BYTES // (array.shape[1] * 8))
    for start in range(0, len(array), step):
        kept[start : start + step] = convert_rows(array[start : start + step], target, start)
    return kept
