"""A block of distances from another program: an array (n_query, n_gallery), mapped from a `.npy` file.

Only pieces of it are ever in memory.  Values are taken as they are; float32 and float16 are widened to float64, which
is exact.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tokenize
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.core.limits import refuse_unusable_path
from reid_dist.core.regular_files import open_regular
from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreNotFoundError
from reid_dist.stores.folders import written_whole
from reid_dist.stores.labels import to_numpy
from reid_dist.stores.locations import canonical_uri, local_path

_HASHED_BYTES = 16 << 20

# Values that a worker compares before it uses a file of that name.
_COMPARED_VALUES = 4096

_NPY_MAGIC = b"\x93NUMPY"
_ZIP_MAGIC = b"PK"


class DistanceBlock:
    """A handle on distances, lazy and immutable.

    Attributes
    ----------
    uri : str
        Absolute path of the `.npy` file; ``"memory"`` for an array.
    shape : tuple of int
        (n_query, n_gallery).
    dtype : numpy.dtype
        Of the values as they are stored.
    content_digest : str
        SHA-256 over shape, dtype and values.
    """

    def __init__(self, values: NDArray[Any], uri: str, content_digest: str | None = None) -> None:
        # A wider float would lose digits in float64, and distances that differ would be tied.
        if values.ndim != 2 or values.dtype.kind != "f" or values.dtype.itemsize > 8 or 0 in values.shape:
            raise InputError(
                f"a distance block must be a 2-D array of float16, float32 or float64 (n_query, n_gallery), found "
                f"{values.dtype} {values.shape} in {uri}"
            )
        self._held: NDArray[Any] | None = values
        self.uri = uri
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])
        self.dtype = values.dtype
        self.content_digest = content_digest or self._digest()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> DistanceBlock:
        """Map a `.npy` file; it is read once, for its digest.

        Raises
        ------
        StoreNotFoundError
            If there is no such file.
        InputError
            If it is not `.npy`, not a 2-D array of float16, float32 or float64, or holds NaN or infinity.
        """
        place = local_path(canonical_uri(path))
        return cls(_map(path), str(place))

    @classmethod
    def from_array(cls, values: ArrayLike) -> DistanceBlock:
        """Take an array (n_query, n_gallery) of floats; a torch tensor or a dask array will do.

        It is not copied, and must not be changed while the block is in use.

        Raises
        ------
        InputError
            As `open`.
        """
        try:
            array = np.asarray(to_numpy(values))
        except ValueError as error:
            raise InputError(f"a distance block must be a 2-D array of floats (n_query, n_gallery): {error}") from None
        return cls(array, "memory")

    @property
    def is_stored(self) -> bool:
        """Whether it is a file."""
        return self.uri != "memory"

    def save(self, path: str | os.PathLike[str]) -> DistanceBlock:
        """Write the block to a `.npy` file and return the stored one.

        The file appears whole; one of that name is replaced, and processes that have it mapped keep it.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        target = local_path(canonical_uri(path))
        try:
            with written_whole(target) as file:
                np.save(file, self._values, allow_pickle=False)
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror or error}") from None
        return DistanceBlock(_map(target), str(target), self.content_digest)

    def read(self, row: int, row_stop: int, column: int, column_stop: int) -> NDArray[np.float64]:
        """Return a piece as a fresh array, float64, C-contiguous; DamagedStoreError if the file was changed."""
        # A view of a mapped file would be read-only, and another type to the kernels.
        piece = np.array(self._values[row:row_stop, column:column_stop], dtype=np.float64, order="C", subok=False)
        # The digest would have refused such a file.
        if not np.isfinite(piece).all():
            raise DamagedStoreError(f"{self.uri} was changed while in use; run again")
        return piece

    def read_unverified(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return single values, (n,) float64."""
        return np.asarray(self._values[row, column], dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Return the entry of the block in a report."""
        return {
            "uri": self.uri,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "content_digest": self.content_digest,
        }

    def _digest(self) -> str:
        """Hash all values, and refuse what is no distance on the way."""
        digest = hashlib.sha256(f"distances {self.shape} {self.dtype.str}".encode())
        step = max(1, _HASHED_BYTES // (self.shape[1] * self.dtype.itemsize))
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

    @property
    def _values(self) -> NDArray[Any]:
        return _reopen(self.uri, self.content_digest, self._sample) if self._held is None else self._held

    @functools.cached_property
    def _sample(self) -> str:
        return _sample(self._values)

    def __getstate__(self) -> dict[str, Any]:
        """A file is mapped where it is read, and not wherever its handle passes."""
        if not self.is_stored:
            return self.__dict__
        return {**self.__dict__, "_sample": self._sample, "_held": None}


def _sample(values: NDArray[Any]) -> str:
    """Hash some values at even distances, to distinguish one file from another."""
    place = np.arange(0, values.size, -(-values.size // _COMPARED_VALUES))
    rows, columns = np.divmod(place, values.shape[1])
    return hashlib.sha256(f"{values.shape} {values.dtype.str}".encode() + values[rows, columns].tobytes()).hexdigest()


def _map(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Map a `.npy` file; nothing is ever unpickled."""
    where = os.fspath(path)
    refuse_unusable_path(where)
    try:
        with open(path, "rb", opener=open_regular) as file:
            magic = file.read(len(_NPY_MAGIC))
        if magic.startswith(_ZIP_MAGIC):
            raise InputError(f"{where} is an archive; a distance block is a single array in a .npy file")
        if magic != _NPY_MAGIC:
            raise InputError(f"{where} is no .npy file of distances; write the array with numpy.save")
        mapped: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no distance block {where!r}") from None
    except (InputError, StoreError):
        raise
    # A damaged header may break in any step of reading it as a Python literal.
    except (OSError, ValueError, TypeError, EOFError, OverflowError, SyntaxError, tokenize.TokenError) as error:
        raise InputError(f"{where} is no .npy file of distances: {' '.join(str(error).split())}") from None
    return mapped


@functools.lru_cache(maxsize=1)
def _reopen(uri: str, content_digest: str, sample: str) -> NDArray[Any]:
    """Map the file of a block in another process; one at a time, since a mapped file that was removed takes space.

    Only the sample is compared, not the digest; it distinguishes files that had one name at different times.
    """
    values = _map(uri)
    if values.ndim != 2 or not values.size or _sample(values) != sample:
        raise DamagedStoreError(
            f"{uri} is not the file that was opened; keep it unchanged, where every worker can read it"
        )
    return values
