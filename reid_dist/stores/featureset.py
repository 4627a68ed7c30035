"""The one handle through which the package reads features and labels."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.stores.labelled import LabelledSet
from reid_dist.stores.labels import Labels, make_labels
from reid_dist.stores.locations import canonical_uri
from reid_dist.stores.memory import MemoryRows, as_feature_array
from reid_dist.stores.rows import Address, FeatureArray, Rows
from reid_dist.stores.stored import open_stored
from reid_dist.stores.streamed import is_streamed, origin_of, remove_streamed, stream
from reid_dist.stores.writer import FeatureWriter

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FeatureSet", "Progress", "ranges_with", "read_scattered"]

Progress = Callable[[int, int, str], None]
"""Called with rows done, rows in all, and what is being worked on."""

_COPY_BYTES = 16 << 20
# Whole chunks are read together up to so many bytes; one chunk that is longer is read as it is.
_READ_BYTES = 16 << 20


class FeatureSet(LabelledSet):
    """Features and labels of n items: a lazy, immutable handle on a store or on arrays.

    Make one with `FeatureSet.open` or `FeatureSet.from_arrays`.  A stored set pickles to its URI and content digest and
    is reopened once per process, at first use: a scheduler that only passes it on need not see the store.
    A set in memory pickles by value.  Several threads may read at once.

    Attributes
    ----------
    uri : str
        Absolute path of the store; ``"memory"`` for arrays.
    is_stored : bool
        Whether it is a store.
    n_rows, dim : int
        Shape of the features.
    dtype : numpy.dtype
        Float32 or float16: how features are kept.  `read` always gives float32.
    chunk_rows : int
        Rows that are cheapest to read together, starting at its multiples.
    content_digest : str
        Hex digest of rows and labels; independent of chunks, and equal for equal arrays and stores.
    allow_zero : bool
        Whether rows of zeros are meant.
    """

    uri: str
    address: Address
    is_stored: bool
    n_rows: int
    dim: int
    content_digest: str

    # Where rows of a temporary store come from; empty for all other sets.
    origin: str = ""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._labels = rows, rows.labels
        self.uri, self.address = rows.uri, rows.address
        self.is_stored = rows.is_stored
        self.n_rows, self.dim = rows.shape
        self.dtype = rows.dtype
        self.chunk_rows = rows.chunk_rows
        self.content_digest = rows.content_digest
        self.allow_zero = rows.allow_zero

    @classmethod
    def open(cls, uri: str | os.PathLike[str]) -> Self:
        """Open a complete store; nothing but its manifest is read.

        Parameters
        ----------
        uri
            Path, ``file://`` URI, or ``s3://BUCKET/KEY`` with the credentials of the environment.

        Raises
        ------
        StoreNotFoundError
            If nothing is there.
        IncompleteStoreError
            If it has no commit marker.
        StoreError
            If it is not a store of reid-dist, or of a newer format.
        DamagedStoreError
            If its manifest is damaged.
        """
        return cls(open_stored(canonical_uri(uri)))

    @classmethod
    def from_arrays(
        cls,
        features: ArrayLike,
        pids: ArrayLike,
        camids: ArrayLike | None = None,
        item_ids: ArrayLike | None = None,
        *,
        allow_zero: bool = False,
        columns: Mapping[str, ArrayLike] | None = None,
        image_paths: ArrayLike | None = None,
        workspace: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Make a set of arrays, checked and digested now; float32 and float16 in memory are not copied.

        Parameters
        ----------
        features
            (n, dim) float32 or float16; other floats and whole numbers become float32.  Also torch tensors, memory
            maps, Dask arrays, Zarr arrays and HDF5 datasets.  Of these last three, and of memory maps that must be
            converted, more than 64 MiB are read chunk by chunk into a store: they may be larger than memory.
        pids
            (n,) identities, whole numbers or text; see `reid_dist.stores.labels` for how text is numbered.  -1 is junk.
        camids
            (n,) cameras, likewise.  -1 is an unknown one, which is equal to no camera, not even to another unknown one.
        item_ids
            (n,) whole numbers or text that name the items.
        allow_zero
            Accept rows of zeros.  They are always counted, and cosine refuses them without this.
        columns
            Further (n,) whole-number labels by name.
        image_paths
            (n,) text.
        workspace
            Directory or URI for that store, seen by all workers; None for a temporary directory.  The store is removed
            when the set is no longer used; `save` keeps it.

        Raises
        ------
        InputError
            If features or labels cannot be used; the message names the first offending rows.
        """
        given: Any = features
        if is_streamed(given):
            labels = make_labels(given.shape[0], pids, camids, item_ids, columns, image_paths)
            uri, temporary = stream(given, labels, allow_zero=allow_zero, workspace=workspace)
            streamed = cls(open_stored(uri))
            streamed.origin = origin_of(given)
            weakref.finalize(streamed, remove_streamed, uri, temporary)
            return streamed
        array = as_feature_array(features)
        labels = make_labels(len(array), pids, camids, item_ids, columns, image_paths)
        return cls.from_labels(array, labels, allow_zero=allow_zero)

    @classmethod
    def from_labels(cls, features: ArrayLike, labels: Labels, *, allow_zero: bool = False) -> Self:
        """Make a set of features and labels that `reid_dist.stores.labels.make_labels` has validated."""
        return cls(MemoryRows(features, labels, allow_zero=allow_zero))

    @property
    def stores(self) -> tuple[tuple[str, str], ...]:
        """URIs and content digests of the stores that a stored set reads."""
        return ((self.address, self.content_digest),) if isinstance(self.address, str) else self.address.stores

    @property
    def lazy_labels(self) -> Mapping[str, NDArray[Any]]:
        """Label arrays by name, each read when it is used."""
        return self._labels

    def label_digest(self, name: str) -> str:
        """Return the digest of a label array."""
        return self._rows.label_digest(name)

    @property
    def n_zero_rows(self) -> int:
        """Number of rows of zeros."""
        return self._rows.zero_rows.count

    @property
    def first_zero_rows(self) -> tuple[int, ...]:
        """The first rows of zeros, ascending."""
        return self._rows.zero_rows.first

    @property
    def notes(self) -> list[str]:
        """Changes made to the values before, one line each."""
        return list(self._rows.notes)

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
        return self.read_raw(start, stop).astype(np.float32, copy=False)

    def read_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return single rows as float32.

        The first row that is read of a chunk has the whole chunk read and verified, once per process; later rows of it
        are read singly.

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
        return self._rows.read_rows(rows).astype(np.float32, copy=False)

    def read_raw(self, start: int, stop: int) -> FeatureArray:
        """Return rows in the dtype in which they are kept; otherwise as `read`."""
        if not 0 <= start <= stop <= self.n_rows:
            raise InputError(f"rows {start}:{stop} are not within the {self.n_rows} rows of {self.uri}")
        if start == stop:
            return np.empty((0, self.dim), dtype=self.dtype)
        return self._rows.read_raw(start, stop)

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
            Where to.
        chunk_rows
            Rows per chunk; about 16 MiB of features when None.
        dtype
            ``"float32"`` or ``"float16"``; as it is when None, and then the content digest stays the same.
        overwrite
            Replace a complete store that is there; not on object storage.
        progress
            Called after every block.

        Raises
        ------
        StoreExistsError
            If a complete store, or something else, is there.
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
            step = self.chunk_rows if self.is_stored else max(1, _COPY_BYTES // (self.dim * self.dtype.itemsize))
            for start in range(0, self.n_rows, step):
                stop = min(start + step, self.n_rows)
                writer.append(self.read_raw(start, stop))
                if progress is not None:
                    progress(stop, self.n_rows, writer.uri)
            writer.set_labels(self.labels)
        return FeatureSet.open(writer.uri)

    def describe(self) -> dict[str, Any]:
        """Return the entry of an input in a report: uri, shape, dtype, content digest, digest of the labels alone.

        Where the labels are elsewhere, as those of fused sets, it has their uri as well.
        """
        elsewhere = {} if self._rows.labels_uri is None else {"labels_uri": self._rows.labels_uri}
        return {
            "uri": self.origin or self.uri,
            "shape": [self.n_rows, self.dim],
            "dtype": self.dtype.name,
            "content_digest": self.content_digest,
            "labels_digest": self.labels_digest,
            **elsewhere,
        }

    def __len__(self) -> int:
        return self.n_rows

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Open a set that was sent here; of all others, everything is there."""
            if name not in _OF_ROWS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            FeatureSet.__init__(self, _open_again(self.address, self.content_digest))
            return self.__dict__[name]

    def __repr__(self) -> str:
        shape = f"{self.n_rows} x {self.dim} {self.dtype.name}"
        return f"<FeatureSet {shape} at {self.uri}, content {self.content_digest[:12]}>"

    def __dask_tokenize__(self) -> tuple[str, str]:
        """Let Dask name results after the content."""
        return (type(self).__qualname__, self.content_digest)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_stored:
            return reopened, (self.address, self.content_digest)
        return FeatureSet, (self._rows,)


# Attributes of a set that are known once it is open.
_OF_ROWS = frozenset({"_rows", "_labels", "n_rows", "dim", "dtype", "chunk_rows", "allow_zero"})


@functools.lru_cache(maxsize=64)
def reopened(address: Address, content_digest: str) -> FeatureSet:
    """Make a pickled set, once per process: a task that carries a set costs no more than a task that carries a path.

    A store that changes afterwards is still noticed, because every chunk is verified when it is read.
    """
    sent = FeatureSet.__new__(FeatureSet)
    sent.uri, sent.address, sent.content_digest, sent.is_stored = str(address), address, content_digest, True
    return sent


def _open_again(address: Address, content_digest: str) -> Rows:
    found = open_stored(address) if isinstance(address, str) else address.open()
    if found.content_digest != content_digest:
        raise DamagedStoreError(
            f"{address} was changed while in use: its content digest is {found.content_digest} and was "
            f"{content_digest}; run again"
        )
    return found


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
        yield features.read_raw(start, stop)[rows[low:high] - start]
