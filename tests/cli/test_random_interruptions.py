"""SIGINT and SIGTERM at random moments of every command: code, one line, and nothing left, whatever it was doing."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.processes import is_running, running, wait_until

from reid_dist import FeatureSet, evaluate

_SIDES = ("query.zarr", "gallery.zarr")
_HERE = ("--cluster", "threads.yaml")
_OUT = ("--output", "out")
COMMANDS: dict[str, tuple[str, ...]] = {
    "ingest": ("ingest", "both.npz", *_OUT),
    "check": ("check", *_SIDES),
    "threads": ("evaluate", *_SIDES, *_HERE, *_OUT),
    "plain": ("evaluate", *_SIDES),
    "plain-cluster": ("evaluate", *_SIDES, "--workers", "1"),
    "cluster": ("evaluate", *_SIDES, "--workers", "2", *_OUT),
    "reranked": ("evaluate", *_SIDES, "--rerank", "k_reciprocal(k1=4,k2=2)", *_HERE, *_OUT),
    "reranked-cluster": ("evaluate", *_SIDES, "--rerank", "k_reciprocal(k1=4,k2=2)", "--workers", "1", *_OUT),
    "sweep": ("sweep", *_SIDES, "--expand", "aqe", "--k", "0:3", *_HERE, *_OUT),
    "splits": ("splits", *_SIDES, "--repeats", "3", *_HERE, *_OUT),
    "pool": ("pool", "gallery.zarr", "--by", "pid_camid", *_OUT),
    "pool-cluster": ("pool", "gallery.zarr", "--by", "pid_camid", "--workers", "2", *_OUT),
    "events": ("evaluate", *_SIDES, *_HERE, "--log-json"),
    "demo": ("demo", *_OUT),
}
# 42 in all.
_TIMES = 3
# Of a run that nothing disturbs, kernels compiled meanwhile.
_LONGEST_S = 300
_NUMBERS = (signal.SIGINT, signal.SIGTERM)
# Of the process alone, as kill sends it, or of its group, as terminals and schedulers do.
_SENDERS = (os.kill, os.killpg)
_PROGRESS = ("tasks,", "rows,", "point ", "making ", "compiling kernels")

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Run:
    """A command that ended.

    Attributes
    ----------
    code
        Its exit code, negative where a signal killed it.
    seconds
        From its start, or from the signal.
    out, lines
        What it wrote, lines of progress aside.
    interrupted
        Whether it still ran when the signal was sent.
    had_written
        Whether it had then written all of its result.
    """

    code: int
    seconds: float
    out: str
    lines: list[str]
    interrupted: bool = False
    had_written: bool = False


class Runs:
    """Runs of one command in directories of their own."""

    def __init__(self, stores: tuple[Path, Path], folder: Path, temporary: Path, words: tuple[str, ...]) -> None:
        self._stores, self._folder, self._words = stores, folder, words
        self.temporary = temporary
        self._number = 0
        self.place = folder

    def run(self, after: float | None, number: int, send=os.kill) -> Run:
        self._number += 1
        self.place = self._folder / str(self._number)
        self.place.mkdir(parents=True)
        for source in (*self._stores, *self._stores[0].parent.glob("*.npz"), *self._stores[0].parent.glob("*.yaml")):
            (self.place / source.name).symlink_to(source)
        began = time.monotonic()
        # What this process ignores, as one in the background may, the command would ignore.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with (self.place / "out.txt").open("wb") as out, (self.place / "err.txt").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "reid_dist.cli", *self._words],
                cwd=self.place,
                env=os.environ | {"TMPDIR": str(self.temporary)},
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            alive, written = False, 0
            try:
                if after is not None:
                    await_guard(process.pid)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(after)
                    began = time.monotonic()
                    written = (self.place / "out.txt").stat().st_size
                    if process.poll() is None:
                        send(process.pid, number)
                        alive = is_running(process.pid)
                process.wait(_LONGEST_S)
                seconds = time.monotonic() - began
                wait_until(
                    lambda: not running(lambda pid: os.getsid(pid) == process.pid), "the end of all processes", 10
                )
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        err_lines = (self.place / "err.txt").read_text().splitlines()
        lines = [line for line in err_lines if not any(word in line for word in _PROGRESS)]
        result = (self.place / "out.txt").read_bytes()
        return Run(process.returncode, seconds, result.decode(), lines, alive, 0 < written == len(result))


def await_guard(pid: int) -> None:
    """Until it handles SIGTERM; before that the interpreter is being started."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{pid}/status").read_text()
            caught = int(status.partition("SigCgt:")[2].split()[0], 16)
            if caught >> (signal.SIGTERM - 1) & 1 or not is_running(pid):
                return
        time.sleep(0.001)


def assert_ended_by(run: Run, number: int, runs: Runs, *, events: bool) -> None:
    """All that must hold of an interrupted command."""
    assert run.seconds < 15
    if run.code == -number:
        # The interpreter was taking itself apart; all had been done.
        assert run.out
        assert all(json.loads(line).get("exit_code", 0) == 0 for line in run.lines)
    elif events:
        shown = [json.loads(line) for line in run.lines]
        assert [each["exit_code"] for each in shown if each["event"] == "error"] == [128 + number]
    else:
        assert run.code == 128 + number, run
        assert len(run.lines) == 1, run
        assert run.lines[0].startswith("Interrupted" if number == signal.SIGINT else "Ended by SIGTERM"), run
    assert list(runs.temporary.iterdir()) == []
    assert [path for path in runs.place.rglob(".*") if path.is_dir()] == []


@pytest.fixture
def sources(stores: tuple[Path, Path], threads: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The stores, and the same in one file."""
    import numpy as np

    arrays = {}
    for side, path in zip(("query", "gallery"), stores, strict=True):
        each = FeatureSet.open(str(path))
        arrays |= {f"{side}_f": each.read(0, each.n_rows), f"{side}_label": each.pids, f"{side}_cam": each.camids}
    np.savez(tmp_path / "both.npz", **arrays)
    return stores


@pytest.fixture
def short() -> Iterator[Path]:
    """A temporary directory whose path leaves room for names of sockets."""
    with tempfile.TemporaryDirectory(prefix="r-") as name:
        yield Path(name)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", COMMANDS)
def test_interrupted_at_random(
    sources, tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch, name: str, reid_dist
) -> None:
    runs = Runs(sources, tmp_path / "runs", short, COMMANDS[name])
    whole = runs.run(None, 0)
    assert whole.code == 0, whole
    moments, length = random.Random(f"moments of {name}"), whole.seconds
    interrupted = resumed = 0
    while interrupted < _TIMES:
        number, send, after = moments.choice(_NUMBERS), moments.choice(_SENDERS), moments.random() * length
        run = runs.run(after, number, send)
        if run.code == 0 and (not run.interrupted or run.had_written or run.seconds < 0.05):
            # It had ended before, or was ending: the first run may take longer than those that follow.
            length = max(after, 0.8 * length)
            continue
        interrupted += 1
        assert_ended_by(run, number, runs, events=name == "events")
        if "--resume goes on" in "".join(run.lines) and resumed < 2:
            resumed += 1
            with monkeypatch.context() as patched:
                patched.chdir(runs.place)
                assert_taken_up(runs, name, run.lines[-1], reid_dist)
        shutil.rmtree(runs.place)


def assert_taken_up(runs: Runs, name: str, line: str, reid_dist) -> None:
    """The command that the line names has the result of an undisturbed run."""
    words = [*COMMANDS[name], "--resume"]
    if "the same command" not in line:
        _, *words = shlex.split(line.rpartition(": ")[2].removesuffix(" goes on from there"))
    done = reid_dist(*words)
    assert done.code == 0, done.err
    if name in ("threads", "cluster"):
        found = json.loads(Path("out", "report.json").read_text())["result_digest"]
        assert found == evaluate(*map(FeatureSet.open, _SIDES)).result_digest
