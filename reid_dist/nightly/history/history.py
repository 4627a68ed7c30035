"""History of nightly runs in one SQLite file: results, findings of the gates, and reports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from reid_dist._version import __version__
from reid_dist.core.formatting import utc_now
from reid_dist.errors import InputError
from reid_dist.nightly.history.backups import Marker, copy_before, read_marker, write_marker
from reid_dist.nightly.history.checksums import update_row
from reid_dist.nightly.history.database import Database
from reid_dist.nightly.history.packing import pack
from reid_dist.nightly.history.pruning import Pruned, prune
from reid_dist.nightly.history.rows import (
    accept_entry,
    entry_row,
    insert_entry,
    insert_findings,
    insert_report,
    insert_run,
    read_entries,
    read_report,
    read_runs,
    reference_entry,
    require_entry_row,
    require_run,
)
from reid_dist.nightly.history.run_state import run_state, this_host
from reid_dist.nightly.history.values import DONE, Entry, Past, Run
from reid_dist.reports import Report


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
            number = insert_run(connection, run, above=max(above, 0 if marker is None else marker.last_run))
            if marker is None:
                began = connection.execute("SELECT number, suite, started FROM runs ORDER BY number LIMIT 1").fetchone()
                marker = Marker(int(began[0]), began[1], began[2], number)
            # Before the end of the transaction: the marker covers every run in the file.
            write_marker(self._database.path, replace(marker, last_run=number))
        return number

    def back_up(self) -> Path | None:
        """Copy the file before a night and keep the copies of the last seven; None if there is no run yet."""
        with self._database.apart() as connection:
            (last,) = connection.execute("SELECT last_run FROM made").fetchone()
            return copy_before(connection, self._database.path, int(last) + 1) if last else None

    def add(self, run_number: int, entry: Entry, report: Report | None) -> None:
        """Record an entry and its report, which is stored without nearest items and pictures.

        InputError if the run has an entry of that name, or the result digests of entry and report differ.
        """
        if report is not None and report.result_digest != entry.result_digest:
            raise InputError(
                f"the report of {entry.name} has result digest {report.result_digest}, "
                f"the entry has {entry.result_digest or 'none'}"
            )
        packed = None if report is None else pack(report)
        with self._database.writing() as connection:
            require_run(connection, run_number, file=self.path)
            if entry_row(connection, run_number, entry.name) is not None:
                raise InputError(f"run {run_number} has an entry {entry.name} already; names are unique in a run")
            row = insert_entry(connection, run_number, entry)
            insert_findings(connection, row, entry.findings)
            update_row(connection, "runs", run_number, seen=utc_now())
            if entry.accepted:
                accept_entry(connection, row, entry.accepted)
            if packed is not None:
                insert_report(connection, row, packed, entry.result_digest)

    def finish(self, run_number: int, exit_code: int) -> None:
        """Record the end of a run and its exit code."""
        with self._database.writing() as connection:
            require_run(connection, run_number, file=self.path)
            update_row(connection, "runs", run_number, finished=utc_now(), exit_code=int(exit_code))

    def accept(self, run_number: int, name: str | None, why: str) -> int:
        """Accept the findings of an entry, or without a name of all that are done; return their number.

        They become the baselines of later nights.  InputError if `why` is empty, or nothing was done.
        """
        if not why.strip():
            raise InputError("the reason to accept the findings is empty; give one, it is shown with the entry")
        with self._database.writing() as connection:
            require_run(connection, run_number, file=self.path)
            if name is not None:
                require_entry_row(connection, run_number, name, file=self.path)
            done = "SELECT id FROM entries WHERE run = :run AND state = :state AND (:name IS NULL OR name = :name)"
            rows = connection.execute(done, {"run": run_number, "state": DONE, "name": name}).fetchall()
            if not rows:
                what = f"run {run_number}" if name is None else f"{name} of run {run_number}"
                raise InputError(f"{what} has no result to accept: it was not evaluated")
            for (row,) in rows:
                accept_entry(connection, row, why.strip())
        return len(rows)

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
        if last is not None and last < 1:
            raise InputError(f"the number of last runs must be at least 1, found {last}")
        with self._database.reading() as connection:
            runs = read_runs(
                connection,
                "WHERE (:suite IS NULL OR suite = :suite) AND (:before IS NULL OR number < :before) "
                "ORDER BY number DESC LIMIT :last",
                {"suite": suite, "before": before, "last": -1 if last is None else last},
            )
            if not runs:
                return []
            entries: dict[int, list[Entry]] = {run.number: [] for run in runs}
            for past in read_entries(
                connection,
                "WHERE (:suite IS NULL OR runs.suite = :suite) AND runs.number BETWEEN :first AND :last "
                "AND (:name IS NULL OR entries.name = :name) ORDER BY entries.id",
                {"suite": suite, "first": runs[-1].number, "last": runs[0].number, "name": name},
            ):
                entries[past.run].append(past.entry)
        return [replace(run, entries=tuple(entries[run.number])) for run in reversed(runs)]

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
            require_run(connection, number, file=self.path)
            (run,) = read_runs(connection, "WHERE number = ?", (number,))
            found = read_entries(connection, "WHERE runs.number = ? ORDER BY entries.id", (number,))
            return replace(run, entries=tuple(past.entry for past in found))

    def states(self, *, at: datetime | None = None) -> dict[int, str]:
        """Return the states of all runs by number, at a time or now, without reading entries."""
        with self._database.reading() as connection:
            runs = read_runs(connection, "ORDER BY number")
        return {run.number: run_state(run, at=at) for run in runs}

    def last_good(self, suite: str, name: str, *, before: int) -> Past | None:
        """Return the newest good entry of that name in an earlier run of the suite; None if there is none."""
        return self._newest_good("", (suite, name, before))

    def same_options(self, suite: str, name: str, input_digest: str, job_digest: str, *, before: int) -> Past | None:
        """Return the newest good entry of that name with equal inputs and an equal job; None if there is none."""
        return self._newest_good(
            "AND entries.input_digest = ? AND entries.job_digest = ?", (suite, name, before, input_digest, job_digest)
        )

    def reference(self, suite: str, entry: Entry, *, before: int) -> Past | None:
        """Return the entry that accuracy is compared with over many nights; None if there is none.

        The newest accepted entry of the same name and :attr:`Entry.comparison_key` in an earlier run of the suite;
        where none was accepted, the first good one.
        """
        with self._database.reading() as connection:
            return reference_entry(connection, suite, entry, before=before)

    def measured(self, suite: str, name: str, *, before: int, last: int) -> list[Past]:
        """Return the newest `last` entries of that name that are done, in earlier runs of the suite; oldest first."""
        with self._database.reading() as connection:
            found = read_entries(
                connection,
                "WHERE runs.suite = ? AND entries.name = ? AND runs.number < ? AND entries.state = ? "
                "ORDER BY runs.number DESC LIMIT ?",
                (suite, name, before, DONE, last),
            )
            return [*found][::-1]

    def report(self, run_number: int, name: str) -> Report:
        """Return the verified report of an entry, without nearest items and pictures.

        StoreNotFoundError if there is no such entry, it had no report, or the report was pruned; DamagedStoreError if
        a digest is wrong.
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
        """Remove old runs, or only their reports, and shrink the file.

        `keep` runs of each suite stay, and those younger than `older_than`; with both, a run goes only if neither
        keeps it.  The reports of `keep_reports` runs of each suite stay.  Runs that are running stay, and so do those
        that hold, for a name of their suite, the last good entry or its :meth:`reference`.  `at` is the time to which
        ages and states refer.
        """
        return prune(
            self._database, keep=keep, older_than=older_than, keep_reports=keep_reports, at=at, dry_run=dry_run
        )

    def _newest_good(self, more: str, parameters: Sequence[Any]) -> Past | None:
        where = f"WHERE runs.suite = ? AND entries.name = ? AND runs.number < ? {more} ORDER BY runs.number DESC"
        with self._database.reading() as connection:
            # Mostly the first one is good.
            return next((past for past in read_entries(connection, where, parameters) if past.entry.is_good), None)
