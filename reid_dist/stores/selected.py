"""Rows of some cameras of a set, read from that set when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.stores.digests import digest_json, digest_label
from reid_dist.stores.featureset import FeatureSet, reopened
from reid_dist.stores.rows import Address, FeatureArray, Offenders, Rows

# Labels that have no entry per row.
_NAMES = ("pid_names", "camid_names")


@dataclass(frozen=True)
class SelectedAddress:
    """Where the rows of some cameras are read from, for processes that open them again."""

    whole: tuple[Address, str]
    cameras: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.whole[0]}, cameras {', '.join(map(str, self.cameras))}"

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        """URIs and content digests of the stores that are read."""
        address, digest = self.whole
        return ((address, digest),) if isinstance(address, str) else address.stores

    def open(self) -> Rows:
        """Rows of the set at this place."""
        return SelectedRows(reopened(*self.whole), self.cameras)


class SelectedRows(Rows):
    """The rows of a set under some cameras, in their order."""

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, whole: FeatureSet, cameras: tuple[int, ...]) -> None:
        if whole.camids is None:
            raise AssertionError("rows are selected by their cameras")
        self._whole, self._cameras = whole, cameras
        self.rows = np.flatnonzero(np.isin(whole.camids, cameras))
        self.address = SelectedAddress((whole.address, whole.content_digest), cameras)
        self.uri = str(self.address)
        self.is_stored: bool = whole.is_stored
        self.shape: tuple[int, int] = (len(self.rows), whole.dim)
        self.chunk_rows: int = whole.chunk_rows
        self.allow_zero: bool = whole.allow_zero
        # By their numbers in the whole set, as users know them; some may be of other cameras.
        self.zero_rows = Offenders(whole.n_zero_rows, whole.first_zero_rows)
        self.notes = tuple(whole.notes)
        self.labels: Mapping[str, NDArray[Any]] = _SelectedLabels(whole.lazy_labels, self.rows)
        self.content_digest: str = digest_json(
            {"kind": "reid_dist cameras 1", "of": whole.content_digest, "cameras": list(cameras)}
        )

    def __reduce__(self) -> Any:
        return SelectedRows, (self._whole, self._cameras)

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array."""
        return digest_label(self.labels[name])

    def read_raw(self, start: int, stop: int) -> FeatureArray:
        """Return rows, (stop - start, dim) float32."""
        rows = self.rows[start:stop]
        if rows[-1] - rows[0] == len(rows) - 1:
            return self._whole.read(int(rows[0]), int(rows[-1]) + 1)
        return self._whole.read_rows(rows)

    def read_rows(self, rows: NDArray[np.int64]) -> FeatureArray:
        """Return single rows, (n, dim) float32."""
        return self._whole.read_rows(self.rows[rows])


class _SelectedLabels(Mapping[str, NDArray[Any]]):
    """Labels of some rows, each read when it is used."""

    def __init__(self, whole: Mapping[str, NDArray[Any]], rows: NDArray[np.int64]) -> None:
        self._whole, self._rows = whole, rows

    def __getitem__(self, name: str) -> NDArray[Any]:
        values = self._whole[name]
        return values if name in _NAMES else values[self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole)

    def __len__(self) -> int:
        return len(self._whole)


def with_cameras(features: FeatureSet, cameras: tuple[int, ...]) -> FeatureSet:
    """Rows of a set with labels of cameras that are under some of these; the rows are not copied."""
    selected = FeatureSet(SelectedRows(features, cameras))
    # Rows of a temporary store move with it.
    selected.origin = features.origin
    return selected
