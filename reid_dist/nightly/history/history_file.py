"""History of nightly runs in one SQLite file: results, findings of the gates, and reports."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Final, Self

from reid_dist._version import __version__
from reid_dist.core.formatting import utc_now
from reid_dist.errors import DamagedStoreError, InputError, StoreNotFoundError
from reid_dist.nightly.history import chain
from reid_dist.nightly.history.backups import Marker, copy_before, read_marker, write_marker
from reid_dist.nightly.history.database import Database
from reid_dist.nightly.history.history_values import (
    RUNNING,
    Entry,
    Past,
    Run,
    State,
    entry_document,
    entry_of,
    moment,
    reports_folder,
    run_document,
    run_of,
    run_state,
    this_host,
)
from reid_dist.reports import Report
from reid_dist.reports.documents import with_digest
from reid_dist.reports.report_files import PER_QUERY
from reid_dist.stores.archive import write_arrays

_OF_SUITE: Final = "JOIN runs ON runs.number = entries.run WHERE runs.suite = ? AND entries.name = ? AND run < ?"


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


class History:
    """SQLite file with the runs of suites.

    Several processes may read and write it at once, and each may be killed at any moment: whatever a method returned
    for is in the file, whole, and nothing else is.  Two hosts may share the file if their file system has locks.  Made
    by :meth:`open`.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        timeout: float = 30.0,
    ) -> History:
        """Open a local file and check it for damage; errors are those of `Database`.

        With `read_only` nothing is written, but the journal of a killed process is rolled back.  `timeout` is the
        seconds to wait for locks of other processes.
        """
        return cls(Database(path, create=create, read_only=read_only, timeout=timeout))

    @staticmethod
    def import_file(path: str | os.PathLike[str], *, timeout: float = 30.0) -> int:
        """Import a history of the schema before in its place, all of it or nothing; return the number of runs.

        A copy of the file stays among its copies.  InputError if it has the present schema; other errors are those of
        :meth:`open`.
        """
        database = Database(path, create=False, read_only=False, timeout=timeout, importing=True)
        database.close()
        if database.n_imported is None:
            raise InputError(f"history {database.path} needs no import; it can be used as it is")
        return database.n_imported

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> os.PathLike[str]:
        """Path of the file."""
        return self._database.path

    @property
    def caution(self) -> str:
        """Warning for a writer in one line, such as of runs that are lost; empty for none."""
        return self._database.missing_runs

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def begin(
        self,
        suite: str,
        suite_digest: str,
        *,
        folder: str = "",
        host: str | None = None,
        pid: int | None = None,
        started: str | None = None,
        planned: Sequence[str] = (),
        hours: float | None = None,
        above: int = 0,
    ) -> int:
        """Record the begin of a run, by default of this process and now; return its number, which is never used again.

        The number is larger than `above`, for a directory with reports of a lost history.
        """
        run = Run(
            number=0,
            suite=suite,
            suite_digest=suite_digest,
            started=started or utc_now(),
            host=host or this_host(),
            pid=os.getpid() if pid is None else pid,
            version=__version__,
            folder=folder,
            planned=tuple(planned),
            hours=hours,
        )
        with self._database.writing() as connection:
            marker = read_marker(self._database.path)
            # Numbers of lost runs are not used again either.
            number = 1 + max(above, chain.last_run(connection), 0 if marker is None else marker.last_run)
            chain.insert_run(connection, number, suite, run_document(run) | {"seen": utc_now()})
            if marker is None:
                (first,) = _runs(connection, "WHERE number > ? ORDER BY number LIMIT 1", (chain.HEAD,))
                marker = Marker(first.number, first.suite, first.started, number)
            # Before the end of the transaction: the marker covers every run in the file.
            write_marker(self._database.path, replace(marker, last_run=number))
        return number

    def back_up(self) -> Path | None:
        """Copy the file before a night and keep the copies of the last seven; None if there is no run yet."""
        with self._database.reading() as connection:
            last = chain.last_run(connection)
        with self._database.apart() as connection:
            return copy_before(connection, self._database.path, last + 1) if last else None

    def add(self, run_number: int, entry: Entry, report: Report | None) -> None:
        """Record an entry and its report, which is stored without nearest items and pictures.

        InputError if the run has an entry of that name.
        """
        values = () if report is None else pack(report)
        with self._database.writing() as connection:
            self._require_run(connection, run_number)
            if entry.name in _names(connection, run_number):
                raise InputError(f"run {run_number} has an entry {entry.name} already; names are unique in a run")
            with chain.changing(connection, run_number):
                results = [chain.insert_result(connection, content) for content in values]
                chain.insert_entry(connection, run_number, entry.name, entry_document(entry, results))
            chain.update_run(connection, run_number, seen=utc_now())

    def finish(self, run_number: int, exit_code: int) -> None:
        """Record the end of a run and its exit code."""
        with self._database.writing() as connection:
            self._require_run(connection, run_number)
            chain.update_run(connection, run_number, finished=utc_now(), exit_code=int(exit_code))

    def accept(self, run_number: int, name: str | None, why: str) -> int:
        """Accept the findings of an entry, or without a name of all that are done; return their number.

        They become the baselines of later nights.  InputError if `why` is empty, or nothing was done.
        """
        if not why.strip():
            raise InputError("the reason to accept the findings is empty; give one, it is shown with the entry")
        with self._database.writing() as connection:
            self._require_run(connection, run_number)
            if name is not None:
                self._require_entry(connection, run_number, name)
            found = chain.entry_rows(connection, "WHERE run = ?", (run_number,))
            names = [each for _, each, entry in found if entry["state"] == State.DONE and name in (None, each)]
            if not names:
                what = f"run {run_number}" if name is None else f"{name} of run {run_number}"
                raise InputError(f"{what} has no result to accept: it was not evaluated")
            with chain.changing(connection, run_number):
                for each in names:
                    chain.update_entry(connection, run_number, each, accepted=why.strip())
        return len(names)

    def runs(
        self,
        *,
        suite: str | None = None,
        last: int | None = None,
        name: str | None = None,
        before: int | None = None,
    ) -> list[Run]:
        """Return runs with entries and findings, oldest first.

        Only of a suite; only the newest `last`; only entries of a name, with runs that have none; only runs of smaller
        numbers than `before`.
        """
        with self._database.reading() as connection:
            runs = _runs(
                connection,
                "WHERE number > :head AND (:suite IS NULL OR suite = :suite) AND (:before IS NULL OR number < :before) "
                "ORDER BY number DESC LIMIT :last",
                {"head": chain.HEAD, "suite": suite, "before": before, "last": -1 if last is None else last},
            )
            return [_with_entries(connection, run, name) for run in reversed(runs)]

    def newest_first(
        self, *, suite: str | None = None, name: str | None = None, before: int | None = None
    ) -> Iterator[Run]:
        """Yield runs as :meth:`runs` returns them, newest first, each read when it is needed."""
        while found := self.runs(suite=suite, name=name, before=before, last=1):
            yield from found
            before = found[0].number

    def run(self, number: int) -> Run:
        """Return a run with entries and findings; StoreNotFoundError if there is none of that number."""
        with self._database.reading() as connection:
            self._require_run(connection, number)
            (run,) = _runs(connection, "WHERE number = ?", (number,))
            return _with_entries(connection, run, None)

    def states(self, *, at: datetime | None = None) -> dict[int, str]:
        """Return the states of all runs by number, at a time or now, without reading entries."""
        with self._database.reading() as connection:
            runs = _runs(connection, "WHERE number > ? ORDER BY number", (chain.HEAD,))
        return {run.number: run_state(run, at=at) for run in runs}

    def last_good(self, suite: str, name: str, *, before: int, **digests: str) -> Past | None:
        """Return the newest good entry of that name in an earlier run of the suite, with these digests; None for none.

        The digests are fields of an entry, such as `input_digest`.
        """
        with self._database.reading() as connection:
            # Mostly the first one is good.
            found = _past(connection, suite, name, before, digests)
            return next((past for past in found if past.entry.is_good), None)

    def reference(self, suite: str, entry: Entry, *, before: int, any_items: bool = False) -> Past | None:
        """Return the entry that accuracy is compared with over many nights; None if there is none.

        The newest accepted entry of the same name and :attr:`Entry.comparison_key` in an earlier run of the suite;
        where none was accepted, the first good one.  With `any_items` it may have other rows and labels.
        """
        with self._database.reading() as connection:
            return _reference(connection, suite, entry, before, any_items=any_items)

    def measured(self, suite: str, name: str, *, before: int, last: int) -> list[Past]:
        """Return the newest `last` entries of that name that are done, in earlier runs of the suite; oldest first."""
        with self._database.reading() as connection:
            found = _past(connection, suite, name, before)
            done = (past for past in found if past.entry.state == State.DONE)
            return [past for _, past in zip(range(last), done, strict=False)][::-1]

    def report(self, run_number: int, name: str) -> Report:
        """Return the verified report of an entry, without nearest items and pictures.

        StoreNotFoundError if there is no such entry, it had no report, or the report was pruned; DamagedStoreError if
        a digest is wrong.
        """
        with self._database.reading() as connection:
            document = self._require_entry(connection, run_number, name)
            where = f"report of {name} of run {run_number} in history {self.path}"
            return _report(connection, document, where)

    def prune(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        keep_reports: int | None = None,
        at: datetime | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove old runs, or only their reports, and shrink the file.

        `keep` runs of each suite stay, and those younger than `older_than`; with both, a run goes only if neither
        keeps it.  The reports of `keep_reports` runs of each suite stay.  Runs that are running stay, and so do those
        that hold, for a name of their suite, the last good entry or its :meth:`reference`.  `at` is the time to which
        ages and states refer.

        Raises
        ------
        InputError
            If nothing says what to remove, or a number of runs is negative.
        """
        if keep is None and older_than is None and keep_reports is None:
            raise InputError("nothing says what to remove; give keep, older_than or keep_reports")
        if min(keep or 0, keep_reports or 0) < 0:
            raise InputError(f"runs to keep must be 0 or more, found keep={keep}, keep_reports={keep_reports}")
        size = self._database.size()
        with self._database.writing() as connection:
            connection.execute("SAVEPOINT removal")
            pruned = _prune(connection, keep, older_than, keep_reports, at)
            if dry_run:
                connection.execute("ROLLBACK TO removal")
        if dry_run:
            return pruned
        with self._database.apart() as connection:
            # executescript steps the statement to its end; each step frees one page.
            connection.executescript("PRAGMA incremental_vacuum")
        return replace(pruned, n_bytes=max(0, size - self._database.size()))

    def _require_run(self, connection: sqlite3.Connection, number: int) -> None:
        query = "SELECT number FROM runs WHERE number > ? ORDER BY number"
        numbers = [each for (each,) in connection.execute(query, (chain.HEAD,))]
        if number not in numbers:
            known = f"it has runs {numbers[0]} to {numbers[-1]}" if numbers else "it is empty"
            raise StoreNotFoundError(
                f"there is no run {number} in history {self.path}: {known}, less those that were pruned"
            )

    def _require_entry(self, connection: sqlite3.Connection, run_number: int, name: str) -> chain.Document:
        """Return the document of an entry; StoreNotFoundError if there is no such run or entry."""
        self._require_run(connection, run_number)
        found = [each for _, _, each in chain.entry_rows(connection, "WHERE run = ? AND name = ?", (run_number, name))]
        if not found:
            known = ", ".join(_names(connection, run_number)) or "none"
            raise StoreNotFoundError(f"run {run_number} of history {self.path} has no entry {name!r}; it has {known}")
        return found[0]


# ------------------------------------------------------------------------------------------------------------- reports


def pack(report: Report) -> tuple[bytes, bytes]:
    """Return a report as bytes, without lists, names and pictures: ``report.json`` compressed, and ``per_query.npz``.

    The values per query are apart from the document, as they depend on the result alone: equal results share them.
    """
    document = with_digest(report.to_dict() | {"topk": None, "names": None, "pictures": None})
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    write_arrays(arrays := BytesIO(), report.per_query, compressed=True)
    return zlib.compress(text.encode("ascii"), 9), arrays.getvalue()


def unpack(document: bytes, per_query: bytes, where: str) -> Report:
    """Return the report that was packed into these bytes, which are as they were; errors call it `where`."""
    return Report.of_document(zlib.decompress(document), {PER_QUERY: per_query}.__getitem__, where)


def _report(connection: sqlite3.Connection, entry: chain.Document, where: str) -> Report:
    state = entry["state"]
    if not entry["results"]:
        why = (
            "it was pruned, or the job has means over splits"
            if state == State.DONE
            else f"the job {'failed' if state == State.FAILED else 'was skipped'}"
        )
        raise StoreNotFoundError(f"there is no {where}: {why}; choose another run")
    query = "SELECT content FROM results WHERE digest = ?"
    contents = [content for name in entry["results"] for (content,) in connection.execute(query, (name,))]
    if [chain.content_digest(content) for content in contents] != entry["results"]:
        raise DamagedStoreError(
            f"{where} is not what was written; put back a copy", details=("its bytes have another digest",)
        )
    document, per_query = contents
    return unpack(document, per_query, where)


# ------------------------------------------------------------------------------------------------------------- queries


def _runs(connection: sqlite3.Connection, where: str, parameters: chain.Parameters) -> list[Run]:
    return [run_of(*row) for row in chain.run_rows(connection, where, parameters)]


def _names(connection: sqlite3.Connection, run: int) -> list[str]:
    return [name for (name,) in connection.execute("SELECT name FROM entries WHERE run = ? ORDER BY id", (run,))]


def _with_entries(connection: sqlite3.Connection, run: Run, name: str | None) -> Run:
    where, parameters = "WHERE run = ? AND (? IS NULL OR name = ?) ORDER BY id", (run.number, name, name)
    return replace(
        run, entries=tuple(entry_of(document) for _, _, document in chain.entry_rows(connection, where, parameters))
    )


def _past(
    connection: sqlite3.Connection, suite: str, name: str, before: int, wanted: chain.Document | None = None
) -> Iterator[Past]:
    """Yield the entries of a name in earlier runs of a suite, newest first, whose documents have these values."""
    for run, _, document in chain.entry_rows(connection, f"{_OF_SUITE} ORDER BY run DESC", (suite, name, before)):
        if all(document[key] == value for key, value in (wanted or {}).items()):
            yield Past(run, entry_of(document))


def _reference(
    connection: sqlite3.Connection, suite: str, entry: Entry, before: int, *, any_items: bool
) -> Past | None:
    """Return the newest accepted comparable entry of the same name, or else the first good one."""
    wanted = {"job_digest": entry.job_digest, "state": State.DONE}
    first = None
    for past in _past(connection, suite, entry.name, before, wanted):
        if past.entry.is_good and (any_items or past.entry.comparison_key == entry.comparison_key):
            if past.entry.accepted:
                return past
            first = past
    return first


# ------------------------------------------------------------------------------------------------------------- pruning


def _prune(
    connection: sqlite3.Connection,
    keep: int | None,
    older_than: timedelta | None,
    keep_reports: int | None,
    at: datetime | None,
) -> Pruned:
    runs = [_with_entries(connection, run, None) for run in _runs(connection, "WHERE number > ?", (chain.HEAD,))]
    needed = _baselines(connection, runs) | {run.number for run in runs if run_state(run, at=at) == RUNNING}
    old = set() if keep is None and older_than is None else _beyond_newest(runs, keep or 0)
    if older_than is not None:
        now = at or datetime.now(UTC)
        old &= {run.number for run in runs if (began := moment(run.started)) is not None and now - began > older_than}
    stale = set() if keep_reports is None else _beyond_newest(runs, keep_reports)
    gone, without_reports = old - needed, stale - needed
    n_reports = n_entries = 0
    with chain.changing(connection, chain.HEAD):
        for run, name, document in list(chain.entry_rows(connection, "")):
            n_entries += run in gone
            if run in gone | without_reports and document["results"]:
                n_reports += 1
                chain.update_entry(connection, run, name, results=[])
        connection.executemany("DELETE FROM runs WHERE number = ?", [(number,) for number in gone])
        chain.remove_unused_results(connection)
    folders = (Path(run.folder) / reports_folder(run.number) for run in runs if run.folder and run.number in gone)
    return Pruned(
        runs=tuple(sorted(gone)),
        n_entries=n_entries,
        n_reports=n_reports,
        n_bytes=0,
        kept=tuple(sorted((old | stale) & needed)),
        folders=tuple(folder for folder in folders if folder.exists() or folder.is_symlink()),
    )


def _baselines(connection: sqlite3.Connection, runs: Sequence[Run]) -> set[int]:
    """Return the runs with the last good entry of a name of their suite, and with its references."""
    found: dict[tuple[str, str], set[int]] = {}
    for run in reversed(runs):
        for entry in run.entries:
            if entry.is_good and (run.suite, entry.name) not in found:
                references = (
                    _reference(connection, run.suite, entry, run.number, any_items=each) for each in (False, True)
                )
                found[run.suite, entry.name] = {run.number, *(each.run for each in references if each is not None)}
    return set().union(*found.values())


def _beyond_newest(runs: Sequence[Run], keep: int) -> set[int]:
    of_suites: dict[str, list[int]] = {}
    for run in reversed(runs):
        of_suites.setdefault(run.suite, []).append(run.number)
    return {number for numbers in of_suites.values() for number in numbers[keep:]}


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
