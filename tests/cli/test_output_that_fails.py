"""Standard output that cannot be written to: a full disk is one clear line and code 3, a reader that left is quiet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    (line,) = (line for line in done.stderr.splitlines() if "tasks" not in line)
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


@pytest.mark.slow
def test_a_full_disk_for_messages_alone(full, tmp_path: Path) -> None:
    """No message can be written; the exit code still reports the error."""
    done = subprocess.run(
        [sys.executable, "-m", "reid_dist.cli", "evaluate", *[str(tmp_path / "missing")] * 2],
        stdout=subprocess.PIPE,
        stderr=full,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [["list", "metrics"], ["schema", "pipeline"], ["--help"]])
def test_a_reader_that_left(words: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "reid_dist.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
