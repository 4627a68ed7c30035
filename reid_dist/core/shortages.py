"""What the system refuses a process by its limits: threads and open files; standard library alone."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from reid_dist.errors import ShortageError

# Message of the interpreter, for want of memory or by a limit.
_NO_THREAD = "can't start new thread"


def shortage(error: BaseException) -> str | None:
    """What the system refused and what to do, in one line; None for any other error."""
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        return (
            f"this process cannot start more threads ({_NO_THREAD}): raise the limits of memory (ulimit -v) and of "
            "processes (ulimit -u), or use fewer threads (taskset, --workers), and run again"
        )
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"this process cannot open more files ({error.strerror}): raise the limit (ulimit -n 1024), or use fewer "
            "--workers, and run again"
        )
    return None


@contextlib.contextmanager
def shortages() -> Iterator[None]:
    """Name a shortage as one, so that it is not taken for damage of what was read."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        message = shortage(error)
        if message is None:
            raise
        raise ShortageError(message) from error
