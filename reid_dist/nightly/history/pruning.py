"""Which old runs and reports are removed from a history, and removal of their folders."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from reid_dist.errors import InputError
from reid_dist.nightly.history.values import Run, reports_folder


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


def refuse_criteria(*, keep: int | None, older_than: timedelta | None, keep_reports: int | None) -> None:
    """Raise InputError for missing and negative criteria of :meth:`reid_dist.nightly.history.History.prune`."""
    if keep is None and older_than is None and keep_reports is None:
        raise InputError("nothing to prune by: give a number of runs to keep, an age, or a number of runs with reports")
    for what, number in (("runs", keep), ("runs with reports", keep_reports)):
        if number is not None and number < 0:
            raise InputError(f"the number of {what} to keep must be 0 or more, found {number}")
    if older_than is not None and older_than < timedelta(0):
        raise InputError(f"the age of what is removed must be 0 or more, found {older_than}")


def chosen_runs(
    runs: Sequence[Run],
    *,
    keep: int | None,
    older_than: timedelta | None,
    keep_reports: int | None,
    at: datetime | None,
) -> tuple[set[int], set[int]]:
    """Return the numbers of the runs that the criteria remove, and of those whose reports they remove."""
    old: set[int] = set()
    if keep is not None or older_than is not None:
        old = _beyond_newest(runs, keep or 0)
        if older_than is not None:
            limit = _stamp_before(at or datetime.now(UTC), older_than)
            old &= {run.number for run in runs if run.started < limit}
    return old, set() if keep_reports is None else _beyond_newest(runs, keep_reports)


def run_folders(run: Run) -> list[Path]:
    """Return the existing report directory of a run, in a list."""
    folder = Path(run.folder) / reports_folder(run.number)
    return [folder] if run.folder and (folder.exists() or folder.is_symlink()) else []


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


def _stamp_before(at: datetime, age: timedelta) -> str:
    """Return the stamp of a time this long ago; empty before the first year of the calendar."""
    try:
        return f"{(at - age).astimezone(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
    except OverflowError:
        return ""


def _beyond_newest(runs: Sequence[Run], keep: int) -> set[int]:
    """Return the numbers of all runs but the newest `keep` of each suite."""
    of_suites: dict[str, list[int]] = {}
    for run in reversed(runs):
        of_suites.setdefault(run.suite, []).append(run.number)
    return {number for numbers in of_suites.values() for number in numbers[keep:]}
