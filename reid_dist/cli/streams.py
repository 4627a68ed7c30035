"""Standard streams that are closed, full, or without a reader.

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
from typing import Final

STANDARD_OUTPUT: Final = 1
STANDARD_ERROR: Final = 2

_STILL_POLLED_S: Final = 1.0


def prepare_streams() -> None:
    """Make objects of the standard streams of this process, which is one command, whose numbers are occupied."""
    if sys.stdout is None:
        sys.stdout = open(STANDARD_OUTPUT, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is not None:
        sys.stderr.flush()
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_Messages(STANDARD_ERROR, "w", closefd=False)),
        encoding="utf-8" if sys.stderr is None else sys.stderr.encoding,
        errors="backslashreplace",
        line_buffering=True,
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


class _Messages(io.FileIO):
    """Standard error; what cannot be written to it is discarded."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write as much as the reader takes at once."""
        try:
            while (count := super().write(data)) is None:
                # The other side of a terminal may have made it non-blocking.
                select.select([], [self], [], _STILL_POLLED_S)
        except OSError:
            return len(data)
        return count
