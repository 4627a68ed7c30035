"""The history of a team's nights: what was measured, how it was judged, and the reports behind it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from reid_dist._version import __version__
from reid_dist.errors import InputError
from reid_dist.nightly.history.database import Database
from reid_dist.nightly.history.facts import stored_text
from reid_dist.nightly.history.keeping import Marker, copy_before, read_marker, write_marker
from reid_dist.nightly.history.lookups import entry_row, require_entry_row, require_run
from reid_dist.nightly.history.pruning import Pruned, prune
from reid_dist.nightly.history.references import reference_entry
from reid_dist.nightly.history.report_rows import insert_report, read_report
from reid_dist.nightly.history.rows import insert_entry, insert_findings, read_entries
from reid_dist.nightly.history.run_rows import insert_run, read_runs
from reid_dist.nightly.history.run_state import run_state, this_host
from reid_dist.nightly.history.schema import now
from reid_dist.nightly.history.seals import insert_rows, update_row
from reid_dist.nightly.history.values import DONE, Entry, Finding, Past, Run
from reid_dist.reports import Report
from reid_dist.reports.packing import pack

__all__ = ["History"]

# Runs that are read at once by who goes back from the newest: few at first, for mostly few are enough.
_FIRST_BATCH: Final = 4
_LARGEST_BATCH: Final = 128


class History:
    """An SQLite file with the runs of suites.

    Several processes may read and write it at once, and each may be killed at any moment: what a method returned for
    is in the file, whole, and nothing else is.  Two hosts may share the file if their file system has locks.  Made by
    :meth:`open`.
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
        """Open a history, and compare everything in it with what was written.

        Parameters
        ----------
        path
            A local file.
        create
            Make the file where there is none.
        read_only
            Leave the file as it is.
        timeout
            Seconds to wait for another process that writes.

        Raises
        ------
        StoreNotFoundError
            If there is none, and none is to be made.
        DamagedStoreError
            If it is damaged, or lost: the file is missing or empty and had runs.
        StoreError
            If the file is something else, of another schema, locked for longer than `timeout`, or cannot be used.
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
        version: str = __version__,
        started: str | None = None,
        planned: Sequence[str] = (),
        hours: float | None = None,
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
        planned
            Names of all jobs of the suite.
        hours
            Time budget of the suite; None for none.
        above
            The number is larger than this one: of a directory that holds reports of a history that is lost.
        """
        run = Run(
            number=0,
            suite=suite,
            suite_digest=suite_digest,
            started=started or now(),
            host=host or this_host(),
            pid=os.getpid() if pid is None else pid,
            version=version,
            folder=folder,
            planned=tuple(planned),
            hours=hours,
        )
        with self._database.writing() as connection:
            marker = read_marker(self._database.path)
            # Numbers of runs that were lost are not given again either.
            number = insert_run(connection, run, above=max(above, 0 if marker is None else marker.last_run))
            if marker is None:
                began = connection.execute("SELECT number, suite, started FROM runs ORDER BY number LIMIT 1").fetchone()
                marker = Marker(int(began[0]), began[1], began[2], number)
            # Before the end of the transaction: a run that is in the file is known beside it.
            write_marker(self._database.path, replace(marker, last_run=number))
        return number

    def back_up(self) -> Path | None:
        """Copy the file before a night, and keep the copies of the last seven; None where there is no run yet.

        Raises
        ------
        StoreError
            If the copy cannot be written.
        """
        with self._database.apart() as connection:
            (last,) = connection.execute("SELECT last_run FROM made").fetchone()
            return copy_before(connection, self._database.path, int(last) + 1) if last else None

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
            require_run(connection, run_number, file=self.path)
            if entry_row(connection, run_number, entry.name) is not None:
                raise InputError(f"run {run_number} has an entry {entry.name} already; names are unique in a run")
            row = insert_entry(connection, run_number, entry)
            insert_findings(connection, row, entry.findings)
            update_row(connection, "runs", run_number, seen=now())
            if entry.accepted:
                _accept(connection, row, entry.accepted)
            if packed is not None:
                insert_report(connection, row, packed, entry.result_digest)

    def judge(self, run_number: int, name: str, findings: Sequence[Finding]) -> None:
        """Write what the gates found of an entry, in place of what they found before.

        Raises
        ------
        StoreNotFoundError
            If there is no such entry.
        """
        with self._database.writing() as connection:
            row = require_entry_row(connection, run_number, name, file=self.path)
            insert_findings(connection, row, findings)

    def finish(self, run_number: int, exit_code: int) -> None:
        """Write down that a run ended, and with which exit code.

        Raises
        ------
        StoreNotFoundError
            If there is no such run.
        """
        with self._database.writing() as connection:
            require_run(connection, run_number, file=self.path)
            update_row(connection, "runs", run_number, finished=now(), exit_code=int(exit_code))

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
            require_run(connection, run_number, file=self.path)
            if name is None:
                rows = connection.execute(
                    "SELECT id FROM entries WHERE run = ? AND state = ?", (run_number, DONE)
                ).fetchall()
            else:
                row = require_entry_row(connection, run_number, name, file=self.path)
                rows = connection.execute("SELECT id FROM entries WHERE id = ? AND state = ?", (row, DONE)).fetchall()
            if not rows:
                what = f"run {run_number}" if name is None else f"{name} of run {run_number}"
                raise InputError(f"{what} has no result that could be accepted: it was not evaluated")
            for (row,) in rows:
                _accept(connection, row, why.strip())
        return len(rows)

    def runs(
        self,
        *,
        suite: str | None = None,
        last: int | None = None,
        name: str | None = None,
        before: int | None = None,
    ) -> list[Run]:
        """Return runs, oldest first, with entries and findings.

        Parameters
        ----------
        suite
            Of this suite only.
        last
            The newest so many only.
        name
            With the entries of this name only; runs without one are there still.
        before
            Of smaller numbers only.
        """
        if last is not None and last < 1:
            raise InputError(f"the number of last runs must be at least 1, found {last}")
        with self._database.reading() as connection:
            runs = read_runs(
                connection,
                "WHERE (?1 IS NULL OR suite = ?1) AND (?2 IS NULL OR number < ?2) ORDER BY number DESC LIMIT ?3",
                (suite, before, -1 if last is None else last),
                file=self.path,
            )
            if not runs:
                return []
            entries: dict[int, list[Entry]] = {run.number: [] for run in runs}
            for number, entry in read_entries(
                connection,
                "WHERE (?1 IS NULL OR runs.suite = ?1) AND runs.number BETWEEN ?2 AND ?3 "
                "AND (?4 IS NULL OR entries.name = ?4) ORDER BY entries.id",
                (suite, runs[-1].number, runs[0].number, name),
                file=self.path,
            ):
                entries[number].append(entry)
        return [replace(run, entries=tuple(entries[run.number])) for run in reversed(runs)]

    def newest_first(
        self, *, suite: str | None = None, name: str | None = None, before: int | None = None
    ) -> Iterator[Run]:
        """Yield runs as :meth:`runs` has them, the newest first; hardly more is read than is taken."""
        size = _FIRST_BATCH
        while batch := self.runs(suite=suite, name=name, before=before, last=size):
            yield from reversed(batch)
            before, size = batch[0].number, min(2 * size, _LARGEST_BATCH)

    def run(self, number: int) -> Run:
        """Return a run with entries and findings.

        Raises
        ------
        StoreNotFoundError
            If there is none of that number.
        """
        with self._database.reading() as connection:
            require_run(connection, number, file=self.path)
            (run,) = read_runs(connection, "WHERE number = ?", (number,), file=self.path)
            found = read_entries(connection, "WHERE runs.number = ? ORDER BY entries.id", (number,), file=self.path)
            return replace(run, entries=tuple(entry for _, entry in found))

    def states(self, *, at: datetime | None = None) -> dict[int, str]:
        """Return the states of all runs by their numbers, as of a time, or of now; reads no entry."""
        with self._database.reading() as connection:
            runs = read_runs(connection, "ORDER BY number", (), file=self.path)
        return {run.number: run_state(run, at=at) for run in runs}

    def last_good(self, suite: str, name: str, *, before: int) -> Past | None:
        """Return the newest good entry of that name in an earlier run of the suite; None if there is none."""
        return self._newest_good("", (suite, name, before))

    def same_options(self, suite: str, name: str, input_digest: str, job_digest: str, *, before: int) -> Past | None:
        """Return the newest good entry of that name with the same inputs and the same job; None if there is none."""
        return self._newest_good(
            "AND entries.input_digest = ? AND entries.job_digest = ?", (suite, name, before, input_digest, job_digest)
        )

    def reference(self, suite: str, entry: Entry, *, before: int) -> Past | None:
        """Return the run that an entry is held against whatever happened since; None if there is none.

        The newest accepted entry of that name and the same question (:attr:`Entry.question`) in an earlier run of the
        suite; where none was accepted, the first good one.
        """
        with self._database.reading() as connection:
            return reference_entry(connection, suite, entry, before=before, file=self.path)

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
            row = require_entry_row(connection, run_number, name, file=self.path)
            return read_report(connection, row, f"report of {name} of run {run_number} in history {self.path}")

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

        A run stays as long as it holds the last good entry of a name of its suite or the one that it is held against
        until another is accepted (:meth:`reference`), or is running.

        Parameters
        ----------
        keep
            Runs of each suite that stay.
        older_than
            Runs that began later stay.  With both, a run goes only if neither keeps it.
        keep_reports
            Newest runs of each suite whose reports stay; the numbers of older ones stay in any case.
        at
            The time that `older_than` and the state of runs (:func:`~reid_dist.nightly.history.run_state.run_state`)
            refer to; None for now.
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


def _accept(connection: sqlite3.Connection, row: int, why: str) -> None:
    connection.execute("DELETE FROM accepted WHERE entry = ?", (row,))
    insert_rows(connection, "accepted", [(row, stored_text(why), now())])
