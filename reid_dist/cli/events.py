"""Events of a command as JSON on standard error, an object a line: ``--log-json``.

Programs that read them must find nothing else there, and libraries, workers and the interpreter all write to standard
error when something is wrong.  So its file descriptor becomes a pipe while the command runs, and every line that comes
out of it becomes an event too.

Standard library alone: it is set up before anything else is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import IO, Any

OPTION = "--log-json"

_STANDARD_ERROR = 2


class EventLog:
    """Writes events: each has ``time`` (UTC), ``event``, and what belongs to it.

    Parameters
    ----------
    descriptor
        File descriptor to write to.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        # What standard error still holds becomes events; nothing where it is not read.
        self.catch_up: Callable[[], None] = lambda: None

    def write(self, event: str, **facts: Any) -> None:
        """Write an event, whole lines even where threads write at once; numbers that JSON does not have become null."""
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        values = {name: _finite(value) for name, value in facts.items()}
        line = memoryview(json.dumps({"time": stamp, "event": event, **values}).encode() + b"\n")
        # The reader of the events may be gone; the work continues.
        with self._lock, contextlib.suppress(OSError):
            while line:
                line = line[os.write(self._descriptor, line) :]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and value - value != 0 else value


# A reader that is stuck does not keep a command from ending.
_MOST_SECONDS = 5.0

_CURRENT: list[EventLog] = []


def current_log() -> EventLog | None:
    """Return the log of the command that runs; None without ``--log-json``."""
    return _CURRENT[-1] if _CURRENT else None


@contextlib.contextmanager
def logged() -> Iterator[EventLog]:
    """Turn standard error into events, and back at the end."""
    sys.stderr.flush()
    kept = os.dup(_STANDARD_ERROR)
    readable, writable = os.pipe()
    os.dup2(writable, _STANDARD_ERROR)
    log = EventLog(kept)
    marks: dict[bytes, threading.Event] = {}
    # Unique, for it marks the end: child processes may hold the pipe open longer than this one.
    last = f"end of {os.getpid()} {id(log)}"
    reader = threading.Thread(
        target=_tell_lines, args=(os.fdopen(readable, "rb"), last.encode(), log, marks), daemon=True
    )
    reader.start()

    def catch_up() -> None:
        sys.stderr.flush()
        passed = threading.Event()
        mark = f"mark of {os.getpid()} {id(passed)}".encode()
        marks[mark] = passed
        os.write(writable, b"\n" + mark + b"\n")
        passed.wait(_MOST_SECONDS)

    log.catch_up = catch_up
    _CURRENT.append(log)
    try:
        yield log
    finally:
        _CURRENT.remove(log)
        sys.stderr.flush()
        os.dup2(kept, _STANDARD_ERROR)
        os.write(writable, f"\n{last}\n".encode())
        os.close(writable)
        reader.join()
        os.close(kept)


def _tell_lines(source: IO[bytes], last: bytes, log: EventLog, marks: dict[bytes, threading.Event]) -> None:
    with source:
        for line in source:
            content = line.rstrip(b"\r\n")
            if content == last:
                return
            if content in marks:
                marks.pop(content).set()
            elif content:
                log.write("log", text=content.decode(errors="replace"))
