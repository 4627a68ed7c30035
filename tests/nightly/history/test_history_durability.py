"""Concurrent and killed processes: whatever a call returned for is in the file, whole."""

from __future__ import annotations

import random
import signal
import sqlite3
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from history_entries import BAD, NAME, entry_of, kill_after, small_report, start

from reid_dist.nightly.history import History
from reid_dist.nightly.history.chain import SCHEMA

OTHER = "vit/market1501/plain"


def join_all(started: list[ForkServerProcess]) -> None:
    """Wait for processes, none of which fails."""
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * len(started)


def append_runs(path: Path, seed: int, n_runs: int) -> None:
    """Append runs of two entries with reports; the first results are the same in all processes."""
    with History.open(path) as history:
        for night in range(n_runs):
            number = history.begin(f"suite {seed}", "")
            for name, report in ((NAME, small_report(night)), (OTHER, small_report(1000 * seed + night))):
                history.add(number, entry_of(report, name=name, findings=(BAD,)), report)
            history.finish(number, 0)


def append_for_ever(path: Path, seed: int, records: Path) -> None:
    """Append and prune; log the run and the name of each entry whose call returned."""
    with History.open(path) as history, records.open("ab", buffering=0) as returned:
        for night in range(100_000):
            number = history.begin("market", "")
            for name in (NAME, OTHER):
                report = small_report(100_000 * seed + night)
                history.add(number, entry_of(report, name=name), report)
                returned.write(f"{number} {name} {report.result_digest}\n".encode())
            history.finish(number, 0)
            if night % 4 == 3:
                history.prune(keep=20)


def prune_often(path: Path, n_times: int) -> None:
    with History.open(path) as history:
        for _ in range(n_times):
            history.prune(keep=2)
            time.sleep(0.01)


def write_until_killed(path: Path, n_statements: int) -> None:
    """Open, which makes the file; append a run; prune."""
    kill_after(n_statements)
    with History.open(path) as history:
        number = history.begin("market", "", folder="the run")
        report = small_report(7)
        history.add(number, entry_of(report, findings=(BAD,)), report)
        history.finish(number, 0)
        history.prune(keep=1)


def is_intact(path: Path) -> bool:
    connection = sqlite3.connect(path)
    problems = connection.execute("PRAGMA integrity_check").fetchall()
    problems += connection.execute("PRAGMA foreign_key_check").fetchall()
    connection.close()
    return problems == [("ok",)]


@pytest.mark.slow
def test_processes_that_append_at_once_lose_nothing(path: Path) -> None:
    n_processes, n_runs = 4, 10
    join_all([start(append_runs, path, seed, n_runs) for seed in range(n_processes)])
    assert is_intact(path)
    with History.open(path, create=False, read_only=True) as history:
        runs = history.runs()
        assert [run.number for run in runs] == list(range(1, n_processes * n_runs + 1))
        for seed in range(n_processes):
            of_one = [run for run in runs if run.suite == f"suite {seed}"]
            assert len(of_one) == n_runs
            for night, run in enumerate(of_one):
                assert run.exit_code == 0
                assert [entry.name for entry in run.entries] == [NAME, OTHER]
                assert all(entry.findings == (BAD,) for entry in run.entries)
                assert history.report(run.number, NAME).result_digest == small_report(night).result_digest
                assert history.report(run.number, OTHER).result_digest == run.entries[1].result_digest


@pytest.mark.slow
def test_pruning_beside_processes_that_append_takes_no_run_from_them(path: Path) -> None:
    join_all([start(append_runs, path, seed, 20) for seed in range(2)] + [start(prune_often, path, 60)])
    assert is_intact(path)
    with History.open(path) as history:
        history.prune(keep=2)
        runs = history.runs()
        # Nothing is good, hence nothing but the newest two of each suite stays.
        assert sorted(run.suite for run in runs) == ["suite 0", "suite 0", "suite 1", "suite 1"]
        for run in runs:
            for entry in run.entries:
                assert history.report(run.number, entry.name).result_digest == entry.result_digest


@pytest.mark.slow
def test_processes_that_open_at_once_make_the_file_once(path: Path) -> None:
    for _ in range(5):
        join_all([start(append_runs, path, seed, 0) for seed in range(4)])
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,), "the end of the chain"
        assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
        connection.close()
        path.unlink()


@pytest.mark.slow
def test_kills_at_random_moments(path: Path, tmp_path: Path) -> None:
    """What `add` returned for is there, whole, whenever the process dies."""
    dice = random.Random(3)
    total = 0
    for seed in range(40):
        records = tmp_path / f"records-{seed}"
        process = start(append_for_ever, path, seed, records)
        deadline = time.monotonic() + 60
        while not records.exists() or not records.stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.06))
        process.kill()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
        returned = [line.split() for line in records.read_text().splitlines()]
        # The first to open the file only reads; it rolls back the journal that the killed process left.
        with History.open(path, create=False, read_only=True) as history:
            runs = {run.number: run for run in history.runs()}
            newest = sorted({int(number) for number, _, _ in returned})[-19:]
            assert set(newest) <= set(runs)
            for number, name, result_digest in returned:
                run = runs.get(int(number))
                if run is not None:
                    assert result_digest in [entry.result_digest for entry in run.entries if entry.name == name]
                    assert history.report(run.number, name).result_digest == result_digest
            total += len(returned)
        assert is_intact(path)
    assert total > 40


@pytest.mark.slow
def test_kills_before_every_statement(tmp_path: Path) -> None:
    """Of making a file, of appending and of pruning: afterwards each step was done, or not at all."""
    seen = set()
    for n_statements in range(200):
        path = tmp_path / f"{n_statements}.db"
        process = start(write_until_killed, path, n_statements)
        process.join(60)
        with History.open(path) as history:
            new = history.runs()
            seen.add(
                tuple(
                    (len(run.entries), sum(len(entry.findings) for entry in run.entries), run.exit_code) for run in new
                )
            )
            for run in new:
                for entry in run.entries:
                    assert history.report(run.number, entry.name).result_digest == small_report(7).result_digest
        assert is_intact(path)
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    assert process.exitcode == 0
    assert n_statements > 40
    assert seen == {(), ((0, 0, None),), ((1, 1, None),), ((1, 1, 0),)}
