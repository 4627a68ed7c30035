"""The command ``reid-dist``.

Signals are handled before anything is imported: an earlier one would end in a traceback of the interpreter.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit code, a `reid_dist.errors.ExitCode`.

    Parameters
    ----------
    arguments
        Words after ``reid-dist``; None for those of the process.  SIGINT, SIGTERM and SIGHUP then end the process with
        one line and the exit code 128 plus the number of the signal, without waiting for its threads.
    """
    import sys

    if arguments is not None:
        from reid_dist.cli.group import run_command

        sys.exit(run_command([*arguments]))
    try:
        _occupy_streams()
        import reid_dist.core.signals as signals

        signals.guard()
        from reid_dist.cli.streams import prepare_streams

        prepare_streams()
        from reid_dist.cli.ending import leave, prepare
        from reid_dist.cli.group import run_command

        prepare()
        code = run_command(sys.argv[1:])
        signals.stop_raising()
    except BaseException as error:
        if not _is_interrupted(error):
            raise
        # While modules were imported, which may be incomplete.
        _leave_at_once()
    leave(code)


def _occupy_streams() -> None:
    """Open the null device in the place of standard streams that are closed.

    The next file, or the pipe of signals, would take their numbers, and get whatever is written there.
    """
    import os

    # What is written to standard output fails, as it does where it is closed; messages are discarded.
    for number, flags in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free.
            os.set_inheritable(os.open(os.devnull, flags), True)


def _is_interrupted(error: BaseException) -> bool:
    """Whether a signal caused an error: the interpreter may wrap exceptions while it makes a class."""
    import sys

    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        return True
    received = getattr(sys.modules.get("reid_dist.core.signals"), "received", None)
    return received is not None and received() is not None


def _leave_at_once() -> NoReturn:
    import os
    import sys

    signals = sys.modules.get("reid_dist.core.signals")
    line, code = "Interrupted.", _INTERRUPTED
    # Only a module that is complete.
    if signals is not None and hasattr(signals, "silence_libraries"):
        signals.stop_raising()
        line, code = f"{signals.name_of(signals.received())}.", signals.exit_code(_INTERRUPTED)
    if "--log-json" in sys.argv[1:]:
        line = _as_event(line, code)
    os.write(2, f"{line}\n".encode())
    os._exit(code)


def _as_event(message: str, code: int) -> str:
    """Event as `events.EventLog` writes it; that module may be incomplete."""
    import json
    import time

    now = time.time()
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": stamp, "event": "error", "message": message, "kind": "Interrupted", "exit_code": code})
