"""The history of a team's nights: what was measured, how it was judged, and the reports behind it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self

from reid_dist._version import __version__
from reid_dist.errors import DamagedStoreError, InputError, StoreNotFoundError
from reid_dist.history.database import Database
from reid_dist.history.liveness import this_host
from reid_dist.history.pruning import Pruned, prune
from reid_dist.history.rows import insert_entry, insert_findings, read_entries, stored_text
from reid_dist.history.schema import now
from reid_dist.history.values import DONE, Entry, Finding, Run
from reid_dist.reports import Report
from reid_dist.reports.packing import PackedReport, pack, unpack

__all__ = ["History", "Past"]

_SELECT = """
    SELECT number, suite, suite_digest, started, finished, exit_code, host, pid, version, folder FROM runs
"""
_RUN = ("number", "suite", "suite_digest", "started", "finished", "exit_code", "host", "pid", "version", "folder")


@dataclass(frozen=True, slots=True)
class Past:
    """An entry of an earlier run.

    Attributes
    ----------
    run
        Number of the run.
    entry
        What was measured and found.
    """

    run: int
    entry: Entry


class History:
    """An SQLite file with the runs of suites.

    Several processes may read and write it at once, and each may be killed at any moment: what a method returned for
    is in the file, whole, and nothing else is.  The file belongs on a disk of the machine: two machines that share it
    over a network do not see each other's locks.  Made by :meth:`open`.
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
        """Open a history; an older one is brought to today's schema.

        Parameters
        ----------
        path
            A local file.
        create
            Make the file where there is none.
        read_only
            Leave the file as it is; an older one is then brought up to date in memory.
        timeout
            Seconds to wait for another process that writes.

        Raises
        ------
        StoreNotFoundError
            If there is none, and none is to be made.
        DamagedStoreError
            If it is damaged.
        StoreError
            If the file is something else, of a newer schema, locked for longer than `timeout`, or cannot be used.
        """
        return cls(Database(path, create=create, read_only=read_only, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> os.PathLike[str]:
        """The file."""
        return self._database.path

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
        version: str = __version__,
        started: str | None = None,
        above: int = 0,
    ) -> int:
        """Write down that a run began; return its number, which no other run ever has.

        Parameters
        ----------
        suite, suite_digest, folder, version
            As in :class:`Run`.
        host, pid
            The process that runs it; None for this one.
        started
            UTC, ISO 8601 with seconds and ``Z``; None for now.
        above
            The number is larger than this one: of a directory that holds reports of a history that is lost.
        """
        texts = [stored_text(text) for text in (host or this_host(), version, folder)]
        with self._database.writing() as connection:
            row = connection.execute(
                "INSERT INTO runs (number, suite, suite_digest, started, pid, host, version, folder) "
                "SELECT 1 + max(?, coalesce(max(seq), 0)), ?, ?, ?, ?, ?, ?, ? FROM sqlite_sequence "
                "WHERE name = 'runs' RETURNING number",
                (
                    above,
                    stored_text(suite),
                    suite_digest,
                    started or now(),
                    os.getpid() if pid is None else pid,
                    *texts,
                ),
            ).fetchone()
        return int(row[0])

    def add(self, run_number: int, entry: Entry, report: Report | None) -> None:
        """Write an entry, and the report behind it.

        Parameters
        ----------
        run_number
            The run.
        entry
            What was measured; its findings may come now or by :meth:`judge`.
        report
            Kept without its nearest items and pictures; None for none.

        Raises
        ------
        InputError
            If the run has an entry of that name, or the report is not the one that the entry tells of.
        StoreNotFoundError
            If there is no such run.
        """
        if report is not None and report.result_digest != entry.result_digest:
            raise InputError(
                f"the report of {entry.name} has result digest {report.result_digest}, "
                f"the entry tells of {entry.result_digest or 'none'}"
            )
        packed = None if report is None else pack(report)
        with self._database.writing() as connection:
            self._require_run(connection, run_number)
            if self._row_of(connection, run_number, entry.name) is not None:
                raise InputError(f"run {run_number} has an entry {entry.name} already; names are unique in a run")
            row = insert_entry(connection, run_number, entry)
            insert_findings(connection, row, entry.findings)
            if entry.accepted:
                _accept(connection, row, entry.accepted)
            if packed is not None:
                connection.execute(
                    "INSERT INTO arrays VALUES (?, ?) ON CONFLICT DO NOTHING", (entry.result_digest, packed.per_query)
                )
                connection.execute("INSERT INTO reports VALUES (?, ?, ?)", (row, packed.document, entry.result_digest))

    def judge(self, run_number: int, name: str, findings: Sequence[Finding]) -> None:
        """Write what the gates found of an entry, in place of what they found before.

        Raises
        ------
        StoreNotFoundError
            If there is no such entry.
        """
        with self._database.writing() as connection:
            insert_findings(connection, self._require_row(connection, run_number, name), findings)

    def finish(self, run_number: int, exit_code: int) -> None:
        """Write down that a run ended, and with which exit code.

        Raises
        ------
        StoreNotFoundError
            If there is no such run.
        """
        with self._database.writing() as connection:
            self._require_run(connection, run_number)
            connection.execute(
                "UPDATE runs SET finished = ?, exit_code = ? WHERE number = ?", (now(), exit_code, run_number)
            )

    def accept(self, run_number: int, name: str | None, why: str) -> int:
        """Accept what the gates found: the entry becomes the baseline of later nights.

        Parameters
        ----------
        run_number
            The run.
        name
            ``model/dataset/job``; None for all entries of the run that are done.
        why
            For those who ask later.

        Returns
        -------
        How many entries were accepted.

        Raises
        ------
        InputError
            If `why` is empty, or the entry is not done.
        StoreNotFoundError
            If there is no such run or entry.
        """
        if not why.strip():
            raise InputError("say why the findings are accepted; those who ask later will want to know")
        with self._database.writing() as connection:
            self._require_run(connection, run_number)
            if name is None:
                rows = connection.execute(
                    "SELECT id FROM entries WHERE run = ? AND state = ?", (run_number, DONE)
                ).fetchall()
            else:
                row = self._require_row(connection, run_number, name)
                rows = connection.execute("SELECT id FROM entries WHERE id = ? AND state = ?", (row, DONE)).fetchall()
            if not rows:
                what = f"run {run_number}" if name is None else f"{name} of run {run_number}"
                raise InputError(f"{what} has no result that could be accepted: it was not evaluated")
            for (row,) in rows:
                _accept(connection, row, why.strip())
        return len(rows)

    def runs(self, *, suite: str | None = None, last: int | None = None, name: str | None = None) -> list[Run]:
        """Return runs, oldest first, with entries and findings.

        Parameters
        ----------
        suite
            Of this suite only.
        last
            The newest so many only.
        name
            With the entries of this name only; runs without one are there still.
        """
        if last is not None and last < 1:
            raise InputError(f"the number of last runs must be at least 1, found {last}")
        with self._database.reading() as connection:
            rows = connection.execute(
                f"{_SELECT} WHERE ?1 IS NULL OR suite = ?1 ORDER BY number DESC LIMIT ?2",
                (suite, -1 if last is None else last),
            ).fetchall()
            if not rows:
                return []
            entries: dict[int, list[Entry]] = {row[0]: [] for row in rows}
            for number, entry in read_entries(
                connection,
                "WHERE (?1 IS NULL OR runs.suite = ?1) AND runs.number >= ?2 AND (?3 IS NULL OR entries.name = ?3) "
                "ORDER BY entries.id",
                (suite, rows[-1][0], name),
                file=self.path,
            ):
                entries[number].append(entry)
        return [_run(row, entries[row[0]]) for row in reversed(rows)]

    def run(self, number: int) -> Run:
        """Return a run with entries and findings.

        Raises
        ------
        StoreNotFoundError
            If there is none of that number.
        """
        with self._database.reading() as connection:
            self._require_run(connection, number)
            row = connection.execute(f"{_SELECT} WHERE number = ?", (number,)).fetchone()
            found = read_entries(connection, "WHERE runs.number = ? ORDER BY entries.id", (number,), file=self.path)
            return _run(row, [entry for _, entry in found])

    def last_good(self, suite: str, name: str, *, before: int) -> Past | None:
        """Return the newest good entry of that name in an earlier run of the suite; None if there is none."""
        return self._newest_good("", (suite, name, before))

    def same_question(self, suite: str, name: str, input_digest: str, job_digest: str, *, before: int) -> Past | None:
        """Return the newest good entry of that name with the same inputs and the same job; None if there is none."""
        return self._newest_good(
            "AND entries.input_digest = ? AND entries.job_digest = ?", (suite, name, before, input_digest, job_digest)
        )

    def measured(self, suite: str, name: str, *, before: int, last: int) -> list[Past]:
        """Return the newest `last` entries of that name that are done, of earlier runs of the suite; newest last."""
        with self._database.reading() as connection:
            found = read_entries(
                connection,
                "WHERE runs.suite = ? AND entries.name = ? AND runs.number < ? AND entries.state = ? "
                "ORDER BY runs.number DESC LIMIT ?",
                (suite, name, before, DONE, last),
                file=self.path,
            )
            return [Past(number, entry) for number, entry in found][::-1]

    def report(self, run_number: int, name: str) -> Report:
        """Return the whole report of an entry, verified; its nearest items and pictures were not kept.

        Raises
        ------
        StoreNotFoundError
            If there is no such entry, it had no report, or the report was pruned.
        DamagedStoreError
            If it is not as it was written.
        """
        with self._database.reading() as connection:
            row = self._require_row(connection, run_number, name)
            state, result_digest = connection.execute(
                "SELECT state, result_digest FROM entries WHERE id = ?", (row,)
            ).fetchone()
            packed = connection.execute(
                "SELECT document, per_query FROM reports JOIN arrays USING (result_digest) WHERE entry = ?", (row,)
            ).fetchone()
        where = f"report of {name} of run {run_number} in history {self.path}"
        if packed is None:
            why = "it was pruned" if state == DONE else f"the job {'failed' if state == 'failed' else 'was skipped'}"
            raise StoreNotFoundError(f"there is no {where}: {why}; choose another run")
        report = unpack(PackedReport(*packed), where)
        if report.result_digest != result_digest:
            raise DamagedStoreError(f"{where} has result digest {report.result_digest}, recorded is {result_digest}")
        return report

    def prune(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        keep_reports: int | None = None,
        at: datetime | None = None,
        dry_run: bool = False,
    ) -> Pruned:
        """Remove old runs, or only the reports behind them, and give the space back.

        A run stays as long as it holds the last good entry of a name of its suite, or its process runs on this host.

        Parameters
        ----------
        keep
            Runs of each suite that stay.
        older_than
            Runs that began later stay.  With both, a run goes only if neither keeps it.
        keep_reports
            Newest runs of each suite whose reports stay; the numbers of older ones stay in any case.
        at
            The time that `older_than` counts from; None for now.
        dry_run
            Only tell what would be removed.

        Raises
        ------
        InputError
            If nothing is asked for, or a number is negative.
        """
        return prune(
            self._database, keep=keep, older_than=older_than, keep_reports=keep_reports, at=at, dry_run=dry_run
        )

    def _newest_good(self, more: str, parameters: Sequence[Any]) -> Past | None:
        with self._database.reading() as connection:
            found = read_entries(
                connection,
                f"WHERE runs.suite = ? AND entries.name = ? AND runs.number < ? {more} ORDER BY runs.number DESC",
                parameters,
                file=self.path,
            )
            # One after the other: what is good is said in one place, and mostly the first one is.
            return next((Past(number, entry) for number, entry in found if entry.is_good), None)

    def _require_run(self, connection: sqlite3.Connection, number: int) -> None:
        if connection.execute("SELECT 1 FROM runs WHERE number = ?", (number,)).fetchone() is not None:
            return
        first, last = connection.execute("SELECT min(number), max(number) FROM runs").fetchone()
        known = "it is empty" if first is None else f"it has runs {first} to {last}"
        raise StoreNotFoundError(
            f"there is no run {number} in history {self.path}: {known}, less those that were pruned"
        )

    def _row_of(self, connection: sqlite3.Connection, run_number: int, name: str) -> int | None:
        row = connection.execute("SELECT id FROM entries WHERE run = ? AND name = ?", (run_number, name)).fetchone()
        return None if row is None else int(row[0])

    def _require_row(self, connection: sqlite3.Connection, run_number: int, name: str) -> int:
        self._require_run(connection, run_number)
        row = self._row_of(connection, run_number, name)
        if row is None:
            names = connection.execute("SELECT name FROM entries WHERE run = ? ORDER BY id", (run_number,)).fetchall()
            known = ", ".join(name for (name,) in names) or "none"
            raise StoreNotFoundError(f"run {run_number} of history {self.path} has no entry {name!r}; it has {known}")
        return row


def _accept(connection: sqlite3.Connection, row: int, why: str) -> None:
    connection.execute("INSERT OR REPLACE INTO accepted VALUES (?, ?, ?)", (row, stored_text(why), now()))


def _run(row: Sequence[Any], entries: Sequence[Entry]) -> Run:
    return Run(**dict(zip(_RUN, row, strict=True)), entries=tuple(entries))
