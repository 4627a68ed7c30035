"""When kernels are compiled beside a run, by a process that has not imported Numba."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import reid_dist.clusters.beside as beside
import reid_dist.kernels.compilations as compilations
import reid_dist.kernels.usual as usual
from reid_dist.kernels.canonical import squared_norms
from reid_dist.kernels.compilations import INTEGERS, LATEST, seem_compiled
from reid_dist.kernels.compiler import cache_folder

NEEDED = LATEST[False]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[object, ...]]:
    """Arguments of the processes that were requested; none is started.  Caches are in the temporary directory."""
    found: list[tuple[object, ...]] = []
    monkeypatch.setattr(beside, "prepare_local_workers", lambda **_: None)
    monkeypatch.setattr(beside, "start_process", lambda *arguments: found.append(arguments))
    monkeypatch.setattr(beside, "usable_cores", lambda: 2)
    monkeypatch.setattr(beside._Compiling, "thread", None)
    monkeypatch.setattr(beside._Compiling, "process", None)
    monkeypatch.setattr(beside._Compiling, "kept", set())
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return found


def start(*, reranks: bool = False) -> None:
    beside.compile_beside(reranks=reranks)
    if beside._Compiling.thread is not None:
        beside._Compiling.thread.join()


def keep(folder: Path, kernels: tuple[str, ...] = NEEDED, *, younger_s: float = 10) -> None:
    """Write indices of kernels that are younger than the sources."""
    folder.mkdir(exist_ok=True, parents=True)
    newest = max(time_ns for _, _, time_ns in compilations.sources_stamp()) * 1e-9
    for kernel in kernels:
        index = folder / f"{kernel}-1.py311.nbi"
        index.touch()
        os.utime(index, (newest + younger_s,) * 2)


@pytest.mark.parametrize("reranks", [False, True])
def test_starts_where_no_kernel_is_kept(started, reranks) -> None:
    start(reranks=reranks)
    assert started == [(beside._compile_usual, reranks)]


def test_does_not_start_where_they_are_kept(started, tmp_path: Path) -> None:
    keep(tmp_path / "kernels_0")
    start()
    assert started == []
    # Re-ranking needs another one.
    start(reranks=True)
    assert started == [(beside._compile_usual, True)]


def test_starts_where_one_of_them_is_not_kept(started, tmp_path: Path) -> None:
    keep(tmp_path / "kernels_0", NEEDED[:1])
    start()
    assert len(started) == 1


def test_starts_where_those_that_are_kept_are_older_than_a_source(started, tmp_path: Path) -> None:
    keep(tmp_path / "kernels_0", younger_s=-10)
    start()
    assert len(started) == 1


def test_starts_once(started) -> None:
    start()
    start()
    assert len(started) == 1


def test_does_not_start_on_one_core(started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "usable_cores", lambda: 1)
    start()
    assert started == []


@pytest.mark.parametrize("place", ["installation/__pycache__", "home/numba/kernels_0"])
def test_looks_into_the_installation_and_the_home_directory(
    started, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place
) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    compilations.sources_stamp()
    monkeypatch.setattr(compilations, "_SOURCES", tmp_path / "installation")
    assert not seem_compiled(NEEDED)
    keep(tmp_path / place)
    assert seem_compiled(NEEDED)


@pytest.mark.parametrize("kernel", sorted({*LATEST[False], *LATEST[True], *INTEGERS}))
def test_the_names_are_those_of_kernels(kernel: str) -> None:
    function = usual._named(kernel).py_func
    assert f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}" == kernel


def test_the_names_of_kept_kernels() -> None:
    """Numba keeps these where they are looked for."""
    squared_norms(np.ones((1, 2), np.float32))
    folder = cache_folder()
    assert folder is not None
    assert folder.name == "__pycache__" or folder.match("kernels_*")
    assert next(folder.glob("canonical._squared_norms-*.nbi"), None) is not None
