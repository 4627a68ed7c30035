"""Standard streams that are closed, full, slow, or without a reader.

The result goes to standard output, and a command that cannot print it says so.  Standard error has progress and
messages alone: a run goes on without them.  Standard library alone: it is imported first.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import select
import sys
from typing import Final, TextIO

STANDARD_OUTPUT: Final = 1
STANDARD_ERROR: Final = 2

_POLLED_EVERY_S: Final = 1.0


def prepare_streams() -> None:
    """Make objects of the standard streams of this process, which is one command, whose numbers are occupied."""
    if sys.stdout is None:
        sys.stdout = open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    elif not os.get_blocking(STANDARD_OUTPUT):
        sys.stdout = _replaced(sys.stdout, _Waiting(STANDARD_OUTPUT, "w", closefd=False))
    sys.stderr = _replaced(sys.stderr, _Messages(STANDARD_ERROR, "w", closefd=False))


def _replaced(stream: TextIO | None, raw: io.FileIO) -> TextIO:
    """A stream like another one, None for one that was closed, that writes by `raw`."""
    if stream is not None:
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace" if stream is None else stream.errors,
        line_buffering=raw.fileno() == STANDARD_ERROR or raw.isatty(),
    )


def is_output_closed(error: OSError) -> bool:
    """Whether writing failed as standard output was closed when the process began."""
    if error.errno != errno.EBADF or error.filename is not None:
        return False
    try:
        return fcntl.fcntl(STANDARD_OUTPUT, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except OSError:
        return True


def has_no_reader() -> bool:
    """Whether standard output is a pipe or a connection whose other end is closed."""
    poll = select.poll()
    poll.register(STANDARD_OUTPUT, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


class _Waiting(io.FileIO):
    """A stream that another program has made non-blocking; the interpreter would discard what its reader delays."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write as much as the reader takes, at least one byte."""
        while (count := super().write(data)) is None:
            select.select([], [self], [], _POLLED_EVERY_S)
        return count


class _Messages(_Waiting):
    """Standard error; what cannot be written to it is discarded."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write as much as the reader takes, or discard everything."""
        try:
            return super().write(data)
        except OSError:
            return len(data)
