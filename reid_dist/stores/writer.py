"""Write a store, row block by row block, in the memory of about two chunks.

The writer creates the group without a commit marker, writes chunks and labels, and writes the marker, which is the
manifest, in one atomic update.  Killed anywhere before that, it leaves something that is never opened as a store and
that the next writer may replace.  Nothing is forced to disk: the damage of a power cut shows in checksums and digests.

A lock beside the store keeps other writers away.  When the writer replaces a complete store, it writes beside it and
renames at the very end, so that a failure leaves the old store as it was.

The commit is the last step, in which stores that belong together become visible together.  Query and gallery of one
model belong together: a new query beside an old gallery is two whole stores, and an evaluation of them a wrong number.
All old stores are therefore taken out before the first new one becomes visible.  Old stores are removed at the very
end, which may take long.

Arrays that need not fit in memory (Dask arrays, Zarr arrays and HDF5 datasets, and memory maps of other dtypes) are
read in blocks of whole chunks, once, into a store of their own.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import uuid
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from functools import partial
from itertools import accumulate, chain, pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import ArrayLike, DTypeLike, NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.temporary import temporary_folder
from reid_dist.errors import InputError, StoreError
from reid_dist.stores.digests import ContentHasher, digest_label, digest_rows
from reid_dist.stores.folders import folder_at
from reid_dist.stores.kept_rows import (
    FeatureArray,
    Offenders,
    RowFaults,
    as_feature_array,
    check_shape,
    conversion_note,
    convert_rows,
    find_faults,
    kept_dtype,
    natural_dtype,
    to_numpy,
)
from reid_dist.stores.labels import COLUMN_PREFIX, Labels, as_column, label_arguments, make_labels
from reid_dist.stores.layout import (
    FEATURES,
    FIRST_PART,
    LabelEntry,
    Manifest,
    StorePart,
    chunk_length,
    create_array,
    write_label,
)
from reid_dist.stores.locations import (
    MANIFEST_KEY,
    WRITING_MARKER,
    State,
    at_location,
    beside,
    canonical_uri,
    refuse_unless_free,
    remove,
    remove_present,
    state_of,
    write_marker,
)
from reid_dist.stores.locks import lock
from reid_dist.stores.objects import begin, in_flight, is_object_uri, storage_errors

if TYPE_CHECKING:
    from typing import Self

_SCANNED_BYTES = 4 << 20


class StoreWriter(ABC):
    """Write a store at a place that is reserved for this process; commit it at the end, remove all on an error.

    A kind of store writes into `_group`, and its manifest to `_marker` when it is finished.  A store that replaces a
    complete one is written beside it: two directories change their names at the commit.
    The undo steps read the current state and no record of it: an interrupt may come before a record is written.
    """

    def __init__(self, location: str | os.PathLike[str], *, overwrite: bool) -> None:
        self.uri = canonical_uri(location)
        self._is_committed = False
        self._marker: dict[str, Any] = {}
        self._made = _missing_above(self.uri)
        try:
            self._release = weakref.finalize(self, lock(self.uri).release)
        except BaseException:
            self._remove_made()
            raise
        try:
            self._reserve(overwrite)
            with storage_errors(self.uri, writing=True):
                store = folder_at(self._target).zarr_store(read_only=False)
                self._group = zarr.create_group(store, zarr_format=3, attributes={MANIFEST_KEY: WRITING_MARKER})
        except BaseException:
            self._release()
            self._remove_made()
            raise

    def _reserve(self, overwrite: bool) -> None:
        """Set `_target`, where the group is made, and remove what is there; StoreExistsError if it must stay."""
        found = refuse_unless_free(self.uri, overwrite=overwrite)
        self._replaces = found is State.COMPLETE
        self._incoming, self._outgoing = (beside(self.uri, form) for form in (".{}.incoming", ".{}.outgoing"))
        self._target = self._incoming if self._replaces else self.uri
        if found is not State.NOTHING:
            remove_present(self._target)

    @property
    def is_committed(self) -> bool:
        """Whether the store is committed."""
        return self._is_committed

    @abstractmethod
    def finish(self) -> None:
        """Write what is left, without committing."""

    def commit(self) -> None:
        """Finish, and write the commit marker, which is the manifest, in one atomic update.

        Nothing happens if that is done already; InputError after an abort.
        """
        if not self._is_committed:
            commit_writers([self])

    def _refuse_more(self) -> None:
        """Refuse rows and labels for a store that is finished: those of a complete one would be written again."""
        if self._marker or self._has_ended:
            raise InputError(
                f"the writer of {self.uri} has been finished, and takes nothing more; `reid_dist.append` appends to a "
                "complete store"
            )

    @property
    def _has_ended(self) -> bool:
        """Whether the place is no longer reserved: the store is committed, or all that was written is removed."""
        return not self._release.alive

    def abort(self) -> None:
        """Remove everything that was written, unless it is committed."""
        if self._has_ended:
            # Another process may have written a store there.
            return
        if not self._is_committed:
            self._discard()
        self._release()
        if not self._is_committed:
            self._remove_made()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None or self._has_ended:
            self.abort()
            return
        try:
            self.commit()
        except BaseException:
            self.abort()
            raise

    def _discard(self) -> None:
        """Remove everything that was written."""
        remove_present(self._target)

    def _remove_made(self) -> None:
        """Remove the folders that were made for the store, unless something else is in them by now."""
        for folder in self._made:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _prepare(self) -> None:
        """Write the manifest of a store that replaces another; only the renamings remain."""
        if self._replaces:
            _remove_leftover(self._outgoing)
            with storage_errors(self.uri, writing=True):
                self._group.attrs[MANIFEST_KEY] = self._marker

    def _take_out(self) -> None:
        """Hide the old store."""
        if self._replaces:
            Path(self.uri).rename(self._outgoing)

    def _show(self) -> None:
        """Make the new store visible."""
        if self._replaces:
            Path(self._incoming).rename(self.uri)
            return
        with storage_errors(self.uri, writing=True):
            write_marker(self.uri, self._marker)

    def _hide(self) -> None:
        """Undo `_show`, as far as it was done."""
        if self._replaces:
            # The store at the place while the old one is out is the new one.
            if os.path.lexists(self._outgoing) and os.path.lexists(self.uri):
                Path(self.uri).rename(self._incoming)
        # Where the marker could not be written, it cannot be overwritten either.
        elif state_of(self.uri) is State.COMPLETE:
            with storage_errors(self.uri, writing=True):
                write_marker(self.uri, WRITING_MARKER)

    def _put_back(self) -> None:
        """Undo `_take_out`, as far as it was done."""
        if self._replaces and os.path.lexists(self._outgoing):
            Path(self._outgoing).rename(self.uri)

    def _remove_leftovers(self) -> None:
        """Remove the old store, and what a killed writer left at this place."""
        if not is_object_uri(self.uri):
            _remove_leftover(self._outgoing)
            _remove_leftover(self._incoming)


def commit_writers(writers: Sequence[StoreWriter]) -> None:
    """Finish and commit what was written: all of it, or nothing, and never an old store beside a new one.

    On an error or an interrupt the new stores are hidden and the old ones are put back.  A process that is killed in
    between, in the microseconds that a few renamings take, leaves places without a store, and the stores beside them,
    under their names with a dot before and ``.incoming`` and ``.outgoing`` behind, until the next store is written
    there.
    """
    for writer in writers:
        if writer._has_ended:
            raise InputError(f"the writer of {writer.uri} was aborted, and what it had written is removed; write again")
        if not writer._marker:
            writer.finish()
    for writer in writers:
        writer._prepare()
    try:
        for writer in writers:
            writer._take_out()
        for writer in writers:
            writer._show()
    except BaseException as error:
        # Where one cannot be hidden, no old one may come back: hence two loops, which end at the first failure.
        for writer in writers:
            writer._hide()
        for writer in writers:
            writer._put_back()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"cannot put the new store in its place: {error}") from error
        raise
    for writer in writers:
        writer._is_committed = True
    for writer in writers:
        writer._remove_leftovers()
    # The first store of a pair reserves the place of both: it is the last one to be released.
    for writer in reversed(writers):
        writer._release()


def _missing_above(uri: str) -> list[Path]:
    """Folders above a place that are not there, the innermost first."""
    return [] if is_object_uri(uri) else [folder for folder in Path(uri).parents if not folder.exists()]


def _remove_leftover(uri: str) -> None:
    if os.path.lexists(uri):
        remove(uri)


class FeatureWriter(StoreWriter):
    """Context manager that writes a new store block by block; it commits at the end and removes everything on an error.

    Features are written as they arrive: about one chunk of them and all labels are in memory.  The store has the
    content digest of `FeatureSet.from_arrays` with the same rows.  In a distributed run, let each process write its own
    store; join them with `FeatureSet.concat`, or into one store with ``reid-dist append``.

    Parameters
    ----------
    uri
        Where to write.
    dim
        Values per row; None takes the width of the first block.
    n_rows
        Total number of rows, if known.  Chunks then have equal length, and any other number of rows is an error.
    dtype
        Type of the stored features, ``"float32"`` or ``"float16"``.  None keeps float16 blocks and converts all others
        to float32.
    chunk_rows
        Rows per chunk; about 16 MiB of features when None.
    allow_zero
        Whether rows of zeros are allowed; recorded in the store.
    overwrite
        Replace a complete store once the new one is complete; not on object storage.
    notes
        Changes already made to the values, one line each.
    source
        Origin of the rows, as JSON, for information only.

    Attributes
    ----------
    is_committed : bool
        Whether the store is committed; if so, `abort` keeps it.

    Raises
    ------
    StoreExistsError
        If a complete store, another writer, or anything else exists there.
    InputError
        If an option or a row cannot be used.

    Examples
    --------
    >>> with FeatureWriter("gallery.zarr") as writer:  # doctest: +SKIP
    ...     for images, pids, camids in loader:
    ...         writer.append(model(images), pids=pids, camids=camids)
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        dim: int | None = None,
        n_rows: int | None = None,
        dtype: DTypeLike | None = None,
        chunk_rows: int | None = None,
        allow_zero: bool = False,
        overwrite: bool = False,
        notes: Iterable[str] = (),
        source: Mapping[str, Any] | None = None,
    ) -> None:
        if any(length is not None and length < 1 for length in (dim, n_rows)):
            raise InputError(f"a store needs at least one row and one column, not {n_rows} x {dim}")
        self._dim, self._expected_rows, self._given_chunk_rows = dim or 0, n_rows, chunk_rows
        # Without a dtype, the first rows determine it, and always the length of chunks.
        self.dtype, self._rounds = kept_dtype("float32" if dtype is None else dtype), dtype is not None
        self._chunk_rows = 0
        self._allow_zero = allow_zero
        self._notes = list(notes)
        self._source = dict(source or {})
        self._labels: Labels | None = None
        self._label_blocks: dict[str, list[NDArray[Any]]] = {}
        self._hasher, self._chunk_digests = ContentHasher(), list[str]()
        self._features: zarr.Array[Any] | None = None
        # Of a store that is there already: its parts, rows of zeros, and the number of rows that are written again.
        self._parts: tuple[StorePart, ...] = FIRST_PART
        self._zeros_before, self._again = Offenders(), 0
        self._unit: FeatureArray = np.empty((0, 0), np.float32)
        self._filled = self._written = 0
        self._behind: deque[Future[None]] = deque()
        self.faults = RowFaults()
        super().__init__(uri, overwrite=overwrite)

    @property
    def n_rows(self) -> int:
        """Rows appended so far."""
        return self._written + self._filled - self._again

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
        """Append rows with their labels, unless you pass all labels to `set_labels`.

        Parameters
        ----------
        features
            (rows, dim), any number of rows; torch tensors on any device also work.
        pids, camids, item_ids, columns, image_paths
            (rows,) as in `FeatureSet.from_arrays`; every block must have the same kinds of labels.

        Raises
        ------
        InputError
            If width or kinds of labels differ from earlier blocks, a value cannot be stored, or the writer has been
            finished.
        """
        self._refuse_more()
        held = to_numpy(features)
        block = held if isinstance(held, np.ndarray) and not len(held) else as_feature_array(held)
        if block.ndim != 2 or block.shape[1] != (self._dim or block.shape[1]):
            raise InputError(f"a block of shape {block.shape} does not fit a store of {self._dim} columns")
        given: dict[str, ArrayLike | None] = {
            "pids": pids, "camids": camids, "item_ids": item_ids, "image_paths": image_paths
        }  # fmt: skip
        given |= {COLUMN_PREFIX + name: values for name, values in (columns or {}).items()}
        blocks = {name: as_column(values, name) for name, values in given.items() if values is not None}
        if self.n_rows and blocks.keys() != self._label_blocks.keys():
            raise InputError(
                f"this block gives {sorted(blocks) or 'no labels'}, "
                f"earlier ones {sorted(self._label_blocks) or 'none'}; give the same labels with every block"
            )
        for name, values in blocks.items():
            if len(values) != len(block):
                raise InputError(
                    f"{name} has {counted(len(values), 'entry')} for {counted(len(block), 'row')} of features; give "
                    "one per row"
                )
            is_text = [each.dtype.kind == "U" for each in (*self._label_blocks.get(name, ())[:1], values)]
            if len(values) and any(is_text) and not all(is_text):
                raise InputError(f"{name} are text in one block and numbers in another; give all in one form")
        if not len(block):
            return
        if not self._chunk_rows:
            self._settle(block)
        if self.dtype.itemsize < natural_dtype(block.dtype).itemsize and not self._rounds:
            raise InputError(
                f"earlier blocks are {self.dtype.name} and this one is {block.dtype.name}, which would be rounded; "
                f"give all in one dtype, or name the one in which they are kept (dtype={self.dtype.name!r})"
            )
        for name, values in blocks.items():
            # The caller may fill its array with the labels of the next block.
            self._label_blocks.setdefault(name, []).append(np.array(values))
        note = conversion_note(block.dtype, self.dtype)
        if note and note not in self._notes:
            self._notes.append(note)
        self._take(block)

    def _settle(self, block: NDArray[Any]) -> None:
        """Settle what the first block determines."""
        self._dim = block.shape[1]
        if not self._rounds:
            self.dtype = natural_dtype(block.dtype)
        self._chunk_rows = chunk_length(self._dim * self.dtype.itemsize, self._expected_rows, self._given_chunk_rows)
        self._unit = np.empty((0, self._dim), self.dtype)

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
            self._examine(rows)
            self._hasher.update(rows)
            self._filled += take
            start += take
            if self._filled == self._chunk_rows:
                self._flush()

    def _examine(self, rows: FeatureArray) -> None:
        """Look for faults in the next rows."""
        self.faults += find_faults(rows, self.n_rows)

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
                    FEATURES,
                    (self._expected_rows or stop, self._dim),
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
        """Set all labels at once, as returned by `reid_dist.stores.labels.make_labels`."""
        self._refuse_more()
        self._labels = labels

    def finish(self) -> None:
        """Write the remaining rows without committing; no rows can follow.

        InputError if a row is not finite, labels are missing or of another length, or rows are missing.
        """
        n_rows = self.n_rows
        if n_rows == 0 or (self._expected_rows is not None and n_rows != self._expected_rows):
            raise InputError(
                f"{n_rows} rows were given for {self.uri}, expected {self._expected_rows or 'at least one'}"
            )
        self.faults.refuse_non_finite(f"features of {self.uri}")
        if not self._chunk_digests and self._filled < self._chunk_rows:
            # A set shorter than one chunk: do not pad it to a full one.
            self._chunk_rows = self._filled
        if self._filled:
            self._flush()
        self._wait(0)
        self._unit = np.empty((0, self._dim), dtype=self.dtype)
        labels = self._all_labels(n_rows)
        if "pids" not in labels:
            raise InputError(f"no pids were given for {self.uri}; every row needs an identity")
        with storage_errors(self.uri, writing=True):
            entries = {
                name: LabelEntry(write_label(self._group, name, values), len(values), digest_label(values))
                for name, values in labels.items()
            }
        digests = {name: entry.digest for name, entry in entries.items()}
        manifest = Manifest(
            n_rows=self._hasher.n_rows,
            dim=self._dim,
            dtype=self.dtype.name,
            chunk_rows=self._chunk_rows,
            chunk_digests=tuple(self._chunk_digests),
            labels=entries,
            allow_zero=self._allow_zero,
            zero_rows=self._zeros_before + self.faults.zero.after(self._hasher.n_rows - n_rows),
            notes=tuple(self._notes),
            # Before the last block, which may be a short one, is closed.
            block_digests=self._hasher.whole_blocks.hex(),
            content_digest=self._hasher.finish(self._dim, self.dtype, digests),
            source=self._source,
            parts=self._parts,
        )
        self._marker = manifest.to_json()

    def _all_labels(self, n_rows: int) -> Mapping[str, NDArray[Any]]:
        """Labels of all rows of the store."""
        if self._labels is not None:
            return self._labels
        whole = {name: np.concatenate(blocks) for name, blocks in self._label_blocks.items()}
        return make_labels(n_rows, **label_arguments(whole)) if "pids" in whole else {}

    def abort(self) -> None:
        """Remove everything that was written, unless it is committed."""
        # Nothing may be written after all is removed.
        wait(self._behind)
        self._behind.clear()
        super().abort()


# ---- arrays outside memory ------------------------------------------------------------------------------------------

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
) -> tuple[str, Callable[[], None]]:
    """Write features, for which `is_streamed` is true, to a store in the workspace, block by block.

    Returns the URI of the store, and what removes it, with the temporary directory that it is in without a workspace.
    """
    n_rows, dim = check_shape(features.shape)
    place = temporary_folder() if workspace is None else workspace
    uri = at_location(canonical_uri(place), f"arrays-{uuid.uuid4().hex[:16]}.zarr")
    remove = partial(shutil.rmtree, place, ignore_errors=True) if workspace is None else partial(remove_present, uri)
    try:
        with FeatureWriter(
            uri, dim=dim, n_rows=n_rows, dtype=natural_dtype(features.dtype), allow_zero=allow_zero
        ) as writer:
            for block in _blocks(features, n_rows, dim):
                writer.append(block)
            writer.set_labels(labels)
    except BaseException:
        remove()
        raise
    return uri, remove


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
    rows = chunks[0] if chunks else most
    # Dask lists the rows of every chunk, the others have one number for all.
    ends = accumulate(rows) if isinstance(rows, tuple) else chain(range(int(rows), n_rows, int(rows)), [n_rows])
    begin = 0
    for end, following in pairwise(chain(ends, [math.inf])):
        if end > begin and following - begin > most:
            yield int(end)
            begin = int(end)
