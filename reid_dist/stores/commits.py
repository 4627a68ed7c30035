"""Commits: the last step of writing, in which stores that belong together become visible together.

Query and gallery of one model belong together: a new query beside an old gallery is two whole stores, and an evaluation
of them a wrong number.  All old stores are therefore taken out before the first new one becomes visible.  Old stores
are removed at the very end, which may take long.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from reid_dist.errors import StoreError
from reid_dist.stores.locations import (
    WRITING_MARKER,
    State,
    hidden_beside,
    remove,
    state_of,
    write_marker,
)
from reid_dist.stores.object_errors import is_object_uri, storage_errors


class Commit(Protocol):
    """What makes one whole store visible, in steps that several commits take together.

    An undo reads the current state and no record of it: an interrupt may come before the record is written.
    """

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Canonical URIs of what is removed, if it is there, once all new stores are visible."""

    def take_out(self) -> None:
        """Hide the old store."""

    def show(self) -> None:
        """Make the new store visible."""

    def hide(self) -> None:
        """Undo `show`, as far as it was done."""

    def put_back(self) -> None:
        """Undo `take_out`, as far as it was done."""


class Writer(Protocol):
    """A writer whose store needs nothing but its commit."""

    is_committed: bool

    def ready(self) -> Commit:
        """Finish all but the commit."""

    def release(self) -> None:
        """Let others write to the place."""


def commit_writers(writers: Sequence[Writer]) -> None:
    """Commit what was written: all of it, or on an error nothing, and all that is to be replaced stays.

    Raises
    ------
    InputError
        As `FeatureWriter.finish`.
    StoreError
        If a store cannot be put in its place, or an old one cannot be removed.
    """
    commits = [writer.ready() for writer in writers]
    commit_together(commits)
    for writer in writers:
        writer.is_committed = True
    remove_leftovers(commits)
    # The first writer of a pair reserves the place of both: it is the last one to release its own.
    for writer in reversed(writers):
        writer.release()


def commit_together(commits: Sequence[Commit]) -> None:
    """Make stores visible: all of them, or none, and never an old one beside a new one.

    On an error or an interrupt the new stores are hidden and the old ones are put back.  A process that is killed in
    between, in the microseconds that a few renamings take, leaves places without a store, and the stores beside them,
    under their names with a dot before and ``.incoming`` and ``.outgoing`` behind, until the next store is written
    there.

    Raises
    ------
    StoreError
        If one of them cannot be put in its place.
    """
    try:
        for commit in commits:
            commit.take_out()
        for commit in commits:
            commit.show()
    except BaseException as error:
        # Where one cannot be hidden, no old one may come back: hence two loops, which end at the first failure.
        for commit in commits:
            commit.hide()
        for commit in commits:
            commit.put_back()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"cannot put the new store in its place: {error}") from error
        raise


def remove_leftovers(commits: Sequence[Commit]) -> None:
    """Remove the stores that commits have replaced, and what a killed writer left at their places."""
    for commit in commits:
        for uri in commit.leftovers:
            _remove_leftover(uri)


def _remove_leftover(uri: str) -> None:
    if os.path.lexists(uri):
        remove(uri)


class Replacement:
    """A store on a disk in the place of a complete one: two directories change their names.

    Parameters
    ----------
    uri
        Canonical URI of the place; the new store is at its ``incoming`` place, and the old one goes to ``outgoing``.
    """

    def __init__(self, uri: str) -> None:
        self._target = Path(uri)
        self._incoming, self._outgoing = (Path(hidden_beside(uri, what)) for what in ("incoming", "outgoing"))
        _remove_leftover(str(self._outgoing))

    @property
    def leftovers(self) -> tuple[str, ...]:
        """The old store."""
        return (str(self._outgoing),)

    def take_out(self) -> None:
        """Rename the old store."""
        self._target.rename(self._outgoing)

    def show(self) -> None:
        """Rename the new store."""
        self._incoming.rename(self._target)

    def hide(self) -> None:
        """Rename the new store back; the store at the place while the old one is out is the new one."""
        if os.path.lexists(self._outgoing) and os.path.lexists(self._target):
            self._target.rename(self._incoming)

    def put_back(self) -> None:
        """Rename the old store back."""
        if os.path.lexists(self._outgoing):
            self._outgoing.rename(self._target)


class FirstStore:
    """A store where no complete one was: all it needs is its commit marker.

    Parameters
    ----------
    uri
        Canonical URI of the store.
    marker
        The manifest, as JSON.
    """

    def __init__(self, uri: str, marker: dict[str, Any]) -> None:
        self._uri, self._marker = uri, marker

    @property
    def leftovers(self) -> tuple[str, ...]:
        """What a writer that was killed while it replaced a store may have left."""
        if is_object_uri(self._uri):
            return ()
        return hidden_beside(self._uri, "outgoing"), hidden_beside(self._uri, "incoming")

    def take_out(self) -> None:
        """Do nothing: there is no old store."""

    def show(self) -> None:
        """Write the marker."""
        with storage_errors(self._uri, writing=True):
            write_marker(self._uri, self._marker)

    def hide(self) -> None:
        """Take the marker away, if it is there: where it could not be written, it cannot be overwritten either."""
        if state_of(self._uri) is State.COMPLETE:
            with storage_errors(self._uri, writing=True):
                write_marker(self._uri, WRITING_MARKER)

    def put_back(self) -> None:
        """Do nothing: there is no old store."""
