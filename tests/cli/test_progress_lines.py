"""Progress on standard error: bars on a terminal; elsewhere a line now and then, with rate and time left."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import reid_dist.cli.progress as progress_module
from reid_dist.cli.progress import rows_progress, stages


class Clock:
    """A clock that the test turns."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    monkeypatch.setattr(progress_module, "time", turned)
    return turned


def test_a_line_has_what_is_done_the_rate_and_the_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as progress:
        progress.start({"pairs": 2, "sweep": 400})
        for _ in range(2):
            clock.now += 1
            progress.advance("pairs")
        for _ in range(400):
            clock.now += 0.5
            progress.advance("sweep")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "distances of relevant pairs: 2/2 tasks, 2.0 s, 1/s"
    # The sweep waits for the pairs: their seconds are not its own.
    assert lines[1] == "tiles of the gallery: 10/400 tasks, 5.0 s, 2/s, about 3 min left"
    assert lines[-1] == "tiles of the gallery: 400/400 tasks, 200.0 s, 2/s"
    # One every five seconds, and the last of each stage.
    assert len(lines) == 1 + 200 // 5


def test_a_second_pass_begins_anew(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with stages() as progress:
        for _ in range(2):
            progress.start({"verification": 1})
            clock.now += 3
            progress.advance("verification")
    assert capsys.readouterr().err.splitlines() == ["exact thresholds: 1/1 tasks, 3.0 s, 0.33/s"] * 2


def test_rows_that_are_read(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with rows_progress() as reported:
        for done in range(1000, 30_001, 1000):
            clock.now += 1
            reported(done, 30_000, "big.npz")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "big.npz: 5000/30000 rows, 5.0 s, 1,000/s, about 25 s left"
    assert lines[-1] == "big.npz: 30000/30000 rows, 30.0 s, 1,000/s"
    assert len(lines) == 30 // 5


def test_both_sides_of_one_file_are_counted_one_after_the_other(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with rows_progress() as reported:
        for total in (50, 50, 100, 20):
            for done in (total // 2, total):
                clock.now += 1
                reported(done, total, "both.mat")
    assert capsys.readouterr().err.splitlines() == [
        "both.mat: 50/50 rows, 2.0 s, 25/s",
        "both.mat: 50/50 rows, 2.0 s, 25/s",
        "both.mat: 100/100 rows, 2.0 s, 50/s",
        "both.mat: 20/20 rows, 2.0 s, 10/s",
    ]


def test_a_command_without_a_terminal_prints_a_final_line_per_stage(reid_dist, stores, threads: Path) -> None:
    done = reid_dist("evaluate", *stores, "--cluster", threads, "--chunk-rows", 16)
    assert done.code == 0
    lines = done.err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["distances of relevant pairs", "tiles of the gallery"]
    for line in lines:
        assert re.fullmatch(r".+: (\d+)/\1 tasks, \d+\.\d s, [\d.,]+/s", line), line


@pytest.mark.slow
def test_a_terminal_shows_bars(stores, threads: Path) -> None:
    ours, theirs = pty.openpty()
    words = ["evaluate", *map(str, stores), "--cluster", str(threads), "--chunk-rows", "16", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "reid_dist.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        shown = b""
        # A terminal whose other side is gone answers with an error.
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:
            pass
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "tiles of the gallery" in text
    assert "/s" in text
    # They move: the cursor goes back to draw them again, and they are gone at the end.
    assert "\x1b[2K" in text
