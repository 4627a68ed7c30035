"""How a command ends: what an error means for whoever called it, and how the process is left.

Standard library and `click` alone: it is imported before anything else.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys
import threading
from dataclasses import dataclass
from typing import NoReturn

import click

from reid_dist.errors import ReidDistError, RunFailedError

__all__ = ["ABORTED", "Ending", "ending_of", "leave"]

ABORTED = 130
_WRONG = 2
_STANDARD_ERROR = 2

# What writing breaks with where there is no room, or no disk.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

# Seconds that an interrupted process has to tidy up.
_TIDIED_WITHIN_S = 15.0


@dataclass(frozen=True)
class Ending:
    """How a command ends.

    Attributes
    ----------
    code
        Its exit code.
    error
        What is told; None for nothing.
    """

    code: int
    error: Exception | None = None


def ending_of(error: BaseException) -> Ending | None:
    """What an error that reached the top means; None for a defect of ours, of which the traceback tells more."""
    interrupt = _interrupt_behind(error)
    if interrupt is not None:
        return Ending(ABORTED, click.ClickException(f"Interrupted; {interrupt}" if interrupt.args else "Interrupted."))
    if isinstance(error, click.Abort):
        return Ending(ABORTED, click.ClickException("Aborted."))
    if isinstance(error, click.ClickException):
        return Ending(_WRONG, error)
    if isinstance(error, ReidDistError):
        return Ending(error.exit_code, error)
    if isinstance(error, BrokenPipeError):
        # The reader of our output is gone, and wants no more.
        _discard_output()
        return Ending(0)
    failed: RunFailedError | None = None
    if isinstance(error, OSError) and error.errno in _NOT_WRITTEN:
        where = error.filename
        if where is None:
            _discard_output()
            where = "the output"
        failed = RunFailedError(f"cannot write {where}: {error.strerror}; make room and run again")
    elif isinstance(error, MemoryError):
        cause = " ".join(str(error).split()) or "no more is given to it"
        failed = RunFailedError(
            f"this process ran out of memory ({cause}): ask for less, such as a smaller --max-rank or --topk, or run "
            "it where there is more"
        )
    return None if failed is None else Ending(failed.exit_code, failed)


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Ctrl-C, where the error comes of it: what is left in the middle of something may break once more on its way."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def _discard_output() -> None:
    """Have the rest of the output go nowhere: the interpreter must not complain when it flushes it."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave(code: int) -> NoReturn:
    """Leave the process, which is a command's own; nothing disturbs that any more.

    Once it is interrupted, threads may be in the middle of tasks that take long.  An interpreter that ends by itself
    waits for them, so it is made to end with them as they are.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if code != ABORTED:
        sys.exit(code)
    # Most commands end otherwise, and are quicker without it.
    from reid_dist.workers import end_local_workers

    watch = threading.Timer(_TIDIED_WITHIN_S, os._exit, (code,))
    watch.daemon = True
    watch.start()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    # All has been said; what libraries say of what they find half done would follow it.
    with contextlib.suppress(Exception):
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_ERROR)
        end_local_workers()
        atexit._run_exitfuncs()
    os._exit(code)
