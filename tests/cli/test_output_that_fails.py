"""Standard streams that cannot be written to: a full disk is one clear line and code 3, a reader that left is quiet.

A run goes on without standard error, and what it writes to files is complete in any case.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from support.processes import wait_until
from support.refusals import printed_error

_FULL = Path("/dev/full")


def run(*words: object, **streams) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "reid_dist.cli", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
        **streams,
    )


@pytest.fixture
def full():
    if not _FULL.exists():
        pytest.skip("the system has no /dev/full")
    with _FULL.open("w") as stream:
        yield stream


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [["--help"], ["list", "metrics"], ["schema", "pipeline"]])
def test_a_full_disk_in_short_commands(full, words: list[str]) -> None:
    done = run(*words, stdout=full)
    assert done.returncode == 3
    assert done.stderr == "Error: cannot write the output: No space left on device; make room and run again\n"


@pytest.mark.slow
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_full_disk_after_the_work(full, stores, threads: Path, tmp_path: Path, form: list[str]) -> None:
    """Requested files are complete all the same."""
    done = run("evaluate", *stores, "--cluster", threads, "--output", tmp_path / "out", *form, stdout=full)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    line = printed_error(done.stderr)
    assert line.startswith("Error: cannot write the output: No space left on device")
    assert json.loads((tmp_path / "out" / "report.json").read_text())["counts"]["n_query"] == 40


@pytest.mark.slow
def test_a_full_disk_is_an_event(full, stores, threads: Path) -> None:
    done = run("evaluate", *stores, "--cluster", threads, "--log-json", stdout=full)
    events = [json.loads(line) for line in done.stderr.splitlines()]
    (error,) = (event for event in events if event["event"] == "error")
    assert (error["exit_code"], error["kind"], done.returncode) == (3, "RunFailedError", 3)
    assert "No space left on device" in error["message"]
    assert events[-1]["event"] == "ended"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [["list", "metrics"], ["schema", "pipeline"], ["--help"]])
def test_a_reader_that_left(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "reid_dist.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""


def run_with(redirection: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command with streams that a shell redirects."""
    shell = ["bash", "-c", f'exec "$0" "$@" {redirection}', sys.executable, "-m", "reid_dist.cli"]
    return subprocess.run(
        [*shell, *map(str, words)], capture_output=True, text=True, check=False, timeout=120, stdin=subprocess.DEVNULL
    )


_CLOSED = "Error: cannot write the output: standard output is closed; send it to a file, or /dev/null\n"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [["list", "metrics"], ["--version"], ["schema", "pipeline"]])
def test_closed_standard_output(words: list[str]) -> None:
    done = run_with(">&-", *words)
    assert (done.returncode, done.stderr) == (3, _CLOSED)


@pytest.mark.parametrize("redirection", ["2>&-", "2>&- >&- <&-", "2>/dev/full"])
def test_closed_or_full_standard_error(redirection: str) -> None:
    """Messages are lost, and the exit code is not."""
    assert run_with(redirection, "evaluate", "no", "no").returncode == 2


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        ("2>&-", 0),
        ("2> >(exec true)", 0),
        ("2>/dev/full", 0),
        (">&- 2>&- <&-", 3),
        ("> >(exec true)", 0),
        ("> >(exec true) 2>&1", 0),
    ],
)
def test_the_report_is_complete_when_only_the_console_is_gone(
    stores, threads: Path, tmp_path: Path, redirection: str, code: int
) -> None:
    done = run_with(redirection, "evaluate", *stores, "--cluster", threads, "--output", tmp_path / "out")
    assert "Traceback" not in done.stderr
    assert done.returncode == code
    files = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert json.loads(files["report.json"])["counts"]["n_query"] == 40
    assert b"standard" not in files["report.json"]
    assert {"report.html", "per_query.npz"} < set(files)
    assert not [name for name in files if name.startswith(".")]


def unread(pipe: int) -> int:
    """How many bytes wait in a pipe."""
    return struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("words", "by_line"), [(["schema", "pipeline"], False), (["list", "benchmarks"], True)])
def test_a_slow_reader_of_a_stream_that_does_not_block(words: list[str], by_line: bool) -> None:
    """As programs leave a terminal or a pipe that they share; the interpreter itself discards what is not read yet."""
    whole = run(*words, stdout=subprocess.PIPE)
    # A pipe takes a part of a long text, but the whole of a line or nothing of it.
    ends = list(itertools.accumulate(map(len, whole.stdout.encode().splitlines(keepends=True))))
    held = max(end for end in ends if end <= 4096) if by_line else 4096
    readable, writable = os.pipe()
    # The least that a pipe can hold.
    fcntl.fcntl(writable, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writable, False)
    with subprocess.Popen([sys.executable, "-m", "reid_dist.cli", *words], stdout=writable) as process:
        os.close(writable)
        with os.fdopen(readable, "rb") as pipe:
            wait_until(lambda: unread(readable) == held, "a full pipe")
            found = pipe.read()
    assert len(whole.stdout) > 4096
    assert (process.returncode, found.decode()) == (whole.returncode, whole.stdout)


@pytest.mark.slow
def test_a_terminal_that_is_closed(stores, threads: Path, tmp_path: Path) -> None:
    """The window of a run that ignores SIGHUP, as with nohup."""
    ours, terminal = pty.openpty()
    words = ["evaluate", *stores, "--cluster", threads, "--output", tmp_path / "out"]
    with subprocess.Popen([sys.executable, "-m", "reid_dist.cli", *map(str, words)], stderr=terminal, stdout=terminal):
        os.close(terminal)
        os.close(ours)
    assert (tmp_path / "out" / "report.json").exists()
