"""Compilation of kernels while tasks run: reported as it begins, and left out of the times of the stages.

A kernel is compiled by the first process that calls it, in this process or in a worker, which sends begin and end to
the client through the scheduler.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from reid_dist.kernels.compilations import listening
from reid_dist.kernels.machine_code import cache_words

if TYPE_CHECKING:
    from distributed import Client


_TOPIC = "reid-dist-compilation"


class Spans:
    """A union of time spans, which threads add to."""

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        self._lock = threading.Lock()
        self._spans: list[tuple[float, float]] = []
        for began, ended in spans:
            self.add(began, ended)

    def add(self, began: float, ended: float) -> float:
        """Add a span and return how many seconds of it are new."""
        with self._lock:
            apart = [span for span in self._spans if span[1] < began or span[0] > ended]
            touched = [span for span in self._spans if span not in apart]
            whole = (min([began, *(span[0] for span in touched)]), max([ended, *(span[1] for span in touched)]))
            self._spans = sorted([*apart, whole])
            return (whole[1] - whole[0]) - sum(span[1] - span[0] for span in touched)

    def within(self, began: float, ended: float) -> float:
        """Seconds of the union that lie in a span."""
        with self._lock:
            return sum(max(0.0, min(span[1], ended) - max(span[0], began)) for span in self._spans)

    def all(self) -> list[tuple[float, float]]:
        """The spans, apart from each other, in order."""
        with self._lock:
            return [*self._spans]


@contextlib.contextmanager
def compilation_of(
    client: Client | None, begun: Callable[[str], None], ended: Callable[[float, float], None]
) -> Iterator[None]:
    """Report compilations while tasks run on a cluster, or in this process (None).

    `begun` is called with the line to show, possibly from another thread; `ended` with begin and end in seconds of
    `reid_dist.core.clocks.steady_time`.
    """

    def report(began: float, at: float | None, words: str) -> None:
        if at is None:
            begun(words)
        else:
            ended(began, at)

    if client is None:
        with listening(lambda began, at: report(began, at, cache_words())):
            yield
        return
    client.subscribe_topic(_TOPIC, lambda message: report(*message[1]))
    try:
        yield
    finally:
        # It fails without a scheduler.
        with contextlib.suppress(Exception):
            client.unsubscribe_topic(_TOPIC)


def report_to_scheduler(began: float, ended: float | None) -> None:
    """Send a compilation of this process to the client, if this is a worker that runs a task."""
    if "distributed.worker" not in sys.modules:
        return
    from distributed import get_worker

    # In other threads, and in processes that are no workers.
    with contextlib.suppress(ValueError):
        get_worker().log_event(_TOPIC, [began, ended, cache_words()])
