"""When a run starts a warm-up, and what the warm-up leaves behind: it outlasts the run that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import reid_dist.kernels.warmup as library
from reid_dist.kernels import machine_code


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Names of the warm-ups of each process that was requested; none is started.  Machine code is in `tmp_path`."""
    found: list[list[str]] = []

    def spawn(program: str, words: list[str], *_: Any, **options: Any) -> int:
        assert options["setsid"]
        found.append(words[words.index("reid_dist.evaluation.precompile") + 1 :])
        return 0

    monkeypatch.setattr(library.os, "posix_spawn", spawn)
    monkeypatch.setattr(library, "usable_cores", lambda: 2)
    monkeypatch.setattr(library, "has_integers", lambda: True)
    monkeypatch.setattr(library, "_settled", set())
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    for module in (machine_code, library):
        monkeypatch.setattr(module, "machine_code_folder", lambda: tmp_path)
    return found


def test_starts_where_no_kernel_is_on_disk(started) -> None:
    library.warmup()
    assert started == [["evaluation", "integers"]]


def test_starts_what_is_missing_once(started) -> None:
    machine_code.record("evaluation")
    library.warmup()
    library.warmup()
    assert started == [["integers"]]


def test_does_not_start_where_all_is_on_disk(started) -> None:
    machine_code.record("evaluation")
    machine_code.record("integers")
    library.warmup()
    assert not library.lacks_integers()
    assert started == []


def test_one_core_compiles_for_later_runs_alone(started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "usable_cores", lambda: 1)
    library.warmup()
    assert started == [["integers"]]


def test_integers_are_not_compiled_for_runs_in_float32(started, monkeypatch: pytest.MonkeyPatch) -> None:
    library.warmup(integers=False)
    monkeypatch.setenv("REID_DIST_SCREEN", "float32")
    library.warmup()
    assert started == [["evaluation"]]


def test_who_asks_for_integers_has_them_compiled(started) -> None:
    assert library.lacks_integers()
    assert library.lacks_integers()
    assert started == [["integers"]]


_START = """
from reid_dist.kernels import warmup
warmup.usable_cores = lambda: 2
warmup.has_integers = lambda: False
warmup.warmup()
"""


@pytest.mark.slow
def test_it_outlasts_the_run_and_the_next_run_finds_its_kernels(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", _START], env=environment, check=True, timeout=60)
    deadline = time.monotonic() + 200
    while not list(tmp_path.rglob("evaluation.done")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    kernels = {path.name.rpartition("-")[0] for path in tmp_path.rglob("*.compiled")}
    assert {"counting.count_tile", "symmetric.collect_rows"} <= kernels
