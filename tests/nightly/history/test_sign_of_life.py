"""A run gives signs of life from a thread of its own, and nothing that happens there ends it."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reid_dist.nightly.history import History
from reid_dist.nightly.history.sign_of_life import SignOfLife

NEVER = 3600.0


def test_a_run_is_seen_as_long_as_its_block_lasts(history: History) -> None:
    number = history.begin("market", "")
    other = history.begin("market", "")
    seen_other = history.run(other).seen
    ticks = itertools.count()
    enough = threading.Event()

    def clock() -> str:
        tick = next(ticks)
        if tick == 3:
            enough.set()
        return f"2026-05-09T02:00:{tick % 60:02}Z"

    before = set(threading.enumerate())
    with history.alive(number, every=0.002, clock=clock):
        (thread,) = set(threading.enumerate()) - before
        assert enough.wait(30)
        # Beside work on the history itself.
        history.finish(other, 0)
        assert str(history.run(number).seen).startswith("2026-05-09T02:00:")
    assert not thread.is_alive()
    assert history.run(other).seen == seen_other
    assert history.run(number).seen == history.run(number).seen


def test_the_connection_is_closed_with_the_block(history: History, path: Path) -> None:
    made: list[sqlite3.Connection] = []

    def connect() -> sqlite3.Connection:
        made.append(sqlite3.connect(path, check_same_thread=False))
        beaten.set()
        return made[-1]

    beaten = threading.Event()
    with SignOfLife(connect, history.begin("market", ""), every=0.002):
        assert beaten.wait(30)
    assert len(made) == 1, "one for all beats"
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        made[0].execute("SELECT 1")


def test_a_block_that_is_short_opens_nothing(history: History) -> None:
    def connect() -> sqlite3.Connection:
        raise AssertionError("nobody asked for it")

    with SignOfLife(connect, history.begin("market", ""), every=NEVER):
        pass


def test_a_locked_file_is_tried_again_at_the_next_beat(history: History, path: Path) -> None:
    number = history.begin("market", "")
    seen = history.run(number).seen
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    sign = SignOfLife(lambda: sqlite3.connect(path, timeout=0.0, isolation_level=None), number, clock=lambda: "later")
    sign.beat()
    assert history.run(number).seen == seen
    holder.execute("ROLLBACK")
    holder.close()
    sign.beat()
    assert history.run(number).seen == "later"
    sign.close()


def test_a_file_that_is_away_for_a_while_ends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "disk" / "nightly.db"
    with History.open(path) as history:
        number = history.begin("market", "")
    sign = SignOfLife(
        lambda: sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, isolation_level=None), number, clock=lambda: "now"
    )
    path.parent.rename(tmp_path / "away")
    sign.beat()
    assert not path.exists(), "and no empty file takes its place"
    (tmp_path / "away").rename(path.parent)
    sign.beat()
    sign.close()
    with History.open(path, create=False, read_only=True) as history:
        assert history.run(number).seen == "now"


def test_a_run_that_finished_is_not_seen_any_more(history: History, path: Path) -> None:
    number = history.begin("market", "")
    history.finish(number, 0)
    finished = history.run(number)
    sign = SignOfLife(lambda: sqlite3.connect(path, isolation_level=None), number, clock=lambda: "later")
    sign.beat()
    sign.close()
    assert history.run(number) == finished


_NEVER_LEFT = """
import sys
from reid_dist.nightly.history import History
history = History.open({path!r})
history.alive(history.begin("market", ""), every=0.001).__enter__()
sys.exit(7)
"""


def test_a_process_that_ends_does_not_wait_for_its_sign_of_life(path: Path) -> None:
    words = [sys.executable, "-c", _NEVER_LEFT.format(path=str(path))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (7, "")
