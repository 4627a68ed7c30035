"""What pruning removes, and what it never removes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from history_entries import BAD, GOOD, NAME, entry_of, failed_entry, holding, record, reported, small_report

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import Finding

OTHER = "vit/market1501/plain"
NIGHTS = itertools.count()


def night(
    history: History,
    finding: Finding | None = GOOD,
    *,
    suite: str = "market",
    day: int = 1,
    name: str = NAME,
    job: str | None = None,
) -> int:
    """A finished run of one entry with a report of its own; without a finding, a failed one.

    Without `job` every run has another job, so that none is the reference of a later one.
    """
    at = next(NIGHTS)
    report = small_report(1000 * len(suite) + at)
    done = reported(report, name=name, job_digest=job or f"job {at}", findings=(finding,))
    entry = failed_entry(name) if finding is None else done
    return record(history, entry, suite=suite, started=f"2026-01-{day:02}T02:00:00Z")


def numbers(history: History) -> list[int]:
    return [run.number for run in history.runs()]


def count(path: Path, table: str) -> int:
    with holding(path) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_the_newest_runs_of_each_suite_stay(history: History, path: Path) -> None:
    for _ in range(4):
        night(history)
        night(history, suite="veri")
    pruned = history.prune(keep=2)
    assert numbers(history) == [5, 6, 7, 8]
    assert (pruned.runs, pruned.n_entries, pruned.n_reports, pruned.kept) == ((1, 2, 3, 4), 4, 4, ())
    # A report is a document and its values per query.
    assert [count(path, table) for table in ("entries", "results")] == [4, 8]
    assert history.report(8, NAME).counts["n_query"] == 40


def test_the_last_good_run_of_each_name_stays_however_old(history: History) -> None:
    night(history)
    good = night(history)
    other = night(history, name=OTHER)
    for _ in range(3):
        night(history, BAD)
    night(history, None)
    pruned = history.prune(keep=0)
    assert pruned.kept == (good, other)
    assert numbers(history) == [good, other]
    assert history.last_good("market", NAME, before=99) is not None
    assert history.report(good, NAME).counts["n_query"] == 40
    assert history.report(other, OTHER).counts["n_query"] == 40


def test_an_accepted_run_replaces_the_baseline_before_it(history: History) -> None:
    good, bad = night(history), night(history, BAD)
    history.accept(bad, NAME, "a smaller model")
    assert history.prune(keep=0).runs == (good,)
    assert numbers(history) == [bad]


def test_the_reference_of_a_job_stays_at_any_age(history: History) -> None:
    first, *_ = (night(history, job="plain") for _ in range(5))
    pruned = history.prune(keep=1, keep_reports=1)
    assert (pruned.runs, pruned.kept) == ((2, 3, 4), (first,))
    assert history.report(first, NAME).counts["n_query"] == 40
    accepted = night(history, BAD, job="plain")
    history.accept(accepted, NAME, "a smaller model")
    last = night(history, job="plain")
    assert history.prune(keep=1).runs == (first, 5)
    assert numbers(history) == [accepted, last]


def test_the_reference_is_the_last_accepted_run_or_the_first_comparable_one(history: History) -> None:
    tonight = entry_of(small_report(1), job_digest="plain")
    assert history.reference("market", tonight, before=99) is None
    night(history, job="other")
    runs = [night(history, finding, job="plain") for finding in (BAD, GOOD, GOOD, BAD, GOOD, GOOD)]

    def reference(before: int = 99) -> int | None:
        found = history.reference("market", tonight, before=before)
        return None if found is None else found.run

    assert reference() == runs[1], "the first one that is good"
    assert reference(before=runs[1]) is None
    history.accept(runs[2], NAME, "as it should be")
    history.accept(runs[3], NAME, "a smaller model")
    assert reference() == runs[3]
    assert reference(before=runs[3]) == runs[2]
    assert history.reference("veri", tonight, before=99) is None
    other = entry_of(small_report(1), job_digest="plain", counts={"n_query": 40, "n_gallery": 101})
    assert history.reference("market", other, before=99) is None, "another gallery"


def test_baselines_are_kept_per_suite(history: History) -> None:
    first, second = night(history), night(history, suite="veri")
    assert history.prune(keep=0).runs == ()
    assert numbers(history) == [first, second]


def test_runs_are_removed_by_age(history: History) -> None:
    for day in (1, 10, 20, 30):
        night(history, day=day)
    at = datetime(2026, 1, 31, 2, tzinfo=UTC)
    assert history.prune(older_than=timedelta(days=21), at=at, dry_run=True).runs == (1,)
    assert history.prune(older_than=timedelta(days=20), at=at, keep=3).runs == (1,)
    assert history.prune(older_than=timedelta(days=5), at=at, keep=2).runs == (2,)
    assert numbers(history) == [3, 4]


def test_a_dry_run_removes_nothing(history: History, path: Path) -> None:
    for _ in range(3):
        night(history)
    would = history.prune(keep=1, dry_run=True)
    assert numbers(history) == [1, 2, 3]
    assert count(path, "results") == 6
    done = history.prune(keep=1)
    assert (
        (would.runs, would.n_entries, would.n_reports) == (done.runs, done.n_entries, done.n_reports) == ((1, 2), 2, 2)
    )
    assert would.n_bytes == 0


def test_reports_are_removed_without_their_runs(history: History, path: Path) -> None:
    good = night(history)
    for _ in range(4):
        night(history, BAD)
    pruned = history.prune(keep_reports=2)
    assert (pruned.runs, pruned.n_reports, pruned.kept) == ((), 2, (good,))
    assert [run.entries[0].metrics["mAP"].value is not None for run in history.runs()] == [True] * 5
    for number in (good, 4, 5):
        assert history.report(number, NAME).counts["n_query"] == 40
    for number in (2, 3):
        with pytest.raises(StoreNotFoundError, match=f"report of {NAME} of run {number} .* it was pruned"):
            history.report(number, NAME)
    assert count(path, "results") == 6


def test_arrays_stay_as_long_as_one_report_needs_them(history: History, path: Path) -> None:
    report = small_report(0)
    for job in "abc":
        record(history, reported(report, job_digest=job))
    assert count(path, "results") == 2, "equal ones are kept once"
    assert history.prune(keep=1).n_reports == 2
    assert count(path, "results") == 2
    assert history.report(3, NAME).to_dict() == report.to_dict()


def test_a_run_whose_process_is_there_stays_and_a_killed_one_goes(history: History) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    running, here = history.begin("market", "", pid=child.pid), history.begin("market", "", pid=os.getpid())
    night(history)
    assert history.prune(keep=1).kept == (running, here)
    child.communicate(b"\n")
    assert history.prune(keep=1).runs == (running,)
    # This run goes on as if nothing had been.
    report = small_report(3)
    history.add(here, entry_of(report), report)
    assert history.report(here, NAME).result_digest == report.result_digest


@pytest.mark.slow
def test_the_file_becomes_smaller(history: History, path: Path) -> None:
    for seed in range(6):
        record(history, reported(small_report(seed, n_query=20_000), job_digest=f"{seed}"))
    history.prune(keep=6)
    before = path.stat().st_size
    pruned = history.prune(keep=1)
    assert path.stat().st_size < before / 3
    assert pruned.n_bytes == before - path.stat().st_size


@pytest.mark.parametrize("given", [{"keep": -1}, {"keep_reports": -2}])
def test_negative_numbers_remove_nothing(tmp_path: Path, given: dict[str, int]) -> None:
    with History.open(tmp_path / "history.db") as history:
        night(history)
        with pytest.raises(InputError, match="0 or more"):
            history.prune(**given)
        assert len(history.runs()) == 1


def test_a_call_that_says_nothing_to_remove_is_refused(history: History) -> None:
    first, second = night(history), night(history)
    with pytest.raises(InputError, match="keep, older_than or keep_reports"):
        history.prune()
    assert numbers(history) == [first, second]
