"""What writers of stores have in common: a place reserved for one process, and the commit.

The commit is the last step, in which stores that belong together become visible together.  Query and gallery of one
model belong together: a new query beside an old gallery is two whole stores, and an evaluation of them a wrong number.
All old stores are therefore taken out before the first new one becomes visible.  Old stores are removed at the very
end, which may take long.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import zarr

from reid_dist.errors import StoreError
from reid_dist.stores.folders import folder_at
from reid_dist.stores.locations import (
    MANIFEST_KEY,
    WRITING_MARKER,
    State,
    canonical_uri,
    hidden_beside,
    refuse_unless_free,
    remove,
    remove_present,
    state_of,
    write_marker,
)
from reid_dist.stores.locks import lock
from reid_dist.stores.object_errors import is_object_uri, storage_errors

if TYPE_CHECKING:
    from typing import Self


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
            found = refuse_unless_free(self.uri, overwrite=overwrite)
            self._replaces = found is State.COMPLETE
            self._incoming, self._outgoing = (hidden_beside(self.uri, what) for what in ("incoming", "outgoing"))
            self._target = self._incoming if self._replaces else self.uri
            if found is not State.NOTHING:
                remove_present(self._target)
            with storage_errors(self.uri, writing=True):
                store = folder_at(self._target).zarr_store(read_only=False)
                self._group = zarr.create_group(store, zarr_format=3, attributes={MANIFEST_KEY: WRITING_MARKER})
        except BaseException:
            self._release()
            self._remove_made()
            raise

    @property
    def is_committed(self) -> bool:
        """Whether the store is committed."""
        return self._is_committed

    @abstractmethod
    def finish(self) -> None:
        """Write what is left, without committing."""

    def commit(self) -> None:
        """Finish, and write the commit marker, which is the manifest, in one atomic update."""
        commit_writers([self])

    def abort(self) -> None:
        """Remove everything that was written, unless it is committed."""
        if not self._is_committed:
            remove_present(self._target)
        self._release()
        if not self._is_committed:
            self._remove_made()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()
            return
        try:
            self.commit()
        except BaseException:
            self.abort()
            raise

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
