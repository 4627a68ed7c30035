"""End of a command: exit codes and messages of errors, and the end of its process.

Standard library and `click` alone: it is imported first.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import click

import reid_dist.core.signals as signals
from reid_dist.cli.events import OPTION, EventLog, current_log
from reid_dist.cli.streams import STANDARD_ERROR, has_no_reader, is_output_closed
from reid_dist.core.address_space import more_memory
from reid_dist.core.credentials import without_credentials
from reid_dist.core.limits import shortage, unusable_place
from reid_dist.core.processes import discard_output
from reid_dist.errors import ExitCode, InputError, ReidDistError, RunFailedError, chain_of

# Bars on a terminal hide it.
_SHOW_CURSOR = b"\x1b[?25h"

# Errors of writing where the disk is full or absent.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


@dataclass(frozen=True)
class Ending:
    """Exit code of a command, and the error with its message, if any."""

    code: int
    error: Exception | None = None


def ending_of(error: BaseException) -> Ending | None:
    """Ending of an error that reached the top; None for a defect of the package, which gets a traceback."""
    # Interrupted code may raise other errors.
    interrupt = next((each for each in chain_of(error) if isinstance(each, KeyboardInterrupt)), None)
    _Process.is_short = any(isinstance(each, MemoryError) or shortage(each) for each in chain_of(error))
    if interrupt is not None:
        return interruption(str(interrupt))
    if isinstance(error, click.Abort):
        return Ending(ExitCode.INTERRUPTED, click.ClickException("Aborted."))
    if isinstance(error, click.ClickException):
        return Ending(ExitCode.BAD_INPUT, error)
    if isinstance(error, ReidDistError):
        return Ending(error.exit_code, error)
    if isinstance(error, BrokenPipeError) and has_no_reader():
        discard_output(sys.stdout)
        return Ending(ExitCode.DONE)
    if (unusable := unusable_place(error)) is not None:
        wrong = InputError(unusable)
        return Ending(wrong.exit_code, wrong)
    failed: RunFailedError | None = None
    if isinstance(error, OSError) and is_output_closed(error):
        discard_output(sys.stdout)
        failed = RunFailedError("cannot write the output: standard output is closed; send it to a file, or /dev/null")
    elif isinstance(error, BrokenPipeError):
        # Not of the output: the run has no result.
        failed = RunFailedError(f"a process or server that this command needs has ended ({error.strerror}); run again")
    elif isinstance(error, OSError) and error.errno in _NOT_WRITTEN:
        where = error.filename
        if where is None:
            discard_output(sys.stdout)
            where = "the output"
        failed = RunFailedError(f"cannot write {where}: {error.strerror}; make room and run again")
    elif (refused := shortage(error)) is not None:
        failed = RunFailedError(refused)
    elif isinstance(error, MemoryError):
        cause = " ".join(str(error).split()) or "no more is given to it"
        failed = RunFailedError(
            f"this process ran out of memory ({cause}): "
            + more_memory(
                "request less, such as a smaller --max-rank or --topk, or run it on a machine with more memory"
            )
        )
    return None if failed is None else Ending(failed.exit_code, failed)


def interruption(kept: str = "") -> Ending:
    """Ending by a signal; `kept` describes what is kept, and how to resume."""
    name = signals.name_of(signals.received())
    return Ending(
        signals.exit_code(ExitCode.INTERRUPTED), click.ClickException(f"{name}; {kept}" if kept else f"{name}.")
    )


class _Process:
    """State of a process that is one command."""

    temporary: Path | None = None
    reported = False
    code: int | None = None
    # Whether memory or another resource of this process ran short.
    is_short = False


def prepare() -> None:
    """Register the end of this process, which is a command; once, before the command runs."""
    signals.on_forced_end(_end_at_once)
    # Registered first, hence called last.
    atexit.register(_end_last)


def make_temporary_folder() -> None:
    """Put all temporary files of this process and its workers into one directory, removed at the end."""
    if not signals.is_guarded() or _Process.temporary is not None:
        return
    import tempfile

    from reid_dist.core.temporary import new_name, remove_abandoned

    # It tries directories by writing a file in each.
    with signals.deferred():
        usual = tempfile.gettempdir()
    remove_abandoned(usual)
    place = Path(usual, new_name())
    # Recorded before it is made, so that an interruption in between leaves nothing.
    _Process.temporary = place
    try:
        place.mkdir(mode=0o700)
    except OSError:
        _Process.temporary = None
    else:
        tempfile.tempdir = str(place)


def report_interruption(ending: Ending) -> None:
    """Write the line about a signal, once."""
    if _Process.reported or ending.error is None:
        return
    _Process.reported = True
    text, log = without_credentials(str(ending.error)), current_log()
    if log is None and OPTION in sys.argv[1:]:
        log = EventLog(STANDARD_ERROR)
    if log is not None:
        log.write("error", message=text, kind="Interrupted", exit_code=ending.code)
        return
    with contextlib.suppress(OSError):
        os.write(STANDARD_ERROR, f"{text}\n".encode())


def leave(code: int) -> NoReturn:
    """End the process of a command with an exit code, unless a signal sets another.

    After an interruption, threads may run long tasks.  The interpreter would wait for them at its end; the process ends
    without waiting.  So it does where resources ran short: a compiler in another thread may not survive that.
    """
    signals.stop_raising()
    if code != ExitCode.INTERRUPTED and signals.received() is None and not _Process.is_short:
        _Process.code = code
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    if signals.received() is not None:
        report_interruption(interruption())
    with contextlib.suppress(Exception):
        _discard_standard_error()
        _end_workers()
        _run_exit_handlers()
    _remove_temporary_folder()
    os._exit(signals.exit_code(code))


def _end_last() -> None:
    """End a process whose command has ended; a signal that comes now is reported."""
    _remove_temporary_folder()
    if signals.received() is not None:
        report_interruption(interruption("the command had just ended"))
        os._exit(signals.exit_code(0))
    if _Process.code is None:
        # A defect that the interpreter has reported.
        return
    # The shutdown of the interpreter would take some tenths of a second, and calls no further handlers.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(signals.exit_code(_Process.code))


def _end_at_once(why: str) -> None:
    """Remove temporary files and workers; called from another thread while the main thread still runs."""
    report_interruption(interruption(why))
    _discard_standard_error()
    _end_workers()
    _remove_temporary_folder()
    # Names of semaphores, and keys in shared directories, would outlast the process.
    with contextlib.suppress(Exception):
        _run_exit_handlers()


def _run_exit_handlers() -> None:
    """Call all exit handlers except `_end_last`, which would end the process before handlers registered earlier."""
    atexit.unregister(_end_last)
    atexit._run_exitfuncs()


def _discard_standard_error() -> None:
    """Discard what follows the last message, such as warnings of libraries about unfinished work."""
    with contextlib.suppress(OSError):
        if sys.stderr is not None and os.isatty(STANDARD_ERROR):
            os.write(STANDARD_ERROR, _SHOW_CURSOR)
        os.dup2(os.open(os.devnull, os.O_WRONLY), STANDARD_ERROR)


def _end_workers() -> None:
    _call_of_workers("end_local_workers")


def _call_of_workers(name: str) -> None:
    """Call a function of the module of workers if it is loaded; an import in a thread may wait for the main thread."""
    function = getattr(sys.modules.get("reid_dist.clusters.workers"), name, None)
    if function is not None:
        function()


def _remove_temporary_folder() -> None:
    _call_of_workers("remove_sockets")
    if _Process.temporary is None:
        return
    import shutil

    # Repeated, as a process that is just ending may write meanwhile.
    for _ in range(3):
        shutil.rmtree(_Process.temporary, ignore_errors=True)
        if not _Process.temporary.exists():
            return
