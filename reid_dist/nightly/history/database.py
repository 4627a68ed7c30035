"""SQLite file of a history: opening, transactions, and errors in the user's words."""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from reid_dist._version import __version__
from reid_dist.core.formatting import shortened
from reid_dist.core.limits import LONGEST_NAME, encoded_path, refuse_unusable_path
from reid_dist.core.regular_files import refuse_special
from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreNotFoundError
from reid_dist.nightly.history import chain
from reid_dist.nightly.history.backups import copy_to, how_to_restore, marker_path, read_marker
from reid_dist.nightly.history.schema_5_import import IMPORTED, import_tables

T = TypeVar("T")

_MAGIC: Final = b"SQLite format 3\0"
_PAUSE: Final = 0.02
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_LONGEST: Final = 120
# The last two are one number on Linux, and two on macOS.
_NO_LOCKS: Final = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


class Database:
    """Connection to the file of a history, which waits `timeout` seconds for locks of other processes.

    StoreNotFoundError if the file is missing or empty and `create` is false; DamagedStoreError if it is damaged, or
    lost: missing or empty beside the marker of its first run; StoreError if it is no history, has another schema, is
    locked for longer than the timeout, or cannot be read or written.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, create: bool, read_only: bool, timeout: float, importing: bool = False
    ) -> None:
        if "://" in os.fspath(path):
            raise InputError(f"a history is a local file, found the URI {os.fspath(path)!r}")
        encoded_path(path)
        self.path = Path(path)
        self.timeout = timeout
        # Warning in one line about recorded runs that are not in the file; empty for none.
        self.missing_runs = ""
        # Number of runs that were imported; None where the file has the present schema.
        self.n_imported: int | None = None
        self._importing = importing
        if create and not read_only:
            self._refuse_long_name()
        refuse_unusable_path(path)
        found = self.path.exists()
        if not found:
            self._refuse_lost("its file is missing")
        if not found and (read_only or not create):
            raise StoreNotFoundError(f"there is no history {self.path}; `reid-dist nightly` makes one")
        if self.path.is_dir():
            raise StoreError(f"{self.path} is a directory, not a history; name the SQLite file")
        if found:
            refuse_special(self.path, self.path.stat().st_mode)
        with self._explained():
            if not found:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self.connection = self._patiently(lambda: self._opened(create=create, read_only=read_only))

    def size(self) -> int:
        """Return the size of the file in bytes."""
        with self.apart() as connection:
            pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
            return pages * int(connection.execute("PRAGMA page_size").fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        with self._explained():
            self.connection.close()

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Transaction on one state of the file."""
        return self._transaction("BEGIN")

    def writing(self) -> AbstractContextManager[sqlite3.Connection]:
        """Transaction that writes everything or nothing."""
        # Not IMMEDIATE, which waits for readers at the end: the marker is written by then.
        return self._transaction("BEGIN EXCLUSIVE")

    @contextmanager
    def apart(self) -> Iterator[sqlite3.Connection]:
        """Statements without a transaction."""
        with self._explained():
            yield self.connection

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self._patiently(lambda: self._begun(begin))
            with _whole(self.connection):
                yield self.connection

    def _begun(self, begin: str) -> None:
        """Begin a transaction that holds its lock."""
        self.connection.execute(begin)
        try:
            # A deferred transaction has no lock before the first page is read.
            self.connection.execute("PRAGMA schema_version").fetchone()
        except BaseException:
            self.connection.rollback()
            raise

    def _patiently(self, action: Callable[[], T]) -> T:
        """Retry while the file is locked, until the timeout.

        SQLite waits by itself for locks of other connections, but not while one of them rolls back what a killed
        process left.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return action()
            except sqlite3.OperationalError as error:
                if _code(error) not in _BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE)

    def _opened(self, *, create: bool, read_only: bool) -> sqlite3.Connection:
        # Also for reading: the first connection after a killed process rolls back its journal.  SQLite opens a
        # write-protected file for reading only.
        mode = "rwc" if create and not read_only else "rw"
        # isolation_level None: no implicit transactions.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={mode}", uri=True, timeout=self.timeout, isolation_level=None
        )
        try:
            schema = self._schema_of(connection, empty_is_new=create and not read_only, large=not read_only)
            # The schema of a foreign file must not call functions.
            connection.execute("PRAGMA trusted_schema = OFF")
            if read_only:
                connection.execute("PRAGMA query_only = ON")
                return connection
            if schema == 0:
                # Before the first table: later it has no effect.
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            # A rollback journal needs nothing but locks; a write-ahead log also needs shared memory, which two hosts
            # do not have (https://www.sqlite.org/wal.html).
            connection.execute("PRAGMA journal_mode = DELETE")
            # A committed transaction survives a power failure.
            connection.execute("PRAGMA synchronous = EXTRA")
            if schema == 0:
                # Of two processes, the second finds the tables made.
                with _whole(connection, "BEGIN IMMEDIATE"):
                    chain.make_tables(connection)
            if schema == IMPORTED:
                self.n_imported = self._import(connection)
            # An import drops tables, of which none refers to another.
            connection.execute("PRAGMA foreign_keys = ON")
            self.missing_runs = self._missing_runs(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _schema_of(self, connection: sqlite3.Connection, *, empty_is_new: bool, large: bool) -> int:
        """Return the schema of a history, 0 for an empty database; refuse everything else unchanged."""
        # One transaction: another process may be making the file.
        with _whole(connection, "BEGIN"):
            kind, schema, n_tables = (
                int(connection.execute(query).fetchone()[0])
                for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_schema")
            )
            if kind == schema == n_tables == 0:
                self._refuse_lost("its file is empty")
                if not empty_is_new:
                    raise StoreNotFoundError(f"{self.path} is empty, not a history; `reid-dist nightly` makes one")
                return 0
            if kind != chain.APPLICATION_ID:
                raise StoreError(f"{self.path} is an SQLite file of another program, not a history; name another file")
            if schema == IMPORTED and self._importing:
                return schema
            if schema != chain.SCHEMA:
                remedy = (
                    f"import it once with `reid-dist history import {self.path}`"
                    if schema == IMPORTED
                    else "use the version of reid-dist that wrote it, or name another file for a new history"
                )
                raise StoreError(
                    f"history {self.path} has schema {schema}, reid-dist {__version__} reads and writes "
                    f"{chain.SCHEMA}; {remedy}; nothing was changed"
                )
            chain.check_everything(connection, large=large)
        return schema

    def _import(self, connection: sqlite3.Connection) -> int:
        """Copy a history of the schema before, and import it in one transaction; return the number of runs."""
        copy_to(connection, self.path, f"schema-{IMPORTED}.db")
        with _whole(connection, "BEGIN EXCLUSIVE"):
            n_runs = import_tables(connection)
            chain.check_everything(connection, large=True)
        connection.executescript("PRAGMA incremental_vacuum")
        return n_runs

    def _refuse_long_name(self) -> None:
        """Raise InputError, before anything is made, if the files beside the history would have too long names."""
        refuse_unusable_path(self.path.parent)
        excess = len(os.fsencode(marker_path(self.path).name)) - LONGEST_NAME
        if excess > 0:
            raise InputError(
                f"the name of history {self.path} is {excess} bytes too long, as files beside it have longer names; "
                "shorten it"
            )

    def _refuse_lost(self, found: str) -> None:
        """Raise DamagedStoreError for a missing or empty file that had runs."""
        place = marker_path(self.path)
        if not place.exists():
            return
        marker = read_marker(self.path)
        began = "" if marker is None else f" with run {marker.first_run} of suite {marker.suite} at {marker.began}"
        raise DamagedStoreError(
            f"the runs of history {self.path} are lost: {found}, and {place} records that it began{began}; "
            f"{how_to_restore(self.path)}; or, to begin a new history on purpose, remove {place}"
        )

    def _missing_runs(self, connection: sqlite3.Connection) -> str:
        """Return a warning if newer runs were begun than the file holds, as after a copy was put back."""
        marker = read_marker(self.path)
        with _whole(connection, "BEGIN"):
            last = chain.last_run(connection)
        if marker is None or marker.last_run <= last:
            return ""
        return (
            f"history {self.path} ends with run {last}, but run {marker.last_run} was begun: later runs are lost, or "
            "an older copy was put back"
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._explanation(error) from error
        except (UnicodeError, chain.ChangedRowError) as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"cannot use history {self.path}: {error.strerror or error}") from error

    def _explanation(self, error: sqlite3.Error) -> StoreError:
        code = _code(error)
        path = self.path
        if code in _BUSY and (why := _why_no_locks(path.parent)):
            return StoreError(
                f"cannot lock history {path}: its file system has no locks ({why}); move the file to a local disk, or "
                "start the lock service of the file system"
            )
        if code in _BUSY:
            return StoreError(
                f"history {path} is locked: another process has been using it for more than {self.timeout:g} s; try "
                "again when it is done"
            )
        if code == sqlite3.SQLITE_NOTADB and not _has_magic(path):
            return StoreError(f"{path} is not a history: it is no SQLite file; name another file")
        if code in _DAMAGED or (code is None and isinstance(error, sqlite3.DatabaseError)):
            return self._damaged(str(error))
        if code == sqlite3.SQLITE_FULL:
            return StoreError(f"cannot write to history {path}: the disk is full; free some space and run again")
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
            return StoreError(
                f"cannot read history {path}: a process was killed while it wrote, and rolling back its journal needs "
                "the right to write; run the command once as a user who has it"
            )
        if code == sqlite3.SQLITE_READONLY:
            return StoreError(f"cannot write to history {path}: the file or its directory is read-only")
        if code == sqlite3.SQLITE_CANTOPEN:
            return StoreError(f"cannot open history {path}: {error}; its directory must be one to write to")
        return StoreError(f"cannot use history {path}: {error}")

    def _damaged(self, found: str) -> DamagedStoreError:
        # SQLite may quote whole statements of the schema.
        why = shortened(" ".join(found.split()), _LONGEST)
        return DamagedStoreError(
            f"history {self.path} is damaged; {how_to_restore(self.path)}",
            details=(
                f"found: {why}; nothing was changed",
                "or save what can be read: sqlite3 FILE .recover",
            ),
        )


@contextmanager
def _whole(connection: sqlite3.Connection, begin: str = "") -> Iterator[None]:
    """Begin a transaction, unless it has begun, and commit all of it or nothing."""
    if begin:
        connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def _why_no_locks(folder: Path) -> str:
    """Return why files in a directory cannot be locked; empty if they can.

    SQLite reports a missing lock service (ENOLCK) like a lock of another process.  The test uses another file:
    closing a handle of the history would release the locks of this process.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return (error.strerror or str(error)) if error.errno in _NO_LOCKS else ""
    return ""


def _code(error: sqlite3.Error) -> int | None:
    """Return the primary result code; None for errors of the Python module."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _has_magic(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC
