"""Events of a command as JSON lines on standard error: ``--log-json``.

Readers of the events must find nothing else there, and libraries, workers and the interpreter write errors to standard
error.  Its file descriptor is therefore a pipe while the command runs, and every line read from it becomes an event.

Standard library alone: it is imported first.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

import reid_dist.core.signals as signals
from reid_dist.cli.streams import STANDARD_ERROR

OPTION = "--log-json"

_POLLED_EVERY_S = 1.0


class EventLog:
    """Writer of events to a file descriptor: each has ``time`` (UTC), ``event``, and facts."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        # Makes events of what standard error still holds; nothing where it is not read.
        self.catch_up: Callable[[], None] = lambda: None

    def write(self, event: str, **facts: Any) -> None:
        """Write an event as one line, also from several threads; numbers that JSON lacks become null."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {name: _finite(value) for name, value in facts.items()}
        line = memoryview(json.dumps({"time": stamp, "event": event, **values}).encode() + b"\n")
        # Without a reader, the work continues.
        with self._lock, contextlib.suppress(OSError):
            while line:
                try:
                    line = line[os.write(self._descriptor, line) :]
                except BlockingIOError:
                    select.select([], [self._descriptor], [], _POLLED_EVERY_S)


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and value - value != 0 else value


# Longest wait for the thread that reads standard error, so that a command ends in any case.
_MOST_SECONDS = 5.0

_CURRENT: list[EventLog] = []


def current_log() -> EventLog | None:
    """Return the log of the command that runs; None without ``--log-json``."""
    return _CURRENT[-1] if _CURRENT else None


@contextlib.contextmanager
def logged() -> Iterator[EventLog]:
    """Turn standard error into events, and back at the end."""
    capture = _StderrCapture()
    try:
        # A signal in between would leave its message in the pipe, which may not be read any more.
        with signals.deferred():
            capture.begin()
        yield capture.log
    finally:
        with signals.deferred():
            capture.end()


class _StderrCapture:
    """Standard error as a pipe, whose lines a thread turns into events."""

    def __init__(self) -> None:
        sys.stderr.flush()
        self._kept = os.dup(STANDARD_ERROR)
        self.log = EventLog(self._kept)
        self._marks: dict[bytes, threading.Event] = {}
        # A unique line marks the end: child processes may hold the pipe open for longer.
        self._last = f"end of {os.getpid()} {id(self)}"
        self._reader: threading.Thread | None = None

    def begin(self) -> None:
        readable, self._writable = os.pipe()
        os.dup2(self._writable, STANDARD_ERROR)
        source = os.fdopen(readable, "rb")
        self._reader = threading.Thread(
            target=_write_lines, args=(source, self._last.encode(), self.log, self._marks), daemon=True
        )
        self._reader.start()
        self.log.catch_up = self._catch_up
        _CURRENT.append(self.log)

    def end(self) -> None:
        if self._reader is not None:
            _CURRENT.remove(self.log)
            sys.stderr.flush()
            os.dup2(self._kept, STANDARD_ERROR)
            os.write(self._writable, f"\n{self._last}\n".encode())
            os.close(self._writable)
            self._reader.join()
        os.close(self._kept)

    def _catch_up(self) -> None:
        sys.stderr.flush()
        passed = threading.Event()
        mark = f"mark of {os.getpid()} {id(passed)}".encode()
        self._marks[mark] = passed
        os.write(self._writable, b"\n" + mark + b"\n")
        passed.wait(_MOST_SECONDS)


def _write_lines(source: IO[bytes], last: bytes, log: EventLog, marks: dict[bytes, threading.Event]) -> None:
    with source:
        for line in source:
            content = line.rstrip(b"\r\n")
            if content == last:
                return
            if content in marks:
                marks.pop(content).set()
            elif content:
                log.write("log", text=content.decode(errors="replace"))
