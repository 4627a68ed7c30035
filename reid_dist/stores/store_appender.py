"""Append rows to a complete store: the old store until one atomic replacement of its manifest, and the new one then.

An append writes a part of its own, in a folder that no other one has, and no file that is there.  The part begins with
the rows of the last chunk if that one is not full, so that all chunks but the last have one length, as
`reid_dist.stores.layout` describes; of a store of one short chunk, it holds all rows, in chunks of the usual length.

The content digest goes on from the digests of blocks of 1,024 rows in the manifest: of the old rows, those after the
last whole block and those of the last chunk are read, and all of them where an earlier release wrote the manifest.

The lock of the store keeps other writers away.  Object storage has no locks: there, the manifest is replaced on the
condition that it is the one from the beginning, so that of two appends at once one fails and changes nothing.

What nothing refers to any more is removed after the commit: parts of appends that were killed, and what was rewritten
before the manifest that is replaced.  So a process that has opened the store reads on until the second append after
that ends.  All of it is listed before the commit: a part that another append begins afterwards is never removed, and
one that is being written by then can no longer be committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.json_text import parse_json
from reid_dist.core.temporary import DRAFT_NAME
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.stores.digests import ContentHasher
from reid_dist.stores.folders import GROUP_FILE, folder_at
from reid_dist.stores.kept_rows import FeatureArray, Offenders, natural_dtype
from reid_dist.stores.labels import NUMBERED, HeldLabels, Labels, labels_of_rows
from reid_dist.stores.layout import APPENDED, CHUNK_BYTES, FEATURES, Manifest, StorePart
from reid_dist.stores.locations import BEFORE, MANIFEST_KEY, WRITING_MARKER, at_location, canonical_uri, read_marker
from reid_dist.stores.objects import is_object_uri, storage_errors
from reid_dist.stores.stored import StoreReader
from reid_dist.stores.writer import FeatureWriter

# Of a length that is 1 in exact arithmetic: rows are rounded to half precision at worst.
_UNIT_TOLERANCE = 2e-3


class StoreAppender(FeatureWriter):
    """Append rows to a store; a context manager that commits at its end and leaves the old store on an error.

    Labels are given for all new rows at once, by `set_labels`.

    Parameters
    ----------
    location
        The store.
    origin
        Where the new rows come from, as JSON with a ``uri``, for the manifest and for messages.
    dim
        Values of a new row.
    comes_as
        Dtype of the new rows.  Float16 is widened.
    dtype
        That of the store, to which float32 is rounded; rows that would be rounded are refused when None.
    allow_zero
        Recorded in the store: whether rows of zeros are meant, besides those that are allowed there already.
    notes
        Changes made to the new values before, one line each.

    Raises
    ------
    StoreNotFoundError, IncompleteStoreError, DamagedStoreError, StoreError
        As when a store is opened.
    StoreExistsError
        If another process is writing to the store.
    InputError
        If dimension, dtype, labels or lengths of the rows differ from those of the store.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        origin: Mapping[str, Any],
        *,
        dim: int,
        comes_as: np.dtype[Any],
        dtype: DTypeLike | None = None,
        allow_zero: bool = False,
        notes: Iterable[str] = (),
    ) -> None:
        uri = canonical_uri(location)
        # The lock is beside the place where the files are, whatever links lead there.
        place = uri if is_object_uri(uri) else os.path.realpath(uri)
        # Nothing is made where nothing is.
        if not folder_at(place).exists():
            raise StoreNotFoundError(f"no such feature store: {uri}; `reid-dist ingest` makes one")
        self._origin = dict(origin)
        self._lengths = _Lengths()
        super().__init__(place, dim=dim, dtype=dtype, allow_zero=allow_zero, notes=notes)
        try:
            self._continue(dim, natural_dtype(comes_as))
        except BaseException:
            self.abort()
            raise

    @property
    def allow_zero(self) -> bool:
        """Whether rows of zeros are meant."""
        return self._allow_zero

    def _reserve(self, overwrite: bool) -> None:
        # Read first: what is opened afterwards is this one, or a later one, and then nothing can be committed.
        self._old_group = folder_at(self.uri).read(GROUP_FILE) or b""
        self._old = StoreReader.open(self.uri)
        self._replaces = False
        self._folder = f"{APPENDED}/{uuid.uuid4().hex}"
        self._target = at_location(self.uri, self._folder)

    def _continue(self, dim: int, comes_as: np.dtype[Any]) -> None:
        """Take over what the store has, and read the rows that are written again."""
        old = self._old.manifest
        if dim != old.dim:
            raise InputError(f"{self._origin['uri']} has {dim} features per row, and {self.uri} has {old.dim}")
        given = self.dtype if self._rounds else None
        if given not in (None, old.numpy_dtype):
            raise InputError(f"{self.uri} keeps {old.dtype}, and not {given}; leave --dtype (dtype) out")
        if given is None and comes_as.itemsize > old.numpy_dtype.itemsize:
            raise InputError(
                f"{self._origin['uri']} is {comes_as.name}, and {self.uri} keeps {old.dtype}; round the new rows with "
                f"--dtype {old.dtype} (dtype={old.dtype!r})"
            )
        self.dtype, self._rounds = old.numpy_dtype, True
        self._unit = np.empty((0, dim), self.dtype)
        self._chunk_rows = old.chunk_rows
        if old.n_chunks == 1:
            self._chunk_rows = max(old.chunk_rows, CHUNK_BYTES // old.row_bytes)
        first_chunk = old.n_rows // self._chunk_rows
        self._chunk_digests = list(old.chunk_digests[:first_chunk])
        self._allow_zero |= old.allow_zero
        self._notes = list(dict.fromkeys([*old.notes, *self._notes]))
        self._zeros_before = old.zero_rows
        kept = [part for part in old.parts if part.first_chunk < first_chunk]
        self._parts = (*kept, StorePart(self._folder, first_chunk))
        self._take_again(first_chunk * self._chunk_rows)

    def _take_again(self, first_again: int) -> None:
        """Hash the old rows that no digest covers, and put those from `first_again` on into the first new chunk."""
        old = self._old.manifest
        self._hasher = ContentHasher.after(bytes.fromhex(old.block_digests or ""))
        first_hashed = self._hasher.n_rows
        # Of a store without a remainder, the last chunk still tells how long rows are.
        first = min(first_again, first_hashed, (old.n_chunks - 1) * old.chunk_rows)
        for chunk in range(first // old.chunk_rows, old.n_chunks):
            held = old.rows_of_chunk(chunk)
            rows = self._old.read(held.start, held.stop)
            self._hasher.update(rows[max(0, first_hashed - held.start) :])
            if chunk == old.n_chunks - 1:
                self._lengths.see_old(rows)
            again = rows[max(0, first_again - held.start) :]
            while self._filled + len(again) > len(self._unit):
                self._grow()
            self._unit[self._filled : self._filled + len(again)] = again
            self._filled += len(again)
        self._again = self._filled

    def set_labels(self, labels: Labels) -> None:
        """Give the labels of all new rows, as `reid_dist.stores.labels.make_labels` returns them.

        InputError if the store has other labels, or text where these are numbers.
        """
        old, place = self._old, str(self._origin["uri"])
        for name in old.labels.keys() & labels.keys() - {*NUMBERED.values()}:
            kind = "utf8" if labels[name].dtype.kind == "U" else "int64"
            if kind != old.manifest.labels[name].kind:
                words = {"utf8": "text", "int64": "numbers"}
                raise InputError(
                    f"{name} are {words[old.manifest.labels[name].kind]} in {self.uri} and {words[kind]} in {place}; "
                    "give them as the store has them"
                )
        new = HeldLabels(place, len(labels["pids"]), labels)
        self._joined = labels_of_rows((HeldLabels(self.uri, old.manifest.n_rows, old.labels), new), None)
        super().set_labels(labels)

    def _all_labels(self, n_rows: int) -> Mapping[str, NDArray[Any]]:
        if self._labels is None or len(self._labels["pids"]) != n_rows:
            raise InputError(f"no labels were given for the {counted(n_rows, 'row')} that are appended to {self.uri}")
        return self._joined

    def _examine(self, rows: FeatureArray) -> None:
        self._lengths.see_new(rows, self.n_rows)
        super()._examine(rows)

    def finish(self) -> None:
        """Write what is left, without committing; otherwise as `FeatureWriter.finish`."""
        self._lengths.refuse_unlike(self.uri, str(self._origin["uri"]))
        earlier = self._old.manifest.source
        entry = {**self._origin, "rows": self.n_rows}
        self._source = {**earlier, "appended": [*earlier.get("appended", []), entry]}
        super().finish()

    # ---- the commit --------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Keep the old manifest in the part, make the new one, and list what nothing will refer to."""
        group = parse_json(self._old_group)
        with storage_errors(self.uri, writing=True):
            self._group.attrs[MANIFEST_KEY] = {**WRITING_MARKER, BEFORE: group["attributes"][MANIFEST_KEY]}
            folder_at(self._target).force()
        group["attributes"][MANIFEST_KEY] = self._marker
        self._new_group = json.dumps(group).encode()
        self._unused_files, self._unused_folders = self._find_unused()

    def _show(self) -> None:
        with storage_errors(self.uri, writing=True):
            is_done = folder_at(self.uri).replace(GROUP_FILE, self._new_group, self._old_group)
        if not is_done:
            raise StoreError(
                f"{self.uri} was changed by another process meanwhile, and nothing was appended; run again"
            )

    def _hide(self) -> None:
        with storage_errors(self.uri, writing=True):
            folder_at(self.uri).replace(GROUP_FILE, self._old_group, self._new_group)

    def _discard(self) -> None:
        # An interrupt may come between the commit and its record.
        if self._folder in [part["folder"] for part in (read_marker(self.uri) or {}).get("parts", ())]:
            return
        super()._discard()
        if not is_object_uri(self.uri):
            # Unless another part is in it.
            with contextlib.suppress(OSError):
                Path(self.uri, APPENDED).rmdir()

    def _find_unused(self) -> tuple[list[str], list[str]]:
        """Names, relative to the store, of files and folders that neither the old manifest nor the new one refers to.

        Nothing is named but what the writers of this package write.
        """
        old, new = self._old.manifest, Manifest.from_json(self._marker, self.uri)
        folder = folder_at(self.uri)
        files = [name for name in folder.names() if DRAFT_NAME.fullmatch(name)]
        files += [
            file
            for file, chunk in new.replaced_files.items()
            if old.file_of_chunk(chunk) != file and folder.size(file) is not None
        ]
        with_features = {part.folder for part in (*old.parts, *new.parts)}
        with_labels = {manifest.parts[-1].folder for manifest in (old, new)}
        labels = {name.partition("/")[0] for name in (*old.labels, *new.labels)}
        others = folder_at(at_location(self.uri, APPENDED)).folders()
        folders = []
        for part in ("", *(f"{APPENDED}/{name}" for name in others)):
            if part and part not in with_features:
                folders.append(part)
                continue
            unused = (set() if part in with_features else {FEATURES}) | (set() if part in with_labels else labels)
            held = folder_at(at_location(self.uri, part) if part else self.uri).folders()
            folders += [StorePart(part, 0).inside(name) for name in held if name in unused]
        return files, folders

    def _remove_leftovers(self) -> None:
        # The next append removes what cannot be removed now.
        with contextlib.suppress(OSError, StoreError):
            folder_at(self.uri).remove(*self._unused_files)
            for name in self._unused_folders:
                folder_at(at_location(self.uri, name)).clear()


class _Lengths:
    """Whether old rows and new ones are scaled to length 1: a mixture changes every distance but cosine."""

    def __init__(self) -> None:
        self._old: set[bool] = set()
        self._new: set[bool] = set()
        self._other, self._first = Offenders(), 0.0

    def see_old(self, rows: FeatureArray) -> None:
        """Take the last rows of the store."""
        self._old = set(_is_unit(_lengths_of(rows)).tolist())

    def see_new(self, rows: FeatureArray, first_row: int) -> None:
        """Take new rows; ``rows[0]`` is row `first_row` of them."""
        lengths = _lengths_of(rows)
        is_unit = _is_unit(lengths)
        self._new |= set(is_unit.tolist())
        place = np.flatnonzero(lengths)[~is_unit]
        if len(place) and not self._other:
            self._first = float(lengths[place[0]])
        self._other += Offenders.of(place + first_row)

    def refuse_unlike(self, store: str, source: str) -> None:
        """Refuse new rows of any length beside old ones of length 1, and the reverse."""
        if self._old == {True} and False in self._new:
            raise InputError(
                f"all of the last rows of {store} have length 1, and of {source} {self._other} do not: row "
                f"{self._other.first[0]} has length {self._first:.6g}; scale them as the rows of the store were"
            )
        if self._old == {False} and self._new == {True}:
            raise InputError(
                f"all rows of {source} have length 1, and the last ones of {store} do not; give rows that are scaled "
                "as those of the store were"
            )


def _lengths_of(rows: FeatureArray) -> NDArray[np.float32]:
    """Lengths of rows, (n,)."""
    # What overflows is not of length 1.
    with np.errstate(over="ignore", invalid="ignore"):
        wide = rows.astype(np.float32, copy=False)
        lengths: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    return lengths


def _is_unit(lengths: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Of those lengths that are not 0, whether they are 1."""
    found: NDArray[np.bool_] = np.abs(lengths[lengths != 0] - 1) <= _UNIT_TOLERANCE
    return found
