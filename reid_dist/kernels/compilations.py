"""Times at which this process compiles kernels: they take most of a first run, and no stage is charged with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from reid_dist.core.clocks import steady_time

Listener = Callable[[float, float | None], None]

LISTENERS: Final[list[Listener]] = []
"""Functions that are called in the thread that compiles: with the begin and None, and at the end with begin and end.

Times are in seconds of `steady_time`.
"""

_SPANS: Final[list[tuple[float, float]]] = []


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Record that this process compiles while the context lasts; contexts of several threads may overlap."""
    began = steady_time()
    _report(began, None)
    try:
        yield
    finally:
        ended = steady_time()
        _SPANS.append((began, ended))
        _report(began, ended)


def _report(began: float, ended: float | None) -> None:
    for listener in [*LISTENERS]:
        listener(began, ended)


def compiled_spans() -> list[tuple[float, float]]:
    """Begin and end of every compilation of this process so far, in seconds of `steady_time`; they may overlap."""
    return [*_SPANS]


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have a function called at every compilation of this process for a while."""
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)
