"""A block of distances that somebody else computed: an array (n_query, n_gallery), mapped from a `.npy` file.

Only pieces of it are ever in memory.  Values are taken as they are; float32 and float16 are widened to float64, which
is exact.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.errors import DamagedStoreError, InputError, StoreNotFoundError

__all__ = ["DistanceBlock"]

_HASHED_BYTES = 16 << 20


class DistanceBlock:
    """A handle on distances, lazy and immutable.

    Attributes
    ----------
    uri : str
        Absolute path of the `.npy` file; ``"memory"`` for an array.
    shape : tuple of int
        (n_query, n_gallery).
    content_digest : str
        SHA-256 over shape, dtype and values.
    """

    def __init__(self, values: NDArray[Any], uri: str, content_digest: str | None = None) -> None:
        if values.ndim != 2 or values.dtype.kind != "f" or 0 in values.shape:
            raise InputError(
                f"a distance block must be a 2-D array of floats (n_query, n_gallery), found {values.dtype} "
                f"{values.shape} in {uri}"
            )
        self._values = values
        self.uri = uri
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])
        self.content_digest = content_digest or self._digest()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DistanceBlock:
        """Map a `.npy` file; it is read once, for its digest.

        Raises
        ------
        StoreNotFoundError
            If there is no such file.
        InputError
            If it is not `.npy`, not a 2-D array of floats, or holds what is no distance.
        """
        return cls(_map(path), str(Path(path).absolute()))

    @classmethod
    def from_array(cls, values: ArrayLike) -> DistanceBlock:
        """Take an array (n_query, n_gallery) of floats, or a path to one.

        Raises
        ------
        InputError
            As `open`.
        """
        return cls(np.asarray(values), "memory")

    @property
    def is_stored(self) -> bool:
        """Whether it is a file."""
        return self.uri != "memory"

    def save(self, path: str | os.PathLike[str]) -> DistanceBlock:
        """Write the block to a `.npy` file and return the stored one."""
        with Path(path).open("wb") as file:
            np.save(file, self._values, allow_pickle=False)
        return DistanceBlock(_map(path), str(Path(path).absolute()), self.content_digest)

    def read(self, row: int, row_stop: int, column: int, column_stop: int) -> NDArray[np.float64]:
        """Return a piece, float64, C-contiguous.

        Raises
        ------
        DamagedStoreError
            If it holds NaN or infinity, which the digest would have refused: the file changed.
        """
        piece = np.ascontiguousarray(self._values[row:row_stop, column:column_stop], dtype=np.float64)
        if not np.isfinite(piece).all():
            raise DamagedStoreError(f"{self.uri} was changed while in use; run again")
        return piece

    def peek(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return single values, shape (n,), float64."""
        return np.asarray(self._values[row, column], dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Return what a report says of it."""
        return {
            "uri": self.uri,
            "shape": list(self.shape),
            "dtype": self._values.dtype.name,
            "content_digest": self.content_digest,
        }

    def _digest(self) -> str:
        """Hash all values, and refuse what is no distance on the way."""
        digest = hashlib.sha256(f"distances {self.shape} {self._values.dtype.str}".encode())
        step = max(1, _HASHED_BYTES // (self.shape[1] * self._values.dtype.itemsize))
        for start in range(0, self.shape[0], step):
            rows = np.ascontiguousarray(self._values[start : start + step])
            wrong = ~np.isfinite(rows)
            if wrong.any():
                place = np.argwhere(wrong)[0]
                raise InputError(
                    f"{self.uri} holds {rows[tuple(place)]} at query {start + place[0]}, gallery row {place[1]}; "
                    "distances must be finite numbers"
                )
            digest.update(rows.tobytes())
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_stored:
            return _reopen, (self.uri, self.content_digest)
        return DistanceBlock, (self._values, self.uri, self.content_digest)


def _map(path: str | os.PathLike[str]) -> NDArray[Any]:
    try:
        loaded: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no distance block {os.fspath(path)!r}") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{os.fspath(path)} is no .npy file of distances: {error}") from None
    if not isinstance(loaded, np.ndarray):
        raise InputError(f"{os.fspath(path)} is an archive; a distance block is a single array in a .npy file")
    return loaded


@functools.lru_cache(maxsize=16)
def _reopen(uri: str, content_digest: str) -> DistanceBlock:
    return DistanceBlock(_map(uri), uri, content_digest)
