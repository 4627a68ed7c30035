"""The command ``reid-dist``.

Nothing is imported before signals are taken: what comes earlier ends with the interpreter's own traceback.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and leave with its exit code: 0 done, 2 wrong usage or bad input, 3 the run failed.

    Parameters
    ----------
    arguments
        Words after ``reid-dist``; None for those of the process, which the command then is the whole of: SIGINT,
        SIGTERM and SIGHUP end it with one line, exit code 128 and the number of the signal, and its threads as they
        are.
    """
    import sys

    if arguments is not None:
        from reid_dist.cli.group import run_command

        sys.exit(run_command([*arguments]))
    try:
        import reid_dist.core.signals as signals

        signals.guard()
        from reid_dist.cli.ending import leave, prepare
        from reid_dist.cli.group import run_command

        prepare()
        code = run_command(sys.argv[1:])
        signals.stop_raising()
    except BaseException as error:
        if not _is_interrupted(error):
            raise
        # While modules were imported, which may be there in part.
        _leave_at_once()
    leave(code)


def _is_interrupted(error: BaseException) -> bool:
    """Whether a signal is behind an error: code that names attributes of a class wraps every exception it meets."""
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
    # Loaded to its last line.
    if signals is not None and hasattr(signals, "silence_libraries"):
        signals.stop_raising()
        line, code = f"{signals.name_of(signals.received())}.", signals.exit_code(_INTERRUPTED)
    if "--log-json" in sys.argv[1:]:
        line = _as_event(line, code)
    os.write(2, f"{line}\n".encode())
    os._exit(code)


def _as_event(message: str, code: int) -> str:
    """Return the event as `events.EventLog` writes it; that module may be there in part."""
    import json
    import time

    now = time.time()
    stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
    return json.dumps({"time": stamp, "event": "error", "message": message, "kind": "Interrupted", "exit_code": code})
