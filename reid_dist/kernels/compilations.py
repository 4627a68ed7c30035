"""Times at which this process compiles kernels: they take most of a first run, and no stage is charged with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from reid_dist.core.clocks import steady_time

Listener = Callable[[float, float | None], None]

_SPANS: Final[list[tuple[float, float]]] = []
_LISTENERS: Final[list[Listener]] = []


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
    for listener in [*_LISTENERS]:
        listener(began, ended)


def compiled_spans() -> list[tuple[float, float]]:
    """Begin and end of every compilation of this process so far, in seconds of `steady_time`; they may overlap."""
    return [*_SPANS]


def listen(listener: Listener) -> None:
    """Call a function at the begin of every compilation of this process, with its time and None, and at its end.

    It is called in the thread that compiles, with begin and end in seconds of `steady_time`.
    """
    if listener not in _LISTENERS:
        _LISTENERS.append(listener)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Do as `listen` does for a while."""
    listen(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)
