"""Lost, damaged and restored histories, and the copies of the last nights."""

from __future__ import annotations

import errno
import fcntl
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from history_entries import GOOD, NAME, entry_of, holding, record, refused, reported, small_report
from hypothesis import settings

from reid_dist.errors import DamagedStoreError, InputError, ReidDistError, StoreError
from reid_dist.nightly.gate_verdicts import apply_gates
from reid_dist.nightly.gating.gate_settings import Gates
from reid_dist.nightly.history import History
from reid_dist.nightly.history.backups import KEPT_COPIES, copies, marker_path


def nights(path: Path, seeds: range) -> None:
    for seed in seeds:
        with History.open(path) as history:
            history.back_up()
            record(history, reported(small_report(seed), findings=(GOOD,)), planned=[NAME])


def the_next_night(path: Path) -> list[Any]:
    """Findings of the gates, and content of the history."""
    with History.open(path) as history:
        report = small_report(50)
        found = apply_gates(entry_of(report), report, history, suite="market", number=99, gates=Gates())
        return [found, history.runs(), history.states().keys()]


def everything(path: Path) -> list[Any]:
    """Runs and reports, as a reader finds them."""
    with History.open(path, create=False, read_only=True) as history:
        runs = history.runs()
        return [runs, [history.report(run.number, entry.name).to_json() for run in runs for entry in run.entries]]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("read", [the_next_night, everything])
def test_flipped_bits_are_errors_or_have_no_effect(path: Path, read: Callable[[Path], list[Any]], seed: int) -> None:
    nights(path, range(3))
    whole = path.read_bytes()
    expected = read(path)
    dice = random.Random(seed)
    # Half of them where something is: most of a small file is unused.
    used = [at for at, byte in enumerate(whole) if byte]
    errors = []
    n = settings().max_examples
    for at in dice.sample(used, n) + dice.sample(range(len(whole)), n):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
        try:
            found = read(path)
        except ReidDistError as error:
            errors.append(error)
        else:
            assert found == expected, at
        for more in ("-wal", "-shm", "-journal"):
            path.with_name(f"{path.name}{more}").unlink(missing_ok=True)
    assert len(errors) > n // 2
    assert all(str(path) in str(error) and "\n" not in str(error) and error.exit_code == 2 for error in errors)


# -------------------------------------------------------------------------------------------------------- the marker


@pytest.mark.parametrize("harm", ["missing", "empty"])
def test_a_history_that_had_runs_is_not_taken_for_a_new_one(path: Path, harm: str) -> None:
    nights(path, range(2))
    before = copies(path)
    assert [copy.name for copy in before] == ["before-run-00002.db"]
    path.unlink()
    if harm == "empty":
        path.touch()
    for options in ({}, {"create": False}, {"create": False, "read_only": True}):
        with refused(DamagedStoreError, f"^the runs of history {path} are lost: its file is {harm}, and ") as caught:
            History.open(path, **options)
        message = str(caught.value)
        assert "began with run 1 of suite market at 20" in message
        assert f"copy {before[-1]} to {path}" in message
        assert message.endswith(f"or, to begin a new history on purpose, remove {marker_path(path)}")
    # Following the error: the copy replaces the file, and the missing night is reported.
    shutil.copy(before[-1], path)
    with History.open(path) as history:
        assert [run.number for run in history.runs()] == [1]
        assert "ends with run 1, but run 2 was begun: later runs are lost, or an older copy" in history.caution
        assert history.begin("market", "") == 3, "a number is never given twice"
    with History.open(path) as history:
        assert history.caution == ""
    # Or anew.
    path.unlink()
    marker_path(path).unlink()
    with History.open(path) as history:
        assert history.begin("market", "") == 1


def test_a_history_without_runs_has_no_marker(path: Path) -> None:
    History.open(path).close()
    assert not marker_path(path).exists()
    path.unlink()
    with History.open(path) as history:
        assert history.back_up() is None
        assert history.begin("market", "") == 1
    assert marker_path(path).exists()


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"first_run": "x"}', "[" * 100_000])
def test_a_damaged_marker_still_reveals_a_lost_history_and_is_rewritten(path: Path, content: str | None) -> None:
    nights(path, range(2))
    place = marker_path(path)
    whole = place.read_text()
    if content is None:
        place.unlink()
    else:
        place.write_text(content)
    nights(path, range(2, 3))
    assert place.read_text() == whole.replace('"last_run": 2', '"last_run": 3')
    if content is not None:
        place.write_text(content)
        path.unlink()
        with pytest.raises(DamagedStoreError, match=r"the runs of history .* are lost: its file is missing"):
            History.open(path)


@pytest.mark.parametrize("n_bytes", [243, 244, 256])
def test_a_name_too_long_for_the_marker_is_refused_and_nothing_is_written(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "new" / ("n" * n_bytes)
    if n_bytes == 243:
        nights(path, range(2))
        assert marker_path(path).exists()
        assert len(copies(path)) == 1
        return
    with pytest.raises(
        InputError, match=f"the name of history .* is {n_bytes - 243} bytes too long, as files beside it"
    ):
        History.open(path)
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------- the copies


def test_a_copy_is_made_before_every_night_and_kept_for_seven(path: Path) -> None:
    n_nights = KEPT_COPIES + 3
    nights(path, range(n_nights))
    found = copies(path)
    assert [copy.name for copy in found] == [f"before-run-{number:05}.db" for number in range(4, n_nights + 1)]
    assert {each.name for each in found[0].parent.iterdir()} == {copy.name for copy in found}
    for number, copy in enumerate(found, start=4):
        with History.open(copy, create=False, read_only=True) as history:
            assert [run.number for run in history.runs()] == list(range(1, number))
            assert history.report(number - 1, NAME).result_digest == small_report(number - 2).result_digest


def test_other_files_among_the_copies_stay(path: Path) -> None:
    nights(path, range(2))
    mine = copies(path)[0].with_name("before-the-move.db")
    mine.write_text("mine")
    nights(path, range(2, KEPT_COPIES + 4))
    assert mine.read_text() == "mine"


def test_a_copy_that_cannot_be_written_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nights(path, range(2))
    before = copies(path)

    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with History.open(path) as history:
        monkeypatch.setattr(Path, "replace", full)
        with refused(StoreError, "No space left on device"):
            history.back_up()
        monkeypatch.undo()
    assert copies(path) == before
    assert len(list(before[0].parent.iterdir())) == len(before), "no temporary file is left"


def test_a_copy_is_whole_while_others_write(path: Path) -> None:
    nights(path, range(1))
    with History.open(path) as history, History.open(path) as other:
        number = other.begin("market", "")
        with history._database.reading():
            pass
        copy = history.back_up()
        other.finish(number, 0)
    assert copy is not None
    with History.open(copy, create=False, read_only=True) as found:
        assert [run.exit_code for run in found.runs()] == [0, None]


# --------------------------------------------------------------------------------------------------------- locks


def test_a_file_system_without_locks_is_not_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite maps ENOLCK to busy: a missing lock service is distinguished from another process."""
    nights(path, range(1))

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    with holding(path, "PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE"):
        with pytest.raises(StoreError, match="is locked: another process"):
            History.open(path, timeout=0.05)
        monkeypatch.setattr(fcntl, "lockf", no_locks)
        with refused(StoreError, r"its file system has no locks \(No locks available\)") as caught:
            History.open(path, timeout=0.05)
    assert "another process" not in str(caught.value)
