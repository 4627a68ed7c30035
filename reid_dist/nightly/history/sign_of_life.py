"""A run says now and then that it is there, so that other hosts know when it no longer is."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from reid_dist.nightly.history.schema import now
from reid_dist.nightly.history.seals import update_row

__all__ = ["BEAT", "SignOfLife"]

BEAT: Final = 60.0
"""Seconds between two signs of life."""

# Seconds that the end of a run waits for a sign that is just being written, on a disk that may be away.
_LAST_WAIT: Final = 10.0


class SignOfLife:
    """Writes down, while its block lasts, that a run is there: from a thread of its own, for the run has work to do.

    Nothing that goes wrong here ends the run: what could not be written is written at the next beat.

    Parameters
    ----------
    connect
        Opens a connection to the history, which only this one uses; its errors are those of SQLite.
    run_number
        The run.
    every
        Seconds between two beats.
    clock
        Tells the time, as a history has it.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        run_number: int,
        *,
        every: float = BEAT,
        clock: Callable[[], str] = now,
    ) -> None:
        self._connect = connect
        self._run_number = run_number
        self._every = every
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._ended = threading.Event()
        # A daemon: a process that ends in whatever way does not wait for it.
        self._thread = threading.Thread(target=self._beat_on, name="sign of life", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_LAST_WAIT)

    def beat(self) -> None:
        """Write down that the run is there, if that can be done now."""
        try:
            if self._connection is None:
                self._connection = self._connect()
            # The transaction that an error leaves open ends with the connection.
            self._connection.execute("BEGIN IMMEDIATE")
            unfinished = self._connection.execute(
                "SELECT 1 FROM runs WHERE number = ? AND finished IS NULL", (self._run_number,)
            ).fetchone()
            if unfinished is not None:
                update_row(self._connection, "runs", self._run_number, seen=self._clock())
            self._connection.execute("COMMIT")
        except (sqlite3.Error, OSError, ValueError):
            # Locked, damaged, or the disk is full or away.  A new connection does not remember what was wrong with the
            # old one.
            self.close()

    def close(self) -> None:
        """Close the connection; a connection belongs to the thread that made it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _beat_on(self) -> None:
        try:
            while not self._ended.wait(self._every):
                self.beat()
        finally:
            self.close()
