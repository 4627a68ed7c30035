"""Stores take the places of others, several at a time, and never an old one is seen beside a new one.

Query and gallery of one model belong together: a new query beside an old gallery is two whole stores, and an evaluation
of them a wrong number.  So all old ones are taken out before the first new one is seen.  Old ones are removed only when
all is done, for that may take long.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from reid_dist.errors import StoreError
from reid_dist.stores.objects import ObjectFolder, ahead

__all__ = ["LocalSwap", "ObjectSwap", "Swap", "swap_together"]


class Swap(Protocol):
    """A whole store that comes to its place, in steps that others take at the same time.

    What is undone is told by what is there, not by what was noted: an interrupt may come before a note is taken.
    """

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Canonical URIs of what is there to be removed, if it is there, once all new stores are seen."""

    def take_out(self) -> None:
        """Let the old store be seen no longer."""

    def fill(self) -> None:
        """Bring what the new store consists of, which may take long."""

    def show(self) -> None:
        """Let the new store be seen."""

    def hide(self) -> None:
        """Undo `show`, as far as it was done."""

    def put_back(self) -> None:
        """Undo `take_out`, as far as it was done and the old store is still whole."""


def swap_together(swaps: Sequence[Swap]) -> None:
    """Let stores come to their places: all of them, or none, and never an old one beside a new one.

    On an error or an interrupt the new ones are hidden and the old ones are put back.  Whoever is killed in between, in
    the microseconds that a few renamings take, leaves places without a store, and the stores beside them, under their
    names with a dot before and ``.incoming`` and ``.outgoing`` behind, until the next store is written there.

    On S3, where nothing can be renamed, the objects are copied within the storage, the commit marks last.  Once copying
    has begun there is no way back: whoever is stopped there leaves stores without a commit mark.

    Parameters
    ----------
    swaps
        Of stores that are whole.

    Raises
    ------
    StoreError
        If one of them cannot be put in its place.
    """
    try:
        for swap in swaps:
            swap.take_out()
        for swap in swaps:
            swap.fill()
        for swap in swaps:
            swap.show()
    except BaseException as error:
        # Where one cannot be hidden, no old one may come back: hence two loops, which end at the first failure.
        for swap in swaps:
            swap.hide()
        for swap in swaps:
            swap.put_back()
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"cannot put the new store in its place: {error}") from error
        raise


class LocalSwap:
    """Two directories change their names.

    Parameters
    ----------
    incoming, target, outgoing
        Where the new store is, where the old one is, and where that one goes; nothing is there yet.
    """

    def __init__(self, incoming: Path, target: Path, outgoing: Path) -> None:
        self._incoming, self._target, self._outgoing = incoming, target, outgoing

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Where the old store is."""
        return (str(self._outgoing),)

    def take_out(self) -> None:
        """Rename the old store."""
        self._target.rename(self._outgoing)

    def fill(self) -> None:
        """Do nothing: the new store is whole where it is."""

    def show(self) -> None:
        """Rename the new store."""
        self._incoming.rename(self._target)

    def hide(self) -> None:
        """Rename the new store back; what is at its place while the old one is out is the new one."""
        if os.path.lexists(self._outgoing) and os.path.lexists(self._target):
            self._target.rename(self._incoming)

    def put_back(self) -> None:
        """Rename the old store back."""
        if os.path.lexists(self._outgoing):
            self._outgoing.rename(self._target)


class ObjectSwap:
    """Objects on S3 are copied over those of another store.

    Parameters
    ----------
    incoming, target
        Where the new store is, and where the old one is.
    mark
        Name of the object that makes a store of what is there.
    unmarked
        What that object holds where there is no store yet.
    """

    def __init__(self, incoming: ObjectFolder, target: ObjectFolder, mark: str, unmarked: bytes) -> None:
        self._incoming, self._target, self._mark, self._unmarked = incoming, target, mark, unmarked
        self._old: bytes | None = None
        self._is_filling = False

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Where the new store was copied from."""
        return (self._incoming.uri,)

    def take_out(self) -> None:
        """Take the mark from the old store."""
        self._old = self._target.read(self._mark)
        self._target.write(self._mark, self._unmarked)

    def fill(self) -> None:
        """Remove the objects of the old store, and copy those of the new one but for the mark."""
        self._is_filling = True
        self._target.remove_all([name for name in self._target.walk() if name != self._mark])
        names = [name for name in self._incoming.walk() if name != self._mark]
        deque(ahead(lambda name: self._incoming.copy_to(name, self._target), names, 1), maxlen=0)

    def show(self) -> None:
        """Copy the mark."""
        self._incoming.copy_to(self._mark, self._target)

    def hide(self) -> None:
        """Take the mark from the new store."""
        if self._is_filling and self._target.read(self._mark) != self._unmarked:
            self._target.write(self._mark, self._unmarked)

    def put_back(self) -> None:
        """Give the old store its mark back, if nothing of it has been removed."""
        if not self._is_filling and self._old is not None and self._target.read(self._mark) != self._old:
            self._target.write(self._mark, self._old)
