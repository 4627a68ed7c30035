"""Files that are no history, newer, older, locked, damaged, read-only or full: one clear line, and nothing lost."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from history_entries import BAD, GOOD, NAME, alter, holding, output_of, record, refused, reported, small_report

from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreNotFoundError
from reid_dist.nightly.history import History
from reid_dist.nightly.history.backups import marker_path
from reid_dist.nightly.history.chain import APPLICATION_ID, SCHEMA


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def two_nights(path: Path) -> None:
    with History.open(path) as history:
        for seed, finding in enumerate((GOOD, BAD)):
            record(history, reported(small_report(seed), findings=(finding,)), exit_code=4 * seed)


def test_a_missing_file_is_made_only_with_create(path: Path) -> None:
    for options in ({"create": False}, {"create": False, "read_only": True}, {"read_only": True}):
        with refused(StoreNotFoundError, "there is no history") as caught:
            History.open(path, **options)
        assert str(caught.value) == f"there is no history {path}; `reid-dist nightly` makes one"
    assert not path.exists()
    with History.open(path.parent / "deep" / "down" / "nightly.db") as history:
        assert history.runs() == []


def test_an_empty_file_becomes_a_history_only_with_create(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreNotFoundError, match="is empty, not a history"):
        History.open(path, create=False)
    assert path.stat().st_size == 0
    with History.open(path) as history:
        assert history.begin("market", "") == 1


def test_a_history_has_a_rollback_journal_and_strict_tables(path: Path) -> None:
    two_nights(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (SCHEMA,)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    tables = connection.execute("SELECT name, strict FROM pragma_table_list WHERE schema = 'main'").fetchall()
    assert {name for name, strict in tables if not strict} == {"sqlite_schema"}
    with pytest.raises(sqlite3.IntegrityError, match="cannot store TEXT value in INTEGER"):
        connection.execute("UPDATE entries SET run = 'high'")
    connection.close()


def test_other_files_are_refused_and_left_alone(path: Path, tmp_path: Path) -> None:
    path.write_text("run;mAP\n1;0.5\n" * 100)
    other = tmp_path / "other.db"
    alter(other, "CREATE TABLE runs (number INTEGER)")
    for file, words in (
        (path, "no SQLite file"),
        (other, "an SQLite file of another program"),
        (tmp_path, "a directory"),
    ):
        before = digest_of(file) if file.is_file() else ""
        for options in ({}, {"create": False}, {"create": False, "read_only": True}):
            with refused(StoreError, words) as caught:
                History.open(file, **options)
            assert not isinstance(caught.value, DamagedStoreError)
            assert caught.value.exit_code == 2
        assert not file.is_file() or digest_of(file) == before
    assert {item.name for item in tmp_path.iterdir()} == {"nightly.db", "other.db"}
    with pytest.raises(InputError, match="local file, found the URI"):
        History.open("s3://bucket/nightly.db")


@pytest.mark.parametrize("schema", [0, 1, SCHEMA - 2, SCHEMA + 1, 99])
def test_a_history_of_another_schema_is_refused_and_left_alone(path: Path, schema: int) -> None:
    two_nights(path)
    alter(path, f"PRAGMA user_version = {schema}")
    before = digest_of(path)
    for read_only in (False, True):
        with refused(StoreError, f"has schema {schema}, reid-dist ") as caught:
            History.open(path, create=False, read_only=read_only)
        assert f"reads and writes {SCHEMA};" in str(caught.value)
        assert not isinstance(caught.value, DamagedStoreError)
        assert "use the version of reid-dist that wrote it, or name another file" in str(caught.value)
    assert digest_of(path) == before


def test_a_write_ahead_log_of_another_program_is_replaced(path: Path) -> None:
    two_nights(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    connection.close()
    with History.open(path) as history:
        assert history.begin("market", "") == 3
        assert not list(path.parent.glob("*-wal"))


def test_a_file_that_another_process_is_making_is_a_history(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind, schema and tables are read one after the other, and another process may write in between."""
    connect = sqlite3.connect

    class Interrupted(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            if arguments == ("PRAGMA user_version",) and sqlite3.connect is not connect:
                monkeypatch.setattr(sqlite3, "connect", connect)
                with contextlib.suppress(StoreError):
                    History.open(path, timeout=0.05).close()
            return super().execute(*arguments)

    path.touch()
    monkeypatch.setattr(sqlite3, "connect", functools.partial(connect, factory=Interrupted))
    with History.open(path) as history:
        assert history.begin("market", "") == 1


@pytest.mark.parametrize("words", ["BEGIN IMMEDIATE", "BEGIN; SELECT count(*) FROM runs"], ids=["writer", "reader"])
def test_a_writer_waits_for_another_process_and_loses_nothing(path: Path, words: str) -> None:
    two_nights(path)
    with holding(path, *words.split("; ")) as holder, History.open(path, timeout=0.2) as history:
        with refused(StoreError, "is locked: another process has been using it for more than 0.2 s"):
            history.begin("market", "")
        assert [run.number for run in history.runs()] == [1, 2], "reading goes on"
        with History.open(path) as another:
            assert another.caution == "", "no run is missing"
        holder.execute("ROLLBACK")
        assert history.begin("market", "") == 3


def test_a_file_that_is_locked_altogether_cannot_be_opened(path: Path) -> None:
    two_nights(path)
    with holding(path, "PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE"):
        for read_only in (False, True):
            with refused(StoreError, "is locked"):
                History.open(path, create=False, read_only=read_only, timeout=0.1)
    with History.open(path) as history:
        assert len(history.runs()) == 2


def test_a_full_disk_loses_nothing_that_was_there(path: Path) -> None:
    two_nights(path)
    with History.open(path) as history:
        number = history.begin("market", "")
        with history._database.apart() as connection:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
        with refused(StoreError, "the disk is full"):
            history.add(number, *reported(small_report(5, n_query=50_000)))
        assert [len(run.entries) for run in history.runs()] == [1, 1, 0]


_BOUNDED = """
import resource
with History.open(path) as history:
    number = history.begin("market", "")
    report = small_report(5, n_query=50_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        history.add(number, entry_of(report), report)
    except ReidDistError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_write_error_is_one_line(path: Path) -> None:
    two_nights(path)
    printed = output_of(_BOUNDED, path)
    assert printed.startswith(f"cannot use history {path}: disk I/O error")
    assert printed.count("\n") == 1
    with History.open(path) as history:
        assert [len(run.entries) for run in history.runs()] == [1, 1, 0]


@pytest.fixture
def path_for_all() -> Iterator[Path]:
    """In a directory that all users may read; every start of pytest closes its own to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "nightly.db"


_AS_NOBODY = """
def look():
    with History.open(path, create=False, read_only=True) as history:
        print(len(history.runs()), history.report(1, NAME).counts["n_query"])
look()  # imports modules that the user "nobody" cannot read
os.setgid(65534), os.setuid(65534)
look()
try:
    History.open(path).begin("market", "")
except ReidDistError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_a_directory_that_cannot_be_written_to_is_enough_for_reading(path_for_all: Path) -> None:
    path = path_for_all
    two_nights(path)
    *looks, last = output_of(_AS_NOBODY, path).splitlines()
    assert looks == ["2 40", "2 40"]
    assert last.startswith(f"cannot write to history {path}: the file or its directory is read-only")


_KILLED = """
import os, signal, sqlite3
connection = sqlite3.connect({path!r}, isolation_level=None)
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("UPDATE results SET content = zeroblob(100000)")
connection.execute("UPDATE entries SET document = hex(zeroblob(100000))")
os.kill(os.getpid(), signal.SIGKILL)
"""

_READ_AS_NOBODY = """
os.setgid(65534), os.setuid(65534)
try:
    History.open(path, create=False, read_only=True)
except ReidDistError as error:
    print(error)
"""


@pytest.mark.slow
def test_the_first_reader_rolls_back_what_a_killed_process_left(path_for_all: Path) -> None:
    path = path_for_all
    two_nights(path)
    journal = path.with_name(f"{path.name}-journal")
    subprocess.run([sys.executable, "-c", _KILLED.format(path=str(path))], check=False)
    assert journal.stat().st_size
    if os.getuid() == 0:
        printed = output_of(_READ_AS_NOBODY, path)
        assert printed.startswith(f"cannot read history {path}: a process was killed while it wrote, and rolling ")
        assert journal.exists()
    with History.open(path, create=False, read_only=True) as history:
        assert [history.report(number, NAME).result_digest for number in (1, 2)] == [
            small_report(seed).result_digest for seed in (0, 1)
        ]
    assert not journal.exists()


def test_a_cut_file_is_damaged(path: Path) -> None:
    two_nights(path)
    whole = path.read_bytes()
    for size in (len(whole) - 4096, len(whole) // 2, 5000, 700, 90):
        path.write_bytes(whole[:size])
        for read_only in (True, False):
            with refused(DamagedStoreError, "damaged"):
                History.open(path, read_only=read_only, create=False)
        assert path.read_bytes() == whole[:size]


CHANGES = (
    "UPDATE entries SET document = replace(document, '0.75', '0.76')",
    "UPDATE entries SET document = replace(document, '\"worse\"', '\"same\"')",
    "UPDATE entries SET document = replace(document, 'on purpose', 'by mistake')",
    "UPDATE entries SET document = replace(document, '\"results\":[', '\"results\":[]-') WHERE run = 1",
    "UPDATE entries SET run = 1, name = 'a/b/c' WHERE run = 2",
    "UPDATE entries SET digest = upper(digest)",
    "UPDATE entries SET name = 'a/b/c' WHERE run = 2",
    "UPDATE runs SET document = json_set(document, '$.finished', NULL) WHERE number = 2",
    "UPDATE runs SET document = json_set(document, '$.exit_code', 0) WHERE number = 2",
    "UPDATE runs SET suite = 'another' WHERE number = 1",
    "UPDATE runs SET number = 3 WHERE number = 2",
    "UPDATE runs SET document = json_set(document, '$.last_run', 1) WHERE number = 0",
    "UPDATE runs SET digest = (SELECT digest FROM runs WHERE number = 1) WHERE number = 2",
    "UPDATE results SET digest = upper(digest)",
    "INSERT INTO results VALUES ('another', x'00')",
    "INSERT INTO entries SELECT 9, 9, name, document, digest FROM entries WHERE run = 2",
    "INSERT INTO runs SELECT 3, suite, document, digest FROM runs WHERE number = 2",
    "DROP INDEX entries_of_name",
    "CREATE TABLE another (a INTEGER) STRICT",
    "DELETE FROM entries WHERE run = 1",
    "DELETE FROM entries",
    "DELETE FROM runs WHERE number = 1",
    "DELETE FROM runs WHERE number = 2",
    "DELETE FROM runs WHERE number = 0",
    "DELETE FROM runs",
    "DELETE FROM results WHERE rowid = 1",
)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_by_another_program_is_found_when_the_file_is_opened(path: Path, change: str) -> None:
    two_nights(path)
    with History.open(path) as history:
        history.accept(2, NAME, "on purpose")
    before = digest_of(path)
    alter(path, change)
    assert digest_of(path) != before
    for read_only in (True, False):
        with refused(DamagedStoreError, "is damaged"):
            History.open(path, create=False, read_only=read_only)


@pytest.mark.parametrize("change", [*CHANGES[:10], "DELETE FROM entries WHERE run = 1"])
def test_a_change_while_the_file_is_open_is_found_when_rows_are_read(path: Path, change: str) -> None:
    two_nights(path)
    with History.open(path) as history:
        history.accept(2, NAME, "on purpose")
        alter(path, change)
        with refused(DamagedStoreError, "is not what was written"):
            history.runs()
        # Nor is it hidden by what is written next.
        with pytest.raises(DamagedStoreError, match="is not what was written"):
            history.finish(1, 0)


def test_a_removed_run_is_found_when_the_next_one_is_added(path: Path) -> None:
    two_nights(path)
    with History.open(path) as history:
        alter(path, "DELETE FROM runs WHERE number = 2")
        with refused(DamagedStoreError, "run 0 is not what was written"):
            history.begin("market", "")


def test_a_changed_report_is_found(path: Path) -> None:
    """Reports are large: they are compared by who writes to the history, and by who reads them."""
    for place in (3, 4):
        path.unlink(missing_ok=True)
        marker_path(path).unlink(missing_ok=True)
        two_nights(path)
        alter(path, f"UPDATE results SET content = x'00' WHERE rowid = {place}")
        with pytest.raises(DamagedStoreError, match=r"result .* is not what was written"):
            History.open(path, create=False)
        with History.open(path, create=False, read_only=True) as history:
            with refused(DamagedStoreError, f"report of {NAME} of run 2 in history {path} is not what was written"):
                history.report(2, NAME)
            assert history.report(1, NAME).result_digest == small_report(0).result_digest
