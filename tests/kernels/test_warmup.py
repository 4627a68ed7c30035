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
from reid_dist.kernels import examples, machine_code
from reid_dist.kernels.warmup import WARMUP_SENTINELS


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Names of the warm-ups of each process that was requested; none is started.  Machine code is in `tmp_path`."""
    found: list[list[str]] = []

    def spawn(program: str, words: list[str], *_: Any, **options: Any) -> int:
        assert options["setsid"]
        found.append(words[words.index(library.__name__) + 1 :])
        return 0

    monkeypatch.setattr(library.os, "posix_spawn", spawn)
    monkeypatch.setattr(library, "usable_cores", lambda: 2)
    monkeypatch.setattr(library, "has_integers", lambda: True)
    monkeypatch.setattr(library, "_settled", set())
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    for module in (machine_code, library):
        monkeypatch.setattr(module, "machine_code_folder", lambda: tmp_path)
    return found


def keep(folder: Path, name: str, *, but: int = 0) -> None:
    for kernel in WARMUP_SENTINELS[name][but:]:
        machine_code.record_of(folder, kernel, "types").touch()


@pytest.mark.parametrize(("reranks", "name"), [(False, "evaluation"), (True, "reranking")])
def test_starts_where_no_kernel_is_on_disk(started, reranks: bool, name: str) -> None:
    library.warmup(reranks=reranks)
    assert started == [[name, "integers"]]


def test_starts_what_is_missing_once(started, tmp_path: Path) -> None:
    keep(tmp_path, "evaluation")
    keep(tmp_path, "integers", but=1)
    library.warmup()
    library.warmup()
    assert started == [["integers"]]
    # Re-ranking needs another one.
    library.warmup(reranks=True)
    assert started == [["integers"], ["reranking"]]


def test_does_not_start_where_all_is_on_disk(started, tmp_path: Path) -> None:
    keep(tmp_path, "evaluation")
    keep(tmp_path, "integers")
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
    library.warmup(reranks=True)
    assert started == [["evaluation"], ["reranking"]]


def test_who_asks_for_integers_has_them_compiled(started) -> None:
    assert library.lacks_integers()
    assert library.lacks_integers()
    assert started == [["integers"]]


def test_the_names_are_those_of_examples() -> None:
    for name, kernels in WARMUP_SENTINELS.items():
        found = {function.name for function, _ in getattr(examples, name)()}
        if name == "reranking":
            found |= {function.name for function, _ in examples.evaluation()}
        assert {*kernels} <= found


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
    wanted = {*WARMUP_SENTINELS["evaluation"]}
    while not wanted <= {path.name.rpartition("-")[0] for path in tmp_path.rglob("*.compiled")}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
