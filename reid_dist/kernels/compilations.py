"""Compilations of kernels in this process: when they were, and where their machine code is kept.

Compilation takes most of a first run.  Its times are recorded, so that no stage is charged with them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from reid_dist.core.clocks import steady_time

_SOURCES: Final = Path(__file__).parent

LATEST: Final = {
    False: ("counting.count_tile", "symmetric.collect_rows"),
    True: ("counting.count_tile", "jaccard.overlap_block"),
}
"""Kernels that are compiled last in a usual evaluation, without re-ranking and with it, as ``module.name``."""

INTEGERS: Final = ("quantising.quantise_rows", "transposing.transpose_integers")
"""Kernels for products of integers."""

_ONCE: Final = "compiling kernels, once per machine"


class Cache:
    """Location of machine code.

    Attributes
    ----------
    is_usual
        Whether Numba itself chooses the place.
    folder
        The directory chosen here otherwise; None without one.
    path
        Directory of the files of the kernels; None if they are not kept.
    """

    is_usual = True
    folder: Path | None = None
    path: Path | None = None


def cache_words() -> str:
    """Line that is shown while kernels are compiled: how often that happens, and why if more than once."""
    if Cache.is_usual:
        return _ONCE
    unwritable = "neither the installation nor the home directory can be written; NUMBA_CACHE_DIR names a place"
    if Cache.folder is not None:
        return f"{_ONCE}, into {Cache.folder} ({unwritable} that lasts)"
    return f"compiling kernels in every process ({unwritable} to keep them)"


@lru_cache(maxsize=1)
def sources_stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of every kernel file."""
    files = sorted(_SOURCES.glob("*.py"))
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def seem_compiled(kernels: Iterable[str]) -> bool:
    """Whether indices of kernels, ``module.name``, that are newer than all sources lie where Numba usually keeps them.

    For a process that has not imported Numba; `reid_dist.kernels.dispatchers.is_compiled` knows.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    shared = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "numba"
    places = [*shared.glob("kernels_*"), *([] if chosen else [_SOURCES / "__pycache__"])]
    newest = max(time_ns for _, _, time_ns in sources_stamp())
    indices = [index for place in places for index in place.glob("*.nbi")]
    current = {index.name.partition("-")[0] for index in indices if index.stat().st_mtime_ns > newest}
    return current >= {*kernels}


Listener = Callable[[float, float | None], None]


class _Compilations:
    """Records when this process compiles kernels: one at a time, each with the kernels that it calls."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self.listeners: list[Listener] = []
        self._depth, self._began = 0, 0.0

    def begin(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began = steady_time()
            self._report(self._began, None)

    def end(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.spans.append((self._began, steady_time()))
            self._report(*self.spans[-1])

    def _report(self, began: float, ended: float | None) -> None:
        for listener in [*self.listeners]:
            listener(began, ended)


COMPILATIONS: Final = _Compilations()


def compiled_spans() -> list[tuple[float, float]]:
    """Begin and end of every compilation of this process so far, in seconds of `steady_time`."""
    return [*COMPILATIONS.spans]


def listen(listener: Listener) -> None:
    """Call a function at the begin of every compilation of this process, with its time and None, and at its end.

    It is called in the thread that compiles, with begin and end in seconds of `steady_time`.
    """
    if listener not in COMPILATIONS.listeners:
        COMPILATIONS.listeners.append(listener)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Do as `listen` does for a while."""
    listen(listener)
    try:
        yield
    finally:
        COMPILATIONS.listeners.remove(listener)
