"""Compilation of kernels: a line of its own, a time of its own, and a command that gets it over with."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from reid_dist import FeatureSet
from reid_dist.cli.progress import stages
from reid_dist.engine.compilation_spans import Spans, compilation_of, report_to_scheduler
from reid_dist.engine.task_graph import Progress, Stopwatch, TaskGraph, execute
from reid_dist.kernels import compilations, dispatchers, machine_code
from reid_dist.kernels.compilations import compiling, listening
from reid_dist.kernels.compiled import Kernel

_LINE = "compiling kernels of this kind of job, once per machine"


class Recorded(Progress):
    def __init__(self) -> None:
        self.words: list[str] = []
        self.spans: list[tuple[float, float]] = []

    def compiling(self, words: str) -> None:
        self.words.append(words)

    def compiled(self, began: float, ended: float) -> None:
        self.spans.append((began, ended))


def compile_for(seconds: float) -> None:
    """As Numba does, without the work."""
    with compiling():
        time.sleep(seconds)


def test_spans_that_overlap_count_once() -> None:
    spans = Spans([(1, 3), (2, 4), (6, 7)])
    assert spans.all() == [(1, 4), (6, 7)]
    assert spans.add(3.5, 6.5) == 2
    assert spans.all() == [(1, 7)]
    assert spans.within(0, 2) + spans.within(6.5, 10) == 1.5


def test_a_real_kernel_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Not kept: a second run of this test would find it.
    monkeypatch.setattr(dispatchers, "machine_code_folder", lambda: None)
    twice = Kernel(lambda x: 2 * x)
    heard = []
    before = len(compilations.compiled_spans())
    with listening(lambda began, ended: heard.append(ended)):
        assert (twice(2), twice(3)) == (4, 6)
    assert len(heard) == 2
    assert heard[0] is None
    assert compilations.compiled_spans()[before:] == [(pytest.approx(heard[1], abs=60), heard[1])]


def test_stages_are_not_charged_with_it() -> None:
    watch, graph = Stopwatch(None), TaskGraph()
    started = time.perf_counter()
    graph.finals = [graph.add("first", compile_for, 0.4, stage="first")]
    execute(graph, None, 1, watch)
    ranked = time.perf_counter()
    timing = watch.timing(started, (started, started), ranked)
    assert timing["compile"] >= 0.4
    assert timing["first"] < timing["compile"]
    assert timing["total"] >= timing["compile"]
    assert timing["first"] == pytest.approx(ranked - started - timing["compile"], abs=0.1)
    assert "compile" not in Stopwatch(None).timing(time.perf_counter(), (0, 0), time.perf_counter())


def test_workers_report_it(two_workers) -> None:
    shown = Recorded()
    with compilation_of(two_workers, shown.compiling, shown.compiled):
        for began in (1.0, 5.0):
            two_workers.submit(lambda began: report_to_scheduler(began, None), began, pure=False).result(20)
            two_workers.submit(lambda began: report_to_scheduler(began, began + 1), began, pure=False).result(20)
        deadline = time.monotonic() + 20
        while len(shown.spans) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert shown.words == [_LINE] * 2
    assert shown.spans == [(1, 2), (5, 6)]


def test_one_line_and_no_rate_of_it(capfd: pytest.CaptureFixture[str]) -> None:
    with stages() as progress:
        progress.start({"sweep": 1})
        began = time.time()
        for _ in range(3):
            progress.compiling(_LINE)
        time.sleep(0.3)
        progress.compiled(began, time.time())
        progress.advance("sweep")
    first, second = capfd.readouterr().err.splitlines()
    assert first == _LINE
    assert second.startswith("tiles of the gallery: 1/1 tasks, 0.0 s")


def test_a_clock_that_is_set_during_it_changes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Stopwatch(None)
    started = time.perf_counter()
    watch.start({"sweep": 1})
    with listening(lambda began, ended: None if ended is None else watch.compiled(began, ended)), compiling():
        time.sleep(0.05)
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 127 * 365.25 * 86_400)
    time.sleep(0.02)
    watch.advance("sweep")
    seconds = watch.timing(started, (started, started), time.perf_counter())
    assert 0.05 <= seconds["compile"] < 5
    assert 0.02 <= seconds["sweep"] < 5
    assert seconds["total"] >= seconds["compile"] + seconds["sweep"]


_NOWHERE = """
from pathlib import Path
from reid_dist.kernels import machine_code, compiled
machine_code._places = lambda: {places}
machine_code._private_place = lambda: {private}

@compiled.kernel
def twice(x):
    return 2 * x

print(twice(1))
print(machine_code.cache_words())
print(machine_code.machine_code_folder())
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_private", [True, False])
def test_where_nothing_can_be_written(tmp_path: Path, is_private: bool) -> None:
    """Neither the installation nor the home directory; Numba's own answer is a traceback."""
    private = f"Path({str(tmp_path)!r})" if is_private else "None"
    places = "[Path('/proc/none'), *([machine_code._private_place()] if machine_code._private_place() else [])]"
    (tmp_path / "program.py").write_text(_NOWHERE.format(places=places, private=private))
    words = [sys.executable, str(tmp_path / "program.py")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    value, line, place = done.stdout.splitlines()
    assert value == "2"
    assert done.stderr == ""
    assert "NUMBA_CACHE_DIR" in line
    if is_private:
        assert line.startswith(f"{_LINE}, into {tmp_path}/")
        assert place.startswith(str(tmp_path))
        assert list(tmp_path.rglob("*.nbc"))
    else:
        assert line.startswith("compiling kernels in every process (")
        assert place == "None"


def test_places_are_tried_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen one, the installation, the home directory, and one of this user alone."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(machine_code, "_private_place", lambda: tmp_path / "private")
    (tmp_path / "installation").touch()  # where no directory can be made
    monkeypatch.setattr(machine_code, "_SOURCES", tmp_path / "installation")
    monkeypatch.setattr(machine_code, "_digest", lambda: "0" * 16)
    find = machine_code.machine_code_folder.__wrapped__
    for blocked, place in (("", "chosen"), ("chosen", "home/numba"), ("home", "private")):
        if blocked:
            shutil.rmtree(tmp_path / blocked, ignore_errors=True)
            (tmp_path / blocked).touch()
        assert find() == tmp_path / place / f"reid-dist-{'0' * 16}"


def test_a_place_without_locks_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code is compiled and kept under locks: without them it would be compiled in every process."""
    lock, refused = fcntl.flock, []

    def flock(file: IO[bytes], operation: int) -> None:
        # The first place that is tried.
        if not refused:
            refused.append(operation)
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        lock(file, operation)

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    monkeypatch.setattr(machine_code, "_SOURCES", tmp_path / "installation")
    monkeypatch.setattr(machine_code, "_digest", lambda: "0" * 16)
    monkeypatch.setattr(machine_code.fcntl, "flock", flock)
    place = machine_code.machine_code_folder.__wrapped__()
    assert place == tmp_path / "installation" / "__pycache__" / f"reid-dist-{'0' * 16}"
    assert refused == [fcntl.LOCK_EX | fcntl.LOCK_NB]


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code.os, "sep", str(tmp_path))
    folder = tmp_path / "var" / "tmp"
    assert machine_code._private_place() is None
    folder.mkdir(parents=True)
    found = machine_code._private_place()
    assert found is not None
    assert found.parent == folder
    assert found.stat().st_mode & 0o777 == 0o700
    found.chmod(0o722)
    assert machine_code._private_place() is None
    found.rmdir()
    found.symlink_to(tmp_path)
    assert machine_code._private_place() is None


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path]:
    generator = np.random.default_rng(7)
    for name, n in (("query", 30), ("gallery", 400)):
        features = generator.standard_normal((n, 16)).astype(np.float32)
        made = FeatureSet.from_arrays(features, generator.integers(0, 12, n), generator.integers(0, 4, n))
        made.save(tmp_path / f"{name}.zarr", chunk_rows=128)
    return tmp_path / "query.zarr", tmp_path / "gallery.zarr"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_after_it_nothing_is_compiled(stores: tuple[Path, Path], tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    def run(*words: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "reid_dist.cli", *words],
            cwd=tmp_path,
            env=os.environ | {"NUMBA_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=True,
            timeout=1200,
        )
        return done.stdout, done.stderr

    def kept() -> set[str]:
        return {path.name for path in cache.rglob("*.compiled")}

    line, _ = run("compile")
    number = re.fullmatch(r"(\d+) kernels compiled in \d+ s, kept in .*\n", line)
    assert number is not None, line
    assert int(number[1]) == len(kept()) > 50
    assert run("compile")[0].startswith("all kernels were compiled before, kept in ")
    before = kept()
    sides = [str(path) for path in stores]
    for words in (
        ("evaluate", *sides, "--workers", "1", "--topk", "5", "--ties", "--output", "out"),
        ("evaluate", *sides, "--distance", "euclidean", "--metric", "EER"),
        ("evaluate", *sides, "--rerank", "k_reciprocal", "--expand", "alpha_qe(k=3,alpha=2)"),
        ("evaluate", *sides, "--protocol", "cuhk03"),
        ("sweep", *sides, "--expand", "aqe", "--k", "0:3"),
        ("splits", *sides, "--repeats", "2"),
        ("demo",),
    ):
        _, shown = run(*words)
        assert _LINE not in shown, words
        assert kept() == before, words
