"""Histories of the schema before: imported whole, once, or refused with the command that imports them."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sqlite3
from pathlib import Path

import pytest
from history_entries import NAME, alter, holding, kill_after, record, refused, start
from hypothesis import settings

from reid_dist.errors import DamagedStoreError, ReidDistError, StoreError
from reid_dist.nightly.history import History
from reid_dist.nightly.history.backups import copies

HERE = Path(__file__).parent
# What the version that wrote it exported, and the digests of its reports.
EXPECTED = json.loads((HERE / "schema_5.json").read_text())


@pytest.fixture
def path(path: Path) -> Path:
    """A history that the version before has written."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((HERE / "schema_5.sql").read_text())
    return path


def holds(found: object, expected: object) -> bool:
    """Whether values hold all that is expected, fields that were added since left out."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            name in found and holds(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return isinstance(found, list) and len(found) == len(expected) and all(map(holds, found, expected))
    return found == expected


def assert_imported(path: Path) -> None:
    with History.open(path, create=False, read_only=True) as history:
        for address, digest in EXPECTED["reports"].items():
            run, _, name = address.partition(":")
            assert history.report(int(run), name).result_digest == digest


def test_an_older_history_is_refused_with_the_command_that_imports_it(reid_dist, path: Path) -> None:
    before = path.read_bytes()
    for read_only in (True, False):
        with refused(StoreError, f"has schema 5, .*import it once with `reid-dist history import {path}`; nothing was"):
            History.open(path, create=False, read_only=read_only)
    assert path.read_bytes() == before
    done = reid_dist("history", "import", path)
    assert (done.code, done.out, done.err) == (0, "imported: 4 runs\n", "")
    assert_imported(path)
    exported = json.loads(reid_dist("history", "export", path, "--format", "json").out)
    assert holds(exported["runs"], EXPECTED["runs"])
    # A copy of the old file is kept, and is no copy of a night.
    assert copies(path) == []
    with contextlib.closing(sqlite3.connect(path.with_name(f"{path.name}.copies") / "schema-5.db")) as copy:
        assert copy.execute("SELECT count(*) FROM metrics").fetchone() == (14,)
    again = reid_dist("history", "import", path)
    assert (again.code, again.err) == (2, f"Error: history {path} needs no import; it can be used as it is\n")
    with History.open(path) as history:
        assert record(history) == 5
        past = history.last_good("market", NAME, before=9)
        assert past is not None
        assert (past.run, past.entry.accepted) == (2, "smaller model")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE metrics SET value = value + 0.01 WHERE position = 0",
        "UPDATE descriptions SET content = '{}'",
        "UPDATE arrays SET per_query = x'00' WHERE rowid = 1",
        "UPDATE totals SET n_rows = 9 WHERE name = 'runs'",
    ],
)
def test_a_damaged_older_history_is_not_imported(reid_dist, path: Path, change: str) -> None:
    alter(path, change)
    before = path.read_bytes()
    done = reid_dist("history", "import", path)
    assert (done.code, done.out) == (2, "")
    assert "is damaged" in done.err
    assert path.read_bytes() == before


@pytest.mark.slow
def test_flipped_bits_of_an_older_history_are_errors_or_have_no_effect(path: Path) -> None:
    whole = path.read_bytes()
    dice = random.Random(0)
    used = [at for at, byte in enumerate(whole) if byte]
    n_errors = 0
    for at in dice.sample(used, settings().max_examples):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
        try:
            History.import_file(path)
        except ReidDistError as error:
            n_errors += isinstance(error, DamagedStoreError) and "\n" not in str(error)
        else:
            assert_imported(path)
    assert n_errors > settings().max_examples // 3


def import_until_killed(path: Path, n_statements: int) -> None:
    kill_after(n_statements)
    History.import_file(path)


@pytest.mark.slow
def test_a_killed_import_leaves_the_old_history(path: Path) -> None:
    whole, codes = path.read_bytes(), []
    for left in (5, 40, 60, 80, 110, 140, 170, 200, 260, 100_000):
        path.write_bytes(whole)
        process = start(import_until_killed, path, left)
        process.join(60)
        codes.append(process.exitcode)
        if codes[-1]:
            assert codes[-1] == -signal.SIGKILL
            with contextlib.suppress(StoreError):
                History.import_file(path)
        assert_imported(path)
        assert not list(path.parent.glob("*-journal"))
    assert codes[0] == -signal.SIGKILL
    assert codes[-1] == 0
    assert codes.count(-signal.SIGKILL) >= 6


def test_an_import_waits_for_a_night_of_the_older_version(path: Path) -> None:
    with holding(path, "BEGIN IMMEDIATE"), refused(StoreError, "is locked"):
        History.import_file(path, timeout=0.1)
    assert History.import_file(path) == 4
