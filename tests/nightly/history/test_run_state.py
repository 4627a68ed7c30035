"""State of a run: by its process on this host, by the time of its last entry on another."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from history_entries import NAME, alter, entry_of, failed_entry, last_seen, record

from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import (
    FINISHED,
    KILLED,
    LONGEST_SILENCE,
    RUNNING,
    Run,
    run_state,
    this_host,
)

SEEN = datetime(2026, 5, 9, 2, 30, tzinfo=UTC)


def unfinished(host: str, seen: str, **more: object) -> Run:
    fields = {"number": 1, "suite": "market", "suite_digest": "", "started": "2026-05-09T02:00:00Z", **more}
    return Run(host=host, pid=2**22 + 1, seen=seen, **fields)


@pytest.mark.parametrize(
    ("seen", "after", "expected"),
    [
        ("2026-05-09T02:30:00Z", timedelta(0), RUNNING),
        ("2026-05-09T02:30:00Z", LONGEST_SILENCE, RUNNING),
        ("2026-05-09T02:30:00Z", LONGEST_SILENCE + timedelta(seconds=1), KILLED),
        # The clock of that host is ahead of ours.
        ("2026-05-09T02:30:00Z", timedelta(minutes=-5), RUNNING),
        # No time at all.
        ("last night", timedelta(days=30), RUNNING),
        ("2026-05-09 02:30", LONGEST_SILENCE + timedelta(minutes=1), KILLED),
    ],
)
def test_a_run_of_another_host_that_is_not_seen_any_more_was_killed(seen: str, after: timedelta, expected: str) -> None:
    assert run_state(unfinished("another", seen), at=SEEN + after) == expected


@pytest.mark.parametrize(("hours", "silence"), [(2.0, LONGEST_SILENCE), (60.0, timedelta(hours=61))])
def test_a_time_budget_allows_a_longer_silence(hours: float, silence: timedelta) -> None:
    run = unfinished("another", "2026-05-09T02:30:00Z", hours=hours)
    assert run_state(run, at=SEEN + silence) == RUNNING
    assert run_state(run, at=SEEN + silence + timedelta(seconds=1)) == KILLED


def test_a_run_that_finished_is_finished_whenever_it_was_seen() -> None:
    run = unfinished("another", "2026-05-09T02:30:00Z", finished="2026-05-09T02:31:00Z")
    assert run_state(run, at=SEEN + timedelta(days=1)) == FINISHED


def test_the_state_of_a_run_of_this_host_depends_on_its_process_alone(history: History) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    number = history.begin("market", "", pid=child.pid)
    late = datetime.now(UTC) + timedelta(days=1)
    assert run_state(history.run(number), at=late) == RUNNING, "as on a machine that slept"
    child.communicate(b"\n")
    assert run_state(history.run(number)) == KILLED
    history.finish(number, 0)
    assert run_state(history.run(number)) == FINISHED


def test_a_process_that_began_after_the_run_is_another(history: History) -> None:
    number = history.begin("market", "", started="2026-01-01T00:00:00Z")
    assert datetime.now(UTC).year >= 2026
    assert run_state(history.run(number)) == KILLED


def test_a_run_is_seen_when_it_begins_and_with_every_entry(history: History, path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    number = history.begin("market", "", host="another", started="2026-05-09T02:00:00Z")
    for step in (lambda: None, lambda: history.add(number, failed_entry(NAME), None)):
        step()
        seen = datetime.fromisoformat(str(history.run(number).seen))
        assert before <= seen <= datetime.now(UTC)
        last_seen(path, number, SEEN)


def test_states_are_read_without_entries(history: History, path: Path) -> None:
    numbers = [history.begin("market", "", host=host) for host in (this_host(), "another", "another", "another")]
    history.finish(numbers[2], 0)
    last_seen(path, numbers[1], SEEN)
    last_seen(path, numbers[3], SEEN + 2 * LONGEST_SILENCE)
    history.add(numbers[1], entry_of(), None)
    last_seen(path, numbers[1], SEEN)
    alter(path, "UPDATE entries SET document = '{}'")
    expected = [RUNNING, RUNNING, FINISHED, RUNNING]
    assert history.states(at=SEEN + LONGEST_SILENCE) == dict(zip(numbers, expected, strict=True))
    expected[1] = KILLED
    assert history.states(at=SEEN + 2 * LONGEST_SILENCE) == dict(zip(numbers, expected, strict=True))


def test_pruning_keeps_what_runs_on_another_host(history: History, path: Path) -> None:
    killed, running, long = (history.begin("market", "", host="another", hours=hours) for hours in (None, None, 50.0))
    here = history.begin("market", "", pid=os.getpid())
    record(history)
    last_seen(path, killed, SEEN - 2 * LONGEST_SILENCE)
    last_seen(path, running, SEEN)
    last_seen(path, long, SEEN - 2 * LONGEST_SILENCE)
    pruned = history.prune(keep=1, at=SEEN)
    assert (pruned.runs, pruned.kept) == ((killed,), (running, long, here))
