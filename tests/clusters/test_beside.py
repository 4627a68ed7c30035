"""When kernels are compiled beside a run in threads, before this process has imported Numba."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import reid_dist.clusters.beside as beside
from reid_dist.kernels.canonical import squared_norms
from reid_dist.kernels.settings import cache_folder


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """Arguments of the processes that were requested; none is started."""
    found: list[tuple[object, ...]] = []
    monkeypatch.setattr(beside, "prepare_local_workers", lambda **_: None)
    monkeypatch.setattr(beside, "start_process", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(beside, "usable_cores", lambda: 2)
    monkeypatch.setattr(beside._Compiling, "thread", None)
    monkeypatch.setattr(beside._Compiling, "process", None)
    return found


def early(*, reranks: bool = False) -> None:
    beside.compile_early(reranks=reranks)
    if beside._Compiling.thread is not None:
        beside._Compiling.thread.join()


@pytest.mark.parametrize("reranks", [False, True])
def test_starts_where_no_kernel_is_kept(started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reranks) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    early(reranks=reranks)
    assert started == [(beside._compile_usual, reranks)]


def test_does_not_start_where_kernels_are_kept(started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels_0").mkdir()
    (tmp_path / "kernels_0" / "counting.count_tile-1.py311.nbi").touch()
    early()
    assert started == []


def test_does_not_start_on_one_core(started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(beside, "usable_cores", lambda: 1)
    early()
    assert started == []


@pytest.mark.parametrize("writable", [True, False])
def test_looks_into_an_installation_that_can_be_written(
    started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, writable
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(beside, "_KERNELS", tmp_path)
    monkeypatch.setattr(beside.os, "access", lambda *_: writable)
    early()
    assert bool(started) == writable


def test_the_names_of_kept_kernels() -> None:
    """Numba keeps these where they are looked for."""
    squared_norms(np.ones((1, 2), np.float32))
    folder = cache_folder()
    assert folder is not None
    assert folder.name == "__pycache__" or folder.match("kernels_*")
    assert next(folder.glob("*.nbi"), None) is not None
