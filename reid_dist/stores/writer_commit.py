"""The end of writing: stores that belong together become stores together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from reid_dist.stores.locations import (
    WRITING_MARK,
    State,
    incoming_place,
    outgoing_place,
    remove_leftover,
    state_of,
    write_mark,
)
from reid_dist.stores.objects import is_object_uri, storage_errors
from reid_dist.stores.swaps import Swap, swap_together

__all__ = ["FirstStore", "commit_together"]


class Writer(Protocol):
    """A writer whose store needs nothing but its commit."""

    is_committed: bool

    def ready(self) -> Swap:
        """Finish all but the commit."""


def commit_together(writers: Sequence[Writer]) -> None:
    """Make stores of what was written: of all of it, or on an error of none, and all that is replaced stays.

    No old store is ever seen beside a new one, not even where the process is killed, and on S3 neither: see
    `reid_dist.stores.swaps.swap_together`.  Old stores are removed, which may take long, when all new ones are in their
    places; what is left where that is cut short, the next writer to the same place removes.

    Parameters
    ----------
    writers
        Of stores that belong together, as the query and the gallery of one model do.

    Raises
    ------
    InputError
        As `FeatureWriter.finish`.
    StoreError
        If a store cannot be put in its place, or an old one cannot be removed.
    """
    swaps = [writer.ready() for writer in writers]
    swap_together(swaps)
    for writer in writers:
        writer.is_committed = True
    for swap in swaps:
        for leftover in swap.leftovers:
            remove_leftover(leftover)


class FirstStore:
    """A store where no complete one was: its mark is all that it takes.

    Parameters
    ----------
    uri
        Canonical URI of the store, which is whole but for its mark.
    mark
        The manifest, as JSON.
    after
        What was there before: nothing, or what never became a store.
    """

    def __init__(self, uri: str, mark: dict[str, Any], after: State) -> None:
        self._uri, self._mark, self._after = uri, mark, after

    @property
    def leftovers(self) -> tuple[str, ...]:
        """What a swap may have left that was killed here."""
        if not is_object_uri(self._uri):
            return outgoing_place(self._uri), incoming_place(self._uri)
        # On S3 such a swap has left something at the place itself as well, and to look costs a request.
        return (incoming_place(self._uri),) if self._after is State.WRITING else ()

    def take_out(self) -> None:
        """Do nothing: there is no old store."""

    def fill(self) -> None:
        """Do nothing: all is there."""

    def show(self) -> None:
        """Write the mark."""
        with storage_errors(self._uri, writing=True):
            write_mark(self._uri, self._mark)

    def hide(self) -> None:
        """Take the mark away, if it is there: where it could not be written, it cannot be overwritten either."""
        if state_of(self._uri) is State.COMPLETE:
            with storage_errors(self._uri, writing=True):
                write_mark(self._uri, WRITING_MARK)

    def put_back(self) -> None:
        """Do nothing: there is no old store."""
