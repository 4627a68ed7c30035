"""The one handle through which the package reads features and labels, and its kinds but for fused sets."""

from __future__ import annotations

import functools
import os
import threading
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.stores.digests import ContentHasher, RowChecksums, digest_json, is_owned, row_checksums, scan
from reid_dist.stores.kept_rows import (
    FeatureArray,
    Offenders,
    RowFaults,
    as_feature_array,
    conversion_note,
    find_faults,
    kept_array,
    natural_dtype,
)
from reid_dist.stores.labels import LabelledSet, Labels, as_column, as_whole_numbers, labels_of_rows, make_labels
from reid_dist.stores.stored import StoreReader
from reid_dist.stores.writer import FeatureWriter, is_streamed, stream

if TYPE_CHECKING:
    from reid_dist.stores.importers.source import Frame

__all__ = ["FeatureSet", "Progress", "ranges_with", "read_scattered"]

Progress = Callable[[int, int, str], None]
"""Called with rows done, rows in all, and what is being worked on."""

Int64 = NDArray[np.int64]

# Whole chunks are read together up to so many bytes; one chunk that is longer is read as it is.
_READ_BYTES = 16 << 20


class Facts(NamedTuple):
    """What is known of a set without its rows: attributes of `FeatureSet`."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    chunk_rows: int
    allow_zero: bool
    notes: tuple[str, ...]


class LeftOutRows(NamedTuple):
    """Why rows of a set were left out: notes, and the number of rows by reason."""

    notes: tuple[str, ...]
    n_rows: tuple[tuple[str, int], ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows by reason."""
        return dict(self.n_rows)


class FeatureSet(LabelledSet, ABC):
    """Features and labels of n items: a lazy, immutable handle on stores or on arrays.

    Create one with `FeatureSet.open` or `FeatureSet.from_arrays`; select and join rows with `take`, `filter` and
    `concat`.  A stored set pickles to URIs and content digests and is reopened once per process at first use, so a
    scheduler that only passes it on need not see the stores.  A set in memory pickles by value.  Several threads may
    read at once.

    Attributes
    ----------
    uri : str
        Absolute path of the store; ``"memory"`` for arrays.
    is_stored : bool
        Whether all rows are in stores.
    n_rows, dim : int
        Shape of the features.
    dtype : numpy.dtype
        Type of the stored features, float32 or float16.  `read` always returns float32.
    chunk_rows : int
        Most efficient number of rows per read, starting at multiples of it.
    content_digest : str
        Hex digest of rows and labels; it does not depend on chunks and is the same for equal arrays and stores.
    allow_zero : bool
        Whether rows of zeros are allowed.
    """

    is_stored: bool

    if TYPE_CHECKING:

        @property
        def _facts(self) -> Facts: ...

    @staticmethod
    def open(uri: str | os.PathLike[str]) -> FeatureSet:
        """Open a complete store; only its manifest is read.

        Parameters
        ----------
        uri
            Path, ``file://`` URI, or ``s3://BUCKET/KEY`` with the credentials of the environment.

        Raises
        ------
        StoreNotFoundError
            If there is no store.
        IncompleteStoreError
            If it has no commit marker.
        StoreError
            If it is not a store of reid-dist, or has a newer format.
        DamagedStoreError
            If its manifest is damaged.
        """
        reader = StoreReader.open(uri)
        return StoredSet(reader.uri, reader.manifest.content_digest, reader)

    @staticmethod
    def from_arrays(
        features: ArrayLike,
        pids: ArrayLike,
        camids: ArrayLike | None = None,
        item_ids: ArrayLike | None = None,
        *,
        allow_zero: bool = False,
        columns: Mapping[str, ArrayLike] | None = None,
        image_paths: ArrayLike | None = None,
        workspace: str | os.PathLike[str] | None = None,
    ) -> FeatureSet:
        """Create a set from arrays, checked and digested at once; float32 and float16 in memory are not copied.

        Parameters
        ----------
        features
            (n, dim) float32 or float16; other floats and integers become float32.  Torch tensors, memory maps, Dask
            arrays, Zarr arrays and HDF5 datasets also work.  The last three, and memory maps that must be converted,
            may be larger than memory: above 64 MiB, they are read chunk by chunk into a store.
        pids
            (n,) identities, integers or text; see `reid_dist.stores.labels` for how text is numbered.  -1 marks junk.
        camids
            (n,) cameras, integers or text.  -1 is an unknown camera, which equals no camera, not even another unknown
            one.
        item_ids
            (n,) integers or text that identify the items.
        allow_zero
            Accept rows of zeros.  They are always counted; without this option, cosine refuses them.
        columns
            Further (n,) integer labels by name.
        image_paths
            (n,) text.
        workspace
            Directory or URI for that store, visible to all workers; None for a temporary directory.  The store is
            removed when the set is no longer used; call `save` to keep the rows.

        Raises
        ------
        InputError
            If features or labels cannot be used; the message names the first offending rows.
        """
        given: Any = features
        if is_streamed(given):
            labels = make_labels(given.shape[0], pids, camids, item_ids, columns, image_paths)
            uri, remove = stream(given, labels, allow_zero=allow_zero, workspace=workspace)
            reader = StoreReader.open(uri)
            module = type(given).__module__.partition(".")[0]
            origin = "memory map" if isinstance(given, np.memmap) else f"{module} array"
            streamed = StoredSet(uri, reader.manifest.content_digest, reader, origin)
            weakref.finalize(streamed, remove)
            return streamed
        array = as_feature_array(features)
        labels = make_labels(len(array), pids, camids, item_ids, columns, image_paths)
        return MemorySet(array, labels, allow_zero=allow_zero)

    @staticmethod
    def from_frame(
        frame: Frame,
        features: str | Sequence[str] | None = None,
        pid: str | None = None,
        camid: str | None = None,
        item_id: str | None = None,
        image_path: str | None = None,
        *,
        columns: Mapping[str, str] | Sequence[str] = (),
        allow_zero: bool = False,
    ) -> FeatureSet:
        """Create a set from a data frame; needs pyarrow (``pip install 'reid-dist[parquet]'``).

        Columns that you do not name are recognised by common names, as in `ingest`: ``embedding``, ``pid`` or
        ``label``, ``camid`` or ``camera``, ``item_id``, ``path``, and others.  Columns that mark the side of a row,
        such as ``is_query``, are ignored; select the rows of the frame yourself.

        Parameters
        ----------
        frame
            A pandas or polars data frame, an Arrow table, or any other object with the Arrow stream interface.
        features
            A column of lists or arrays of equal length, the common prefix of numbered columns (``"f"`` for f0, f1, …),
            or several columns.
        pid, camid, item_id, image_path
            Columns of the labels.
        columns
            Columns of further integer labels, or a mapping from names in the set to columns.
        allow_zero
            As in `from_arrays`.

        Raises
        ------
        InputError
            If a column does not exist, values are missing, lists differ in length, or as in `from_arrays`.

        Examples
        --------
        >>> import pandas as pd
        >>> from reid_dist import FeatureSet
        >>> frame = pd.DataFrame({"emb": [[1.0, 0.0], [0.6, 0.8]], "person": ["anna", "bob"], "cam": [1, 2]})
        >>> gallery = FeatureSet.from_frame(frame, features="emb", pid="person")
        >>> gallery.pid_names, gallery.camids.tolist()
        (('anna', 'bob'), [1, 2])
        """
        # Few runs have data frames.
        from reid_dist.stores.importers.frames import arrays_of_frame

        labels = {"pids": pid, "camids": camid, "item_ids": item_id, "image_paths": image_path}
        return FeatureSet.from_arrays(**arrays_of_frame(frame, features, labels, columns), allow_zero=allow_zero)

    def take(self, rows: ArrayLike) -> FeatureSet:
        """Select rows by number, in the given order, without copying them.

        Rows are read and verified in place, from the store of this set, by workers as well.  Workers get the row
        numbers: one bit for each row of this set if they ascend, 8 bytes for each row taken otherwise.  Rows in
        ascending order are as fast to read as in this set; rows in any other order need random access to the store.

        The content digest equals that of a set created directly from these rows and labels, so equal sets share results
        and workspaces.  It is computed at first use, for instance by `evaluate`, which then reads all rows of the new
        set once.

        Parameters
        ----------
        rows
            (m,) row numbers from 0, in any order; a row may occur twice.

        Raises
        ------
        InputError
            If a row does not exist, or no row is given.

        Examples
        --------
        >>> import numpy as np
        >>> from reid_dist import FeatureSet
        >>> gallery = FeatureSet.from_arrays(np.eye(4, dtype=np.float32), pids=[7, 7, 9, -1], camids=[1, 2, 1, 3])
        >>> gallery.take([2, 0]).pids.tolist()
        [9, 7]
        """
        numbers = as_whole_numbers(as_column(rows, "rows"), "rows") if np.size(rows) else np.empty(0, np.int64)
        outside = np.flatnonzero((numbers < 0) | (numbers >= self.n_rows))
        if len(outside):
            raise InputError(f"row {numbers[outside[0]]} is not one of the {self.n_rows} rows of {self.uri}")
        if not len(numbers):
            raise InputError(f"no row of {self.uri} is taken; a set needs at least one")
        return self._rows_at(numbers)

    def filter(self, mask: ArrayLike) -> FeatureSet:
        """Select the rows for which a mask is true, without copying them.

        Everything else is as in `take`.

        Parameters
        ----------
        mask
            (n_rows,) bool.

        Raises
        ------
        InputError
            If the mask is not a bool array with one entry per row, or is false everywhere.

        Examples
        --------
        >>> import numpy as np
        >>> from reid_dist import FeatureSet
        >>> gallery = FeatureSet.from_arrays(np.eye(4, dtype=np.float32), pids=[7, 7, 9, -1], camids=[1, 2, 1, 3])
        >>> gallery.filter(gallery.pids != -1).n_rows
        3
        >>> gallery.filter((gallery.camids == 1) & (gallery.pids > 7)).read(0, 1)
        array([[0., 0., 1., 0.]], dtype=float32)
        """
        kept = np.asarray(mask)
        if kept.dtype != np.bool_ or kept.shape != (self.n_rows,):
            raise InputError(
                f"a mask must be {self.n_rows} true or false values, one per row of {self.uri}, not {kept.dtype} of "
                f"shape {kept.shape}"
            )
        return self.take(np.flatnonzero(kept))

    @staticmethod
    def concat(sets: Iterable[FeatureSet]) -> FeatureSet:
        """Concatenate several sets without copying rows.

        Identities and cameras are matched like those of query and gallery: if a set has names, digits in them are read
        as numbers.  Float16 sets are widened to float32 if any set is float32, which is exact.  Everything else is as
        in `take`.

        Parameters
        ----------
        sets
            At least one set; all must have the same dimension and the same kinds of labels.

        Raises
        ------
        InputError
            If there is no set, or dimensions or kinds of labels differ.

        Examples
        --------
        >>> import numpy as np
        >>> from reid_dist import FeatureSet
        >>> day = FeatureSet.from_arrays(np.eye(2, dtype=np.float32), pids=["anna", "bob"])
        >>> night = FeatureSet.from_arrays(np.ones((1, 2), np.float32), pids=["bob"])
        >>> both = FeatureSet.concat([day, night])
        >>> both.pids.tolist(), both.pid_names
        ([1, 2, 2], ('anna', 'bob'))
        """
        joined = tuple(sets)
        if not joined:
            raise InputError("there is no set to concatenate; give at least one")
        first = joined[0]
        for other in joined[1:]:
            if other.dim != first.dim:
                raise InputError(f"{first.uri} has {first.dim} features and {other.uri} {other.dim}; give equally many")
        return first if len(joined) == 1 else RowsView(joined)

    @cached_property
    def n_rows(self) -> int:
        """Number of rows."""
        return self._facts.shape[0]

    @property
    def dim(self) -> int:
        """Features per row."""
        return self._facts.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the stored features."""
        return self._facts.dtype

    @property
    def chunk_rows(self) -> int:
        """Most efficient number of rows per read."""
        return self._facts.chunk_rows

    @property
    def allow_zero(self) -> bool:
        """Whether rows of zeros are allowed."""
        return self._facts.allow_zero

    @property
    def n_zero_rows(self) -> int:
        """Number of rows of zeros."""
        return self._zero_rows.count

    @property
    def first_zero_rows(self) -> tuple[int, ...]:
        """Row numbers of the first rows of zeros, ascending."""
        return self._zero_rows.first

    @property
    def notes(self) -> list[str]:
        """Changes already made to the values, one line each."""
        return list(self._facts.notes)

    def read(self, start: int, stop: int) -> NDArray[np.float32]:
        """Return rows as float32.

        Parameters
        ----------
        start, stop
            Range of rows, ``0 <= start <= stop <= n_rows``.

        Returns
        -------
        numpy.ndarray
            (stop - start, dim) float32, C-contiguous; a view where features are in memory as float32.

        Raises
        ------
        InputError
            If the range is not within the set.
        DamagedStoreError
            If a chunk is missing or not what was written.
        """
        return self._read_kept(start, stop).astype(np.float32, copy=False)

    def read_rows(self, rows: Int64) -> NDArray[np.float32]:
        """Return single rows as float32.

        The first read from a chunk reads and verifies the whole chunk, once per process; later rows are read
        individually.

        Parameters
        ----------
        rows
            (n,) int64 row numbers, ascending.

        Returns
        -------
        numpy.ndarray
            (n, dim) float32, C-contiguous.

        Raises
        ------
        DamagedStoreError
            If a chunk is missing or not what was written.
        """
        return self._read_rows(rows).astype(np.float32, copy=False)

    def save(
        self,
        uri: str | os.PathLike[str],
        *,
        chunk_rows: int | None = None,
        dtype: DTypeLike | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> FeatureSet:
        """Write the set to a store, in bounded memory, and return the stored set.

        Parameters
        ----------
        uri
            Where to write.
        chunk_rows
            Rows per chunk; about 16 MiB of features when None.
        dtype
            ``"float32"`` or ``"float16"``; None keeps the type, and then the content digest stays the same.
        overwrite
            Replace an existing complete store; not on object storage.
        progress
            Called after every block.

        Raises
        ------
        StoreExistsError
            If a complete store, or anything else, exists there.
        InputError
            If values overflow in float16.
        """
        with FeatureWriter(
            uri,
            dim=self.dim,
            n_rows=self.n_rows,
            dtype=self.dtype if dtype is None else dtype,
            chunk_rows=chunk_rows,
            allow_zero=self.allow_zero,
            overwrite=overwrite,
            notes=self.notes,
            source={"uri": self.uri, "content_digest": self.content_digest},
        ) as writer:
            step = rows_read_at_once(self)
            for start in range(0, self.n_rows, step):
                stop = min(start + step, self.n_rows)
                writer.append(self._read_kept(start, stop))
                if progress is not None:
                    progress(stop, self.n_rows, writer.uri)
            writer.set_labels(self.labels)
        return FeatureSet.open(writer.uri)

    def describe(self) -> dict[str, Any]:
        """Return the entry of an input in a report: uri, shape, dtype, content digest, digest of the labels alone.

        If the labels are stored elsewhere, as in fused sets, the entry also has their uri.
        """
        return {
            "uri": self._shown,
            "shape": [self.n_rows, self.dim],
            "dtype": self.dtype.name,
            "content_digest": self.content_digest,
            "labels_digest": self.labels_digest,
        }

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"FeatureSet: {self.n_rows} x {self.dim} {self.dtype.name} at {self.uri}"

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Let Dask name results after the content."""
        return ("FeatureSet", self.content_digest)

    # ---- what a kind of set defines ----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _zero_rows(self) -> Offenders:
        """Rows of zeros."""

    @property
    @abstractmethod
    def _stores(self) -> tuple[StoredSet, ...]:
        """Stores that rows and labels are read from."""

    @abstractmethod
    def _read(self, start: int, stop: int) -> FeatureArray:
        """Return rows of a range that is not empty, (stop - start, dim) C-contiguous, in the dtype of the set."""

    @abstractmethod
    def _read_rows(self, rows: Int64) -> FeatureArray:
        """Return single rows by their numbers, ascending, (n, dim) in the dtype of the set."""

    def _rows_at(self, rows: Int64) -> RowsView:
        return RowsView((self,), rows)

    def _refuse_non_finite(self, allowed: NDArray[np.bool_] | None = None) -> None:
        """Raise InputError if one of the rows that are allowed, (n,), is not finite; stores hold none."""

    def _read_kept(self, start: int, stop: int) -> FeatureArray:
        """Return rows in the dtype in which they are kept; otherwise as `read`."""
        if not 0 <= start <= stop <= self.n_rows:
            raise InputError(f"rows {start}:{stop} are not within the {self.n_rows} rows of {self.uri}")
        return np.empty((0, self.dim), dtype=self.dtype) if start == stop else self._read(start, stop)

    def _by_reference(self, *arguments: Any) -> tuple[Any, ...]:
        """Return what pickles the set: arguments that make it again without a look at its stores."""
        return (reopened, (type(self), *arguments)) if self.is_stored else (type(self), arguments)


@functools.lru_cache(maxsize=64)
def reopened(kind: type[FeatureSet], *arguments: Any) -> FeatureSet:
    """Make a pickled set, once per process: a task that carries a set costs no more than a task that carries a path.

    A store that changes afterwards is still noticed, because every chunk is verified when it is read.
    """
    return kind(*arguments)


class MemorySet(FeatureSet):
    """Rows and labels in memory, or in a mapped file, whose rows are verified as they are read.

    `features` are (n, dim) in any form that `as_feature_array` takes; they are kept C-contiguous and read-only.
    `labels` are from `make_labels`; `notes` are earlier conversions; `uri` is where the arrays come from, for reports.
    InputError if the features cannot be kept, or a row is not finite.  `finite` is False where rows are left out before
    use: `_refuse_non_finite` is then called for the others.
    """

    is_stored = False
    uri: str
    content_digest: str
    _facts: Facts
    _labels: Labels

    def __init__(
        self,
        features: Any,
        labels: Labels,
        *,
        allow_zero: bool = False,
        notes: Iterable[str] = (),
        uri: str = "memory",
        finite: bool = True,
    ) -> None:
        array = as_feature_array(features)
        dtype = natural_dtype(array.dtype)
        note = conversion_note(array.dtype, dtype)
        self._features = kept_array(array, dtype).view()
        self._features.flags.writeable = False
        self._checks = None if is_owned(self._features) else RowChecksums(len(self._features))
        hasher, self._faults = scan(self._features, self._checks)
        n_rows, dim = self._features.shape
        self.uri, self._labels = uri, labels
        if finite:
            self._refuse_non_finite()
        # Memory has no natural chunk.
        self._facts = Facts((n_rows, dim), dtype, n_rows, allow_zero, (*notes, note) if note else tuple(notes))
        self.content_digest = hasher.finish(dim, dtype, {name: self._label_digest(name) for name in labels})

    @property
    def _zero_rows(self) -> Offenders:
        return self._faults.zero

    @property
    def _stores(self) -> tuple[StoredSet, ...]:
        return ()

    def _refuse_non_finite(self, allowed: NDArray[np.bool_] | None = None) -> None:
        faults = self._faults
        if allowed is not None and (faults.nan or faults.infinite):
            faults, step = RowFaults(), rows_read_at_once(self)
            for start in range(0, self.n_rows, step):
                here = slice(start, start + step)
                # Finite rows stand in for the others.
                faults += find_faults(np.where(allowed[here, np.newaxis], self._features[here], 1), start)
        # A file may hold both sides.
        place, _, side = self.uri.partition("#")
        faults.refuse_non_finite(
            "features" if place == "memory" else f"{f'{side} ' if side else ''}features of {place}"
        )

    def _read(self, start: int, stop: int) -> FeatureArray:
        rows = self._features[start:stop]
        return rows if self._checks is None else self._verified(np.array(rows), slice(start, stop))

    def _read_rows(self, rows: Int64) -> FeatureArray:
        found = self._features[rows]
        return found if self._checks is None else self._verified(found, rows)

    def _verified(self, found: FeatureArray, rows: slice | Int64) -> FeatureArray:
        if self._checks is not None and not self._checks.agree(rows, row_checksums(found)):
            source = "a memory map" if self.uri == "memory" else self.uri
            raise DamagedStoreError(f"the features of {source} were changed while in use; open the file again")
        return found

    def __getstate__(self) -> dict[str, Any]:
        # In another process, all rows are in memory of its own.
        return {**self.__dict__, "_features": self._read(0, self.n_rows), "_checks": None}


# Of several threads that use a set at once, one opens it: what it has verified is known to all.
_OPENING = threading.Lock()


class StoredSet(FeatureSet):
    """The set of one store, opened when it is used; `origin` is where the rows of a temporary store come from."""

    is_stored = True
    uri: str
    content_digest: str

    def __init__(self, uri: str, content_digest: str, reader: StoreReader | None = None, origin: str = "") -> None:
        self.uri, self.content_digest, self.origin = uri, content_digest, origin
        self._opened = reader

    @property
    def _reader(self) -> StoreReader:
        if self._opened is not None:
            return self._opened
        with _OPENING:
            if self._opened is None:
                self._opened = StoreReader.of_content(self.uri, self.content_digest)
            return self._opened

    @cached_property
    def _facts(self) -> Facts:
        of = self._reader.manifest
        return Facts((of.n_rows, of.dim), of.numpy_dtype.newbyteorder("="), of.chunk_rows, of.allow_zero, of.notes)

    @cached_property
    def _labels(self) -> Mapping[str, NDArray[Any]]:
        return self._reader.labels

    def _label_digest(self, name: str) -> str:
        """Return the digest of a label array from the manifest: the array itself is not read."""
        return self._reader.manifest.labels[name].digest

    @property
    def _shown(self) -> str:
        return self.origin or self.uri

    @property
    def _zero_rows(self) -> Offenders:
        return self._reader.manifest.zero_rows

    @property
    def _stores(self) -> tuple[StoredSet, ...]:
        return (self,)

    def _read(self, start: int, stop: int) -> FeatureArray:
        return self._reader.read(start, stop)

    def _read_rows(self, rows: Int64) -> FeatureArray:
        return self._reader.read_rows(rows)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._by_reference(self.uri, self.content_digest)


class RowsView(FeatureSet):
    """Rows of other sets, read from these: all of them, one set after the other, or those of some numbers among them.

    `rows` are these numbers, or what `_packed` has made of them.  With `keeps_numbers`, identities and cameras keep the
    numbers that they have in the first set.  `left_out` says why rows of one set are not there.
    """

    is_made_of_sets = True

    def __init__(
        self,
        sets: tuple[FeatureSet, ...],
        rows: Int64 | bytes | None = None,
        content_digest: str | None = None,
        keeps_numbers: bool = False,
        left_out: LeftOutRows | None = None,
    ) -> None:
        self._sets, self._given, self._keeps_numbers = sets, rows, keeps_numbers
        self._left_out = left_out
        self.is_stored = all(each.is_stored for each in sets)
        if content_digest is not None:
            self.content_digest = content_digest

    @cached_property
    def _rows(self) -> Int64 | None:
        return _unpacked(self._given) if isinstance(self._given, bytes) else self._given

    @cached_property
    def _edges(self) -> list[int]:
        """Number of the first row of every set, and of all rows."""
        return [0, *accumulate(each.n_rows for each in self._sets)]

    @cached_property
    def uri(self) -> str:
        """Which rows it has."""
        place = " and ".join(each._shown for each in self._sets)
        return f"rows of {place}" if self._rows is None else f"{self.n_rows} of {self._edges[-1]} rows of {place}"

    @cached_property
    def _facts(self) -> Facts:
        halves = all(each.dtype.itemsize == 2 for each in self._sets)
        return Facts(
            (self._edges[-1] if self._rows is None else len(self._rows), self._sets[0].dim),
            np.dtype(np.float16 if halves else np.float32),
            max(each.chunk_rows for each in self._sets),
            any(each.allow_zero for each in self._sets),
            tuple(dict.fromkeys([note for each in self._sets for note in each.notes] + self._own_notes)),
        )

    @property
    def _own_notes(self) -> list[str]:
        return [] if self._left_out is None else [*self._left_out.notes]

    def describe(self) -> dict[str, Any]:
        """Return the entry of an input in a report; of rows that were left out, with the place of the whole set."""
        own = super().describe()
        if self._left_out is None:
            return own
        (whole,) = self._sets
        left_out = {"rows_before": whole.n_rows, **self._left_out.counts}
        return {**whole.describe(), **own, "uri": whole._shown, "left_out": left_out}

    @cached_property
    def _labels(self) -> Mapping[str, NDArray[Any]]:
        return labels_of_rows(self._sets, self._rows, keeps_numbers=self._keeps_numbers)

    @cached_property
    def content_digest(self) -> str:
        """Hex digest of rows and labels, for which all rows are read."""
        return self._scanned[0]

    @cached_property
    def _scanned(self) -> tuple[str, Offenders]:
        """Content digest, and rows of zeros."""
        hasher, zeros, step = ContentHasher(), Offenders(), rows_read_at_once(self)
        for start in range(0, self.n_rows, step):
            block = np.ascontiguousarray(self._read(start, min(start + step, self.n_rows)))
            hasher.update(block)
            zeros += find_faults(block, start).zero
        return hasher.finish(self.dim, self.dtype, {name: self._label_digest(name) for name in self._labels}), zeros

    @property
    def _zero_rows(self) -> Offenders:
        of_sets = [each._zero_rows for each in self._sets]
        if any(zeros.count > len(zeros.first) for zeros in of_sets):
            return self._scanned[1]
        zeros = np.array([first + row for first, of in zip(self._edges, of_sets, strict=False) for row in of.first])
        return Offenders.of(zeros if self._rows is None else np.flatnonzero(np.isin(self._rows, zeros)))

    @property
    def _stores(self) -> tuple[StoredSet, ...]:
        return tuple(dict.fromkeys(store for each in self._sets for store in each._stores))

    def _rows_at(self, rows: Int64) -> RowsView:
        return RowsView(self._sets, rows if self._rows is None else self._rows[rows])

    def _read(self, start: int, stop: int) -> FeatureArray:
        return self._range(start, stop) if self._rows is None else self._single(self._rows[start:stop])

    def _read_rows(self, rows: Int64) -> FeatureArray:
        return self._single(rows if self._rows is None else self._rows[rows])

    def _single(self, rows: Int64) -> FeatureArray:
        """Read rows by their numbers in all sets, in any order."""
        steps = np.diff(rows)
        if len(rows) and (steps == 1).all():
            return self._range(int(rows[0]), int(rows[-1]) + 1)
        if (steps <= 0).any():
            distinct, place = np.unique(rows, return_inverse=True)
            return self._single(distinct)[place]
        ends = np.searchsorted(rows, self._edges)
        return self._joined(
            each._read_rows(rows[low:high] - first)
            for each, first, (low, high) in zip(self._sets, self._edges, pairwise(ends), strict=False)
            if high > low
        )

    def _range(self, start: int, stop: int) -> FeatureArray:
        return self._joined(
            each._read(max(start, first) - first, min(stop, end) - first)
            for each, (first, end) in zip(self._sets, pairwise(self._edges), strict=True)
            if start < end and first < stop
        )

    def _joined(self, parts: Iterable[FeatureArray]) -> FeatureArray:
        found = list(parts)
        if len(found) == 1:
            return found[0].astype(self.dtype, copy=False)
        return np.concatenate(found or [np.empty((0, self.dim), self.dtype)], dtype=self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        rows = self._given if self._given is None or isinstance(self._given, bytes) else _packed(self._given)
        return self._by_reference(self._sets, rows, self.content_digest, self._keeps_numbers, self._left_out)


def _packed(rows: Int64) -> bytes:
    """Row numbers in few bytes: a bit for each row of the set where they ascend."""
    if (np.diff(rows) > 0).all():
        mask = np.zeros(int(rows[-1]) + 1, np.bool_)
        mask[rows] = True
        return b"mask" + zlib.compress(np.packbits(mask).tobytes(), 1)
    return b"rows" + zlib.compress(rows.astype("<i8").tobytes(), 1)


def _unpacked(packed: bytes) -> Int64:
    content = zlib.decompress(packed[4:])
    if packed.startswith(b"mask"):
        return np.flatnonzero(np.unpackbits(np.frombuffer(content, np.uint8)))
    return np.frombuffer(content, "<i8").astype(np.int64)


def without_rows(
    features: FeatureSet, mask: NDArray[np.bool_], notes: tuple[str, ...], counts: Mapping[str, int]
) -> FeatureSet:
    """The set without the rows for which a mask is true, (n_rows,); reports show the place of the whole set.

    Reports have the `notes`, and for each reason the number of rows in `counts`.
    """
    rows = None if not mask.any() else np.flatnonzero(~mask)
    return RowsView((features,), rows, left_out=LeftOutRows(notes, tuple(counts.items())))


def with_cameras(features: FeatureSet, cameras: tuple[int, ...]) -> FeatureSet:
    """Rows of a set with labels of cameras that are under some of these, which keep their numbers.

    The digest is of the set and the cameras: it does not cost a read of all rows.
    """
    if features.camids is None:
        raise AssertionError("rows are selected by their cameras")
    digest = digest_json({"kind": "reid_dist cameras 1", "of": features.content_digest, "cameras": list(cameras)})
    return RowsView((features,), np.flatnonzero(np.isin(features.camids, cameras)), digest, keeps_numbers=True)


def stores_of(features: FeatureSet) -> tuple[StoredSet, ...]:
    """Stores that the rows and labels of a set are read from, each with its `uri`, `content_digest` and `origin`."""
    return features._stores


def read_kept(features: FeatureSet, start: int, stop: int) -> FeatureArray:
    """Return rows of a set in the dtype in which they are kept; otherwise as `FeatureSet.read`."""
    return features._read_kept(start, stop)


def rows_read_at_once(features: FeatureSet) -> int:
    """Rows of the ranges of a set that are cheap to read: whole chunks where it is stored."""
    row_bytes = features.dim * features.dtype.itemsize
    unit = features.chunk_rows if features.is_stored else 1
    return unit * max(1, _READ_BYTES // (unit * row_bytes))


def ranges_with(features: FeatureSet, rows: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut a set into ranges that are cheap to read, and return start and stop of those that hold some of the rows.

    Row numbers are in any order; ranges are ascending.  Each is cut to the first and the last of its rows, or to their
    chunks where the set is stored.
    """
    distinct = np.unique(rows)
    _, begin = np.unique(distinct // rows_read_at_once(features), return_index=True)
    if not len(begin):
        return []
    unit = features.chunk_rows if features.is_stored else 1
    first, last = distinct[begin], distinct[np.append(begin[1:], len(distinct)) - 1]
    starts, stops = first // unit * unit, np.minimum((last // unit + 1) * unit, features.n_rows)
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def read_scattered(features: FeatureSet, rows: NDArray[np.int64]) -> Iterator[FeatureArray]:
    """Read scattered rows, row numbers ascending; yield blocks (some, dim) in the dtype in which they are kept."""
    for start, stop in ranges_with(features, rows):
        low, high = np.searchsorted(rows, [start, stop])
        yield features._read_kept(start, stop)[rows[low:high] - start]
