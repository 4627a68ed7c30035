"""Time and memory of whole processes, and the matrix product of comparisons."""

from __future__ import annotations

import os
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

__all__ = [
    "Usage",
    "bare_product",
    "cpu_seconds_of",
    "interleave",
    "ratio_line",
    "run_process",
    "seconds_of",
    "time_and_peak",
]

_COLUMNS = 8192


@dataclass(frozen=True)
class Usage:
    """Of one finished process with all its children."""

    # From start to end, by the wall clock.
    seconds: float
    # Largest sum over all its processes, pages that several share counted once (proportional set size).
    peak_bytes: int
    # The same, such pages counted for each (resident set size).
    peak_rss_bytes: int


def _memory(process: psutil.Process) -> tuple[int, int]:
    shared = resident = 0
    for each in [process, *process.children(recursive=True)]:
        try:
            held = each.memory_full_info()
        except psutil.Error:
            continue
        shared, resident = shared + held.pss, resident + held.rss
    return shared, resident


def run_process(words: Sequence[str], *, memory_every_s: float | None = None, cwd: Path | None = None) -> Usage:
    """Run a command to its end; its output is dropped.  Raises `RuntimeError` with its last output if it fails.

    Memory is measured at an interval in seconds, or not at all; its peaks are then 0.  Ten times a second takes several
    per cent of a core, too much for a run that is timed.
    """
    peaks = [0, 0]
    done = threading.Event()
    begin = time.perf_counter()
    # Python keeps compiled modules, as it does for users; otherwise their compilation would be timed.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=cwd, env=environment, text=True
    ) as running:

        def watch() -> None:
            process = psutil.Process(running.pid)
            while True:
                try:
                    peaks[:] = map(max, peaks, _memory(process))
                except psutil.Error:
                    return
                if done.wait(memory_every_s):
                    return

        watcher = threading.Thread(target=watch)
        if memory_every_s is not None:
            watcher.start()
        message = running.communicate()[1]
        seconds = time.perf_counter() - begin
        done.set()
        if memory_every_s is not None:
            watcher.join()
    if running.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {running.returncode}: {message[-500:]}")
    return Usage(seconds, *peaks)


def time_and_peak(words: Sequence[str], repeats: int) -> tuple[list[float], int]:
    """Seconds of each run of a command, and the peak of memory of a run before them, in bytes.

    That run is their warm-up.  A single repetition is that run itself: its figures are a trial of the benchmark alone.
    """
    first = run_process(words, memory_every_s=0.1)
    taken = [run_process(words).seconds for _ in range(repeats)] if repeats > 1 else [first.seconds]
    return taken, first.peak_bytes


def cpu_seconds_of(action: Callable[[], object]) -> float:
    """CPU seconds of this process that a call takes, all threads together: other work on the machine hardly counts."""
    begin = time.process_time()
    action()
    return time.process_time() - begin


def seconds_of(action: Callable[[], object]) -> float:
    """Wall-clock seconds of a call."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def bare_product(query: np.ndarray, gallery: np.ndarray) -> float:
    """Seconds of the plain product of all pairs, with all BLAS threads, into memory that is reused."""
    out = np.empty((len(query), _COLUMNS), np.float32)
    begin = time.perf_counter()
    for start in range(0, len(gallery), _COLUMNS):
        part = gallery[start : start + _COLUMNS]
        if len(part) == _COLUMNS:
            np.dot(query, part.T, out=out)
        else:
            np.dot(query, part.T)
    return time.perf_counter() - begin


def interleave(repeats: int, *actions: Callable[[], float]) -> list[list[float]]:
    """Run actions in turn, so that a drift of the machine affects all of them alike.

    A warm-up of each comes first, except for a single repetition, whose figures are a trial of the benchmark alone.
    """
    for action in actions if repeats > 1 else ():
        action()
    taken: list[list[float]] = [[] for _ in actions]
    for _ in range(repeats):
        for seconds, action in zip(taken, actions, strict=True):
            seconds.append(action())
    return taken


def ratio_line(name: str, ours: list[float], theirs: list[float]) -> str:
    """Median and range of the ratios, run by run."""
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    return (
        f"{name}: {statistics.median(ours):.3g} s against {statistics.median(theirs):.3g} s, ratio "
        f"{statistics.median(ratios):.3g} ({min(ratios):.3g} to {max(ratios):.3g}, {len(ratios)} runs)"
    )
