"""A block of distances or similarities from another program: an array (n_query, n_gallery), mapped from a `.npy` file.

Only pieces of it are ever in memory.  Values are taken as they are; float32 and float16 are widened to float64, which
is exact.

A file is verified as a store is (`reid_dist.stores.digests`): its rows are cut into bands, which are the chunks, and
each row into cells of some columns, which are the single rows.  The handle carries the digest of every band.  A process
verifies a band once, and compares what it reads of it afterwards with the checksums of its cells.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import tokenize
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from blake3 import blake3
from numpy.typing import ArrayLike, NDArray

from reid_dist.core.limits import refuse_unusable_path
from reid_dist.core.regular_files import open_regular
from reid_dist.errors import DamagedStoreError, InputError, ReidDistError, StoreError, StoreNotFoundError
from reid_dist.stores.digests import RowChecks, bytes_of, is_owned, row_checksums
from reid_dist.stores.folders import written_whole
from reid_dist.stores.kept_rows import to_numpy
from reid_dist.stores.locations import canonical_uri, local_path

# Bytes of a band, but for bands of one row.
_BAND_BYTES = 16 << 20
# Columns of a cell; the last one of a row may have fewer.
_CELL = 1024
# Rows of a cell that are read together for single values.
_VALUES_AT_ONCE = 4096

_NPY_MAGIC = b"\x93NUMPY"
# Names of arrays of distances in the scripts of the field.
_CUSTOMARY = re.compile(r"(?:[a-z]+_)?dist(?:ance)?s?(?:_?mat(?:rix)?)?", re.IGNORECASE)


class DistanceBlock:
    """A lazy, immutable handle on a distance matrix.

    Attributes
    ----------
    uri : str
        Absolute path of the `.npy` file; ``"memory"`` for an array.
    shape : tuple of int
        (n_query, n_gallery).
    dtype : numpy.dtype
        Type of the stored values.
    similarity : bool
        Whether larger values are nearer; the distances are then the negated values.
    content_digest : str
        SHA-256 over shape, dtype and values, and whether they are similarities.
    """

    def __init__(
        self,
        values: NDArray[Any],
        uri: str,
        digests: tuple[str, tuple[bytes, ...]] | None = None,
        *,
        similarity: bool = False,
        is_stored: bool = False,
    ) -> None:
        # A wider float would lose digits in float64, and distances that differ would be tied.
        if values.ndim != 2 or values.dtype.kind != "f" or values.dtype.itemsize > 8 or 0 in values.shape:
            raise InputError(
                f"a distance block must be a 2-D array of float16, float32 or float64 (n_query, n_gallery), found "
                f"{values.dtype} {values.shape} in {uri}"
            )
        self._held: NDArray[Any] | None = values
        self.uri, self.similarity, self.is_stored = uri, similarity, is_stored
        self.shape: tuple[int, int] = (values.shape[0], values.shape[1])
        self.dtype = values.dtype
        self.content_digest, self._bands = digests or self._digests(values)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, similarity: bool = False) -> DistanceBlock:
        """Memory-map a `.npy` file, or the matrix in another file that `ingest` reads; read it once for its digest.

        A compressed matrix is decoded into a temporary file first.

        Parameters
        ----------
        path
            A `.npy` file; or a `.mat`, `.npz` or other file with a single matrix, or with one under a common name for
            distances, such as ``distmat``.
        similarity
            Whether larger values are nearer.

        Raises
        ------
        StoreNotFoundError
            If there is no such file.
        InputError
            If it has no such array, if the array is not 2-D float16, float32 or float64, or if it holds NaN or
            infinity.
        """
        place, where = str(local_path(canonical_uri(path))), os.fspath(path)
        if _is_npy(where):
            return cls(_map(where), place, similarity=similarity, is_stored=True)
        return cls(_matrix_of(where), place, similarity=similarity)

    @classmethod
    def from_array(cls, values: ArrayLike, *, similarity: bool = False) -> DistanceBlock:
        """Wrap an array (n_query, n_gallery) of floats, a torch tensor or a Dask array.

        The array is not copied; do not change it while the block is in use.  `similarity` is as in `open`.

        Raises
        ------
        InputError
            As in `open`.
        """
        try:
            array = np.asarray(to_numpy(values))
        except ValueError as error:
            raise InputError(f"a distance block must be a 2-D array of floats (n_query, n_gallery): {error}") from None
        return cls(array, "memory", similarity=similarity)

    def save(self, path: str | os.PathLike[str]) -> DistanceBlock:
        """Write the block to a `.npy` file and return the stored one.

        The file is written atomically.  It replaces an existing file; processes that have mapped the old file keep it.

        Raises
        ------
        StoreError
            If it cannot be written.
        """
        target = local_path(canonical_uri(path))
        try:
            with written_whole(target) as file:
                header = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
                np.lib.format.write_array_header_1_0(file, header)
                for start, stop in _bands_of(self.shape, self.dtype):
                    file.write(bytes_of(self._rows(start, stop)))
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror or error}") from None
        digests = (self.content_digest, self._bands)
        return DistanceBlock(_map(target), str(target), digests, similarity=self.similarity, is_stored=True)

    def read(self, row: int, row_stop: int, column: int, column_stop: int) -> NDArray[np.float64]:
        """Return a block as a new float64, C-contiguous array; DamagedStoreError if the file was changed."""
        source = self._source
        if isinstance(source, _StoredBlock):
            # Whole cells are verified.
            first, stop = column - column % _CELL, min(self.shape[1], -(-column_stop // _CELL) * _CELL)
            found = source.take(np.arange(row, row_stop), first, stop)
            piece = found[:, column - first : column_stop - first]
        else:
            piece = source[row:row_stop, column:column_stop]
        # A view would be read-only, and another type to the kernels.
        return self._distances(np.array(piece, dtype=np.float64, order="C", subok=False))

    def read_values(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return single values, (n,) float64; DamagedStoreError if the file was changed."""
        source = self._source
        if not isinstance(source, _StoredBlock):
            return self._distances(np.asarray(source[row, column], dtype=np.float64))
        values = np.empty(len(row))
        # Cell by cell of the columns, so that the rows of a cell are read together.
        cell = column // _CELL
        order = np.lexsort((row, cell))
        for own in np.split(order, np.flatnonzero(np.diff(cell[order])) + 1) if len(order) else ():
            first = int(cell[own[0]]) * _CELL
            stop = min(first + _CELL, self.shape[1])
            for some in np.array_split(own, -(-len(own) // _VALUES_AT_ONCE)):
                rows, place = np.unique(row[some], return_inverse=True)
                values[some] = source.take(rows, first, stop)[place, column[some] - first]
        return self._distances(values)

    def __repr__(self) -> str:
        kind = "similarities" if self.similarity else "distances"
        return f"DistanceBlock: {self.shape[0]} x {self.shape[1]} {self.dtype.name} {kind} at {self.uri}"

    def describe(self) -> dict[str, Any]:
        """Return the entry of the block in a report."""
        return {
            "uri": self.uri,
            "shape": list(self.shape),
            "dtype": self.dtype.name,
            "content_digest": self.content_digest,
            **({"similarity": True} if self.similarity else {}),
        }

    def _distances(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn the sign of similarities, in place; no zero becomes negative, which would be another key."""
        return np.subtract(0.0, values, out=values) if self.similarity else values

    def _digests(self, values: NDArray[Any]) -> tuple[str, tuple[bytes, ...]]:
        """Hash all values and each band of them, and refuse what is no distance on the way."""
        kind = "similarities" if self.similarity else "distances"
        digest, bands = hashlib.sha256(f"{kind} {self.shape} {self.dtype.str}".encode()), []
        for start, stop in _bands_of(self.shape, self.dtype):
            # Copied, so that all that follows sees the same bytes of a file.
            rows = np.array(values[start:stop], order="C", subok=False)
            wrong = ~np.isfinite(rows)
            if wrong.any():
                place = np.argwhere(wrong)[0]
                raise InputError(
                    f"{self.uri} holds {rows[tuple(place)]} at query {start + place[0]}, gallery row {place[1]}; "
                    f"{kind} must be finite numbers"
                )
            digest.update(rows.tobytes())
            bands.append(blake3(bytes_of(rows)).digest())
        return digest.hexdigest(), tuple(bands)

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows as they are stored, in C order; DamagedStoreError if the file was changed."""
        source = self._source
        if isinstance(source, _StoredBlock):
            return source.take(np.arange(start, stop), 0, self.shape[1])
        return np.ascontiguousarray(source[start:stop])

    @functools.cached_property
    def _source(self) -> NDArray[Any] | _StoredBlock:
        """The array in memory, or the file as this process reads it."""
        if self._held is None:
            return _open_again(self.uri, self.shape, self.dtype, self._bands)
        return self._held if is_owned(self._held) else _StoredBlock(self.uri, self._held, self._bands)

    def __getstate__(self) -> dict[str, Any]:
        """A file is mapped where it is read, and not wherever its handle passes."""
        state = {name: value for name, value in self.__dict__.items() if name != "_source"}
        return {**state, "_held": None if self.is_stored else self._rows(0, self.shape[0])}


DistanceSource: TypeAlias = DistanceBlock | str | os.PathLike[str] | ArrayLike
"""A distance block, the path of a file that `DistanceBlock.open` takes, or an array that `from_array` takes."""


def as_distance_block(source: DistanceSource, *, similarity: bool = False) -> DistanceBlock:
    """Open a path, take an array, and return a block as it is, which must be of the kind asked for."""
    if isinstance(source, str | os.PathLike):
        return DistanceBlock.open(source, similarity=similarity)
    if not isinstance(source, DistanceBlock):
        return DistanceBlock.from_array(source, similarity=similarity)
    if similarity and not source.similarity:
        raise InputError("this DistanceBlock holds distances: make it with similarity=True, or leave similarity out")
    return source


def _bands_of(shape: tuple[int, int], dtype: np.dtype[Any]) -> list[tuple[int, int]]:
    """First row of every band, and its end."""
    step = max(1, _BAND_BYTES // (shape[1] * dtype.itemsize))
    return [(start, min(start + step, shape[0])) for start in range(0, shape[0], step)]


class _StoredBlock:
    """A mapped file, verified as it is read; several threads may read at once."""

    def __init__(self, uri: str, values: NDArray[Any], bands: tuple[bytes, ...]) -> None:
        self._uri, self._values, self._digests = uri, values, bands
        self._ranges = _bands_of(values.shape, values.dtype)
        self._n_cells = -(-values.shape[1] // _CELL)
        self._checks = RowChecks(len(values) * self._n_cells, len(bands))

    def take(self, rows: NDArray[np.int64], column: int, column_stop: int) -> NDArray[Any]:
        """Read a piece of whole cells of some rows, ascending."""
        step = self._ranges[0][1]
        for band in np.unique(rows // step).tolist():
            self._checks.ensure(band, partial(self._verify, band))
        # A slice is copied faster than listed rows.
        is_range = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
        wanted = slice(int(rows[0]), int(rows[-1]) + 1) if is_range else rows
        piece = np.array(self._values[wanted, column:column_stop], order="C", subok=False)
        checksums = _cell_checksums(piece)
        first = column // _CELL
        cells = rows[:, None] * self._n_cells + np.arange(first, first + checksums.shape[1])
        if not self._checks.agree(cells.ravel(), checksums.ravel()):
            raise _another_file(self._uri)
        return piece

    def _verify(self, band: int) -> bool:
        """Compare a band with its digest, and put the checksums of its cells."""
        start, stop = self._ranges[band]
        rows = np.array(self._values[start:stop], order="C", subok=False)
        if blake3(bytes_of(rows)).digest() != self._digests[band]:
            raise _another_file(self._uri)
        self._checks.put(start * self._n_cells, _cell_checksums(rows).ravel())
        return True


def _another_file(uri: str) -> DamagedStoreError:
    return DamagedStoreError(
        f"{uri} was changed since it was opened, or is damaged; keep it unchanged, where every worker can read it, and "
        "run again"
    )


def _cell_checksums(rows: NDArray[Any]) -> NDArray[np.uint64]:
    """Checksums of the cells of rows that begin with a cell: shape (n, number of cells), uint64."""
    whole = rows.shape[1] - rows.shape[1] % _CELL
    cells = np.ascontiguousarray(rows[:, :whole]).reshape(-1, _CELL)
    checksums = row_checksums(cells).reshape(len(rows), whole // _CELL)
    if whole == rows.shape[1]:
        return checksums
    return np.column_stack([checksums, row_checksums(np.ascontiguousarray(rows[:, whole:]))])


@contextlib.contextmanager
def _readable(where: str) -> Iterator[None]:
    """Say what a file must be that no importer reads."""
    try:
        yield
    except (ReidDistError, OSError) as error:
        raise InputError(f"{where} is no .npy file of distances; write the array with numpy.save ({error})") from None


def _matrix_of(where: str) -> NDArray[Any]:
    """The matrix of another file, mapped: the only one, or the one that is called as distances are."""
    from reid_dist.stores.importers.file_rows import mapped_rows
    from reid_dist.stores.importers.source import open_source

    with contextlib.ExitStack() as held:
        with _readable(where):
            source = held.enter_context(open_source(where))
            names = [name for name, array in source.arrays.items() if len(array.shape) == 2 and 1 not in array.shape]
            called = [name for name in names if looks_like_distances(name)]
            if len(called or names) != 1:
                found = f"the matrices {', '.join(names)}" if names else "no matrix"
                raise InputError(f"it must hold one matrix, or one with a name such as distmat, and holds {found}")
            (name,) = called or names
        return mapped_rows(source.arrays[name], f"{where}: {name}")


def looks_like_distances(name: str) -> bool:
    """Whether an array is called as distances of pairs customarily are."""
    return _CUSTOMARY.fullmatch(name) is not None


def _is_npy(where: str) -> bool:
    """Whether a file is a `.npy` file by its first bytes."""
    refuse_unusable_path(where)
    try:
        with open(where, "rb", opener=open_regular) as file:
            return file.read(len(_NPY_MAGIC)) == _NPY_MAGIC
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no distance block {where!r}") from None
    except StoreError:
        raise
    except OSError as error:
        raise InputError(f"{where} is no .npy file of distances: {' '.join(str(error).split())}") from None


def _map(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Map a `.npy` file; nothing is ever unpickled."""
    where = os.fspath(path)
    try:
        mapped: NDArray[Any] = np.lib.format.open_memmap(where, mode="r")
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no distance block {where!r}") from None
    # A damaged header may break in any step of reading it as a Python literal.
    except (OSError, ValueError, TypeError, EOFError, OverflowError, SyntaxError, tokenize.TokenError) as error:
        raise InputError(f"{where} is no .npy file of distances: {' '.join(str(error).split())}") from None
    return mapped


@functools.lru_cache(maxsize=1)
def _open_again(uri: str, shape: tuple[int, int], dtype: np.dtype[Any], bands: tuple[bytes, ...]) -> _StoredBlock:
    """Map a file in the process that reads it; one at a time, since a mapped file that was removed takes space."""
    values = _map(uri)
    if (values.shape, values.dtype) != (shape, dtype):
        raise _another_file(uri)
    return _StoredBlock(uri, values, bands)
