"""Signals in the middle of a command: code 128 + number, one message, no traceback of any process, and none left."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.processes import running, wait_until

from reid_dist import FeatureSet, evaluate

# Ctrl-C goes to all processes of a terminal, here to those of a process group.
_STRUCK = """
import os, signal, threading, time
import distributed
from reid_dist.cli import main

real = distributed.LocalCluster.__init__

def strike():
    time.sleep({after})
    os.killpg(0, signal.SIGINT)

def begun(self, *words, **options):
    threading.Thread(target=strike, daemon=True).start()
    real(self, *words, **options)

distributed.LocalCluster.__init__ = begun
if __name__ == "__main__":
    main()
"""

_PLAIN = """
from reid_dist.cli import main

if __name__ == "__main__":
    main()
"""

# Every task of the sweep but the first that a process begins takes long, and tells that it has begun.
_SLOW = """
import itertools, pathlib, time
from reid_dist.engine import graph, tasks
from reid_dist.cli import main

calls = itertools.count()

def slow(*words, real=graph.tile_task):
    if next(calls):
        pathlib.Path("begun").touch()
        time.sleep({seconds})
    return real(*words)

graph.tile_task = tasks.tile_task = slow
if __name__ == "__main__":
    main()
"""


_TURNING = """
import os, signal, sys
import reid_dist.core.signals as signals
signals.guard()
from reid_dist.cli import events, main

real = events.os.dup2

def turned(*words, **options):
    found = real(*words, **options)
    os.kill(os.getpid(), {number})
    return found

events.os.dup2 = turned
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_standard_error_is_turned_into_events(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, _TURNING.format(number=int(number)), "list", "metrics", "--log-json") as process:
        err = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    (event,) = map(json.loads, err.splitlines())
    assert (event["event"], event["exit_code"]) == ("error", 128 + number)


@pytest.fixture
def large(tmp_path: Path) -> tuple[str, str]:
    """A query and a gallery store of several tasks."""
    rng = np.random.default_rng(5)
    for name, n in (("query", 40), ("gallery", 1200)):
        made = FeatureSet.from_arrays(
            rng.standard_normal((n, 8)).astype(np.float32), rng.integers(0, 9, n), rng.integers(0, 3, n)
        )
        made.save(tmp_path / f"{name}.zarr", chunk_rows=100)
    return "query.zarr", "gallery.zarr"


@contextlib.contextmanager
def started(folder: Path, program: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own; nothing of it outlives the test."""
    path = folder / "program.py"
    path.write_text(program)
    with subprocess.Popen(
        [sys.executable, str(path), *map(str, words)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            for each in group(process.pid):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()


def group(number: int) -> list[psutil.Process]:
    """Running processes of a process group."""
    return running(lambda pid: os.getpgid(pid) == number)


def assert_interrupted(process: subprocess.Popen[str], seconds: float = 60, number: int = signal.SIGINT) -> str:
    """Exit code, one message, no process left; return the message."""
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 128 + number, err
    assert out == ""
    assert "Traceback" not in err
    progress = ("tasks", "compiling", "making")
    shown = [line for line in err.splitlines() if line and not any(word in line for word in progress)]
    assert len(shown) == 1, err
    (message,) = shown
    wait_until(lambda: not group(process.pid), "the end of all processes", 10)
    return message


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    def exists() -> bool:
        assert process.poll() is None, process.communicate()
        return path.exists()

    wait_until(exists, str(path), 60)


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 0.1, 0.25, 0.5])
@pytest.mark.parametrize("command", ["evaluate", "demo"])
def test_a_local_cluster_that_is_interrupted_while_it_starts(large, tmp_path: Path, command: str, after: float) -> None:
    words = (command, *(large if command == "evaluate" else ()), "--workers", 2, "--output", "out")
    with started(tmp_path, _STRUCK.format(after=after), *words) as process:
        assert assert_interrupted(process).startswith("Interrupted")


@pytest.fixture
def long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary directory as batch systems have them, whose name leaves no room for the address of a socket."""
    path = tmp_path / "scratch-of-job-12345678".ljust(90, "-")
    path.mkdir()
    monkeypatch.setenv("TMPDIR", str(path))
    return path


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="r-", dir=os.sep + "tmp") as name:
        yield Path(name)


_SOCKETS_IN = """
from pathlib import Path
import reid_dist.clusters.workers

reid_dist.clusters.workers._SHORT_PLACES = (Path("/there-is-no-such-place"), Path({place!r}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_local_cluster_that_is_interrupted_at_work(
    large, long: Path, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(_SLOW.format(seconds=60))
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PRELOAD", str(slow))
    words = ("evaluate", *large, "--workers", 2, "--output", "out")
    with started(tmp_path, _SOCKETS_IN.format(place=str(short)) + _PLAIN, *words) as process:
        wait_for(tmp_path / "begun", process)
        (sockets,) = short.iterdir()
        assert sockets.stat().st_mode & 0o777 == 0o700
        os.killpg(process.pid, number)
        message = assert_interrupted(process, number=number)
    assert message.startswith("Interrupted" if number == signal.SIGINT else "Ended by SIGTERM")
    assert [*long.iterdir(), *short.iterdir()] == []


@pytest.mark.slow
def test_a_temporary_directory_with_a_long_name(large, long: Path, short: Path, tmp_path: Path) -> None:
    words = ("evaluate", *large, "--workers", 1, "--json")
    with started(tmp_path, _SOCKETS_IN.format(place=str(short)) + _PLAIN, *words) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (
        json.loads(out)["result_digest"]
        == evaluate(*(FeatureSet.open(str(tmp_path / side)) for side in large)).result_digest
    )
    assert [*long.iterdir(), *short.iterdir()] == []


def test_no_directory_whose_name_is_short(large, long: Path, tmp_path: Path) -> None:
    program = _SOCKETS_IN.format(place="/nor-that") + _PLAIN
    with started(tmp_path, program, "evaluate", *large, "--workers", 1) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (3, "")
    (line,) = err.splitlines()
    assert f"temporary directory {long}" in line
    assert "set TMPDIR to a directory of at most 25 bytes" in line
    assert list(long.iterdir()) == []


def test_finished_parts_are_kept_and_reused(large, threads: Path, tmp_path: Path, reid_dist) -> None:
    words = ("evaluate", *large, "--cluster", threads, "--output", "out")
    with started(tmp_path, _SLOW.format(seconds=600), *words) as process:
        wait_for(tmp_path / "begun", process)
        parts = tmp_path / "out" / "workspace"
        wait_until(lambda: list(parts.glob("partials-*/*.npz")), "the first part", 60)
        os.killpg(process.pid, signal.SIGINT)
        message = assert_interrupted(process)
    assert message.startswith("Interrupted; what is finished is kept in out/workspace: ")
    assert "the same command with --resume goes on from there" in message
    sides = [tmp_path / side for side in large]
    done = reid_dist("evaluate", *sides, "--cluster", threads, "--output", tmp_path / "out", "--resume", "--json")
    assert json.loads(done.out)["result_digest"] == evaluate(*map(FeatureSet.open, sides)).result_digest


def test_an_interrupted_demo_prints_how_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: Path, reid_dist
) -> None:
    from reid_dist.evaluation import evaluate as evaluation
    from reid_dist.stores import synthetic

    small = replace(synthetic.MARKET1501, n_query=20, n_gallery=90, n_identity=10, n_distractor=20, n_junk=10, dim=4)
    monkeypatch.setattr(synthetic, "MARKET1501", small)
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "run_job", interrupting)
        stopped = reid_dist("demo", "--cluster", threads)
    assert stopped.code == 130
    (line,) = (line for line in stopped.err.splitlines() if line.startswith("Interrupted"))
    kept, _, command = line.removesuffix(" goes on from there").rpartition(": ")
    assert kept == "Interrupted; the data are kept in reid-dist-demo/data"
    _, *words = shlex.split(command)
    assert "written to reid-dist-demo" in reid_dist(*words, "--cluster", threads).out


@pytest.mark.parametrize("moment", ["make_context", "invoke"])
def test_interrupted_while_words_are_parsed(monkeypatch: pytest.MonkeyPatch, moment: str, reid_dist) -> None:
    from reid_dist.cli import group

    monkeypatch.setattr(group._group, moment, interrupting)
    stopped = reid_dist("list", "metrics")
    assert (stopped.code, stopped.out, stopped.err) == (130, "", "Interrupted.\n")


def interrupting(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_interrupted_again_and_again(large, threads: Path, tmp_path: Path) -> None:
    with started(tmp_path, _SLOW.format(seconds=600), "evaluate", *large, "--cluster", threads) as process:
        wait_for(tmp_path / "begun", process)
        for _ in range(20):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.05)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
