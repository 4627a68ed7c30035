"""Removal of old runs and reports from a history."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from reid_dist.errors import InputError
from reid_dist.nightly.history.database import Database
from reid_dist.nightly.history.rows import read_entries, read_runs, reference_entry
from reid_dist.nightly.history.run_state import RUNNING, run_state
from reid_dist.nightly.history.values import reports_folder


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """Removed runs and reports."""

    # Numbers of the removed runs, and of their entries and reports; `n_reports` has those of other runs as well.
    runs: tuple[int, ...]
    n_entries: int
    n_reports: int
    # Bytes by which the file shrank; 0 for a dry run.
    n_bytes: int
    # Numbers of old runs that stay as baselines, or because they are running.
    kept: tuple[int, ...]
    # Existing report directories of the removed runs, which are not removed.
    folders: tuple[Path, ...] = ()


def prune(
    database: Database,
    *,
    keep: int | None,
    older_than: timedelta | None,
    keep_reports: int | None,
    at: datetime | None,
    dry_run: bool,
) -> Pruned:
    """Remove old runs and reports; see :meth:`reid_dist.nightly.history.History.prune`."""
    if keep is None and older_than is None and keep_reports is None:
        raise InputError("nothing to prune by: give a number of runs to keep, an age, or a number of runs with reports")
    for what, number in (("runs", keep), ("runs with reports", keep_reports)):
        if number is not None and number < 0:
            raise InputError(f"the number of {what} to keep must be 0 or more, found {number}")
    if older_than is not None and older_than < timedelta(0):
        raise InputError(f"the age of what is removed must be 0 or more, found {older_than}")
    before = _size(database)
    with database.writing() as connection:
        connection.execute("SAVEPOINT removal")
        pruned = _removed(connection, keep, older_than, keep_reports, at or datetime.now(UTC))
        if dry_run:
            connection.execute("ROLLBACK TO removal")
    if dry_run:
        return pruned
    with database.apart() as connection:
        # executescript steps the statement to its end; each step frees one page.
        connection.executescript("PRAGMA incremental_vacuum")
    return replace(pruned, n_bytes=max(0, before - _size(database)))


def remove_folder(folder: Path) -> str:
    """Remove a folder of :attr:`Pruned.folders` without following links; return why it stays, empty if it is gone."""
    # The directory of the page may be a link, since the user chose it; what is inside may not.
    if folder.is_symlink() or folder.parent.is_symlink():
        return "skipped: symbolic link"
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _removed(
    connection: sqlite3.Connection,
    keep: int | None,
    older_than: timedelta | None,
    keep_reports: int | None,
    at: datetime,
) -> Pruned:
    needed = _baselines(connection) | _running(connection, at)
    old: set[int] = set()
    if keep is not None or older_than is not None:
        old = _beyond_newest(connection, keep or 0)
        if older_than is not None:
            limit = _stamp_before(at, older_than)
            old &= {number for (number,) in connection.execute("SELECT number FROM runs WHERE started < ?", (limit,))}
    stale = set() if keep_reports is None else _beyond_newest(connection, keep_reports)
    gone = old - needed
    n_entries = _count(connection, "SELECT count(*) FROM entries WHERE run = ?", gone)
    folders = [
        Path(folder) / reports_folder(number)
        for number in sorted(gone)
        for (folder,) in connection.execute("SELECT folder FROM runs WHERE number = ?", (number,))
        if folder
    ]
    reports = "FROM reports WHERE entry IN (SELECT id FROM entries WHERE run = ?)"
    n_reports = _count(connection, f"SELECT count(*) {reports}", gone | (stale - needed))
    connection.executemany(f"DELETE {reports}", [(number,) for number in stale - needed])
    connection.executemany("DELETE FROM runs WHERE number = ?", [(number,) for number in gone])
    connection.execute("DELETE FROM arrays WHERE result_digest NOT IN (SELECT result_digest FROM reports)")
    connection.execute(
        "DELETE FROM descriptions WHERE digest NOT IN "
        "(SELECT digest FROM entry_descriptions UNION SELECT planned FROM runs)"
    )
    return Pruned(
        runs=tuple(sorted(gone)),
        n_entries=n_entries,
        n_reports=n_reports,
        n_bytes=0,
        kept=tuple(sorted((old | stale) & needed)),
        folders=tuple(folder for folder in folders if folder.exists() or folder.is_symlink()),
    )


def _stamp_before(at: datetime, age: timedelta) -> str:
    """Return the stamp of a time this long ago; empty before the first year of the calendar."""
    try:
        return f"{(at - age).astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
    except OverflowError:
        return ""


def _beyond_newest(connection: sqlite3.Connection, keep: int) -> set[int]:
    """Return the numbers of all runs but the newest `keep` of each suite."""
    places = "SELECT number, row_number() OVER (PARTITION BY suite ORDER BY number DESC) AS place FROM runs"
    return {number for number, place in connection.execute(places) if place > keep}


def _baselines(connection: sqlite3.Connection) -> set[int]:
    """Return the runs with the last good entry of a name of their suite, and with its reference."""
    query = "SELECT DISTINCT suite, name FROM entries JOIN runs ON runs.number = entries.run"
    found = set()
    for suite, name in connection.execute(query).fetchall():
        where = "WHERE runs.suite = ? AND entries.name = ? ORDER BY runs.number DESC"
        good = next((past for past in read_entries(connection, where, (suite, name)) if past.entry.is_good), None)
        if good is not None:
            reference = reference_entry(connection, suite, good.entry, before=good.run)
            found |= {good.run} if reference is None else {good.run, reference.run}
    return found


def _running(connection: sqlite3.Connection, at: datetime) -> set[int]:
    """Return the numbers of the running runs."""
    runs = read_runs(connection, "WHERE finished IS NULL")
    return {run.number for run in runs if run_state(run, at=at) == RUNNING}


def _count(connection: sqlite3.Connection, query: str, numbers: Iterable[int]) -> int:
    return sum(int(connection.execute(query, (number,)).fetchone()[0]) for number in numbers)


def _size(database: Database) -> int:
    with database.apart() as connection:
        pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
        return pages * int(connection.execute("PRAGMA page_size").fetchone()[0])
