"""SIGINT, SIGTERM and SIGHUP in a process that is one command.

The first of them raises `Interrupted`, a `KeyboardInterrupt`, in the main thread, whose context managers then release
what the command holds.  Exceptions that are raised at an arbitrary instruction can be lost: in a destructor, in a
callback from C, in a library that catches everything.  Therefore

* a lost exception is noticed by its deallocation and raised again;
* a thread reads the number of every signal from a pipe that the interpreter's C handler writes to, wakes the main
  thread where a system call hides the signal from it, ends the process at a second signal, and ends it where the main
  thread has not come to an end in time;
* a signal that was received sets the exit code, whatever the command returns;
* blocks of library code that an exception would leave half done run under `deferred`.

Standard library alone: it is imported before anything else.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# By default nothing happens on it, so that it does no harm where the handler is gone.
_AGAIN = signal.SIGURG

# Seconds.  Programs such as timeout and srun send a signal twice, to a process and to its group.
_SAME_SIGNAL_S = 0.25
_WOKEN_AFTER_S = 0.1
_RAISED_AGAIN_AFTER_S = 0.02

# Seconds that the main thread has to come to its end, and the same where it closes what it works on in order.
_ENDS_WITHIN_S = 10.0
_CLOSES_WITHIN_S = 60.0
_POLLED_EVERY_S = 0.5

_LOST = 0


class Interrupted(KeyboardInterrupt):
    """A signal ends the command."""

    def __del__(self) -> None:
        if _GUARD is not None:
            _GUARD.report_loss()


class _Guard:
    """State of the signals of this process, and the thread that watches them."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.kept = ""
        self._raises = True
        self._deferred = self._raised = self._lost = False
        self._limit_s = _ENDS_WITHIN_S
        self._main = threading.get_ident()
        self.end: Callable[[str], None] | None = None
        readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)
        signal.set_wakeup_fd(self._writable, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(readable,), name="signals", daemon=True).start()
        signal.signal(_AGAIN, self._again)
        for number in NUMBERS:
            # nohup, and shells that start a command in the background, have it ignore signals.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._first)

    def stop_raising(self) -> None:
        self._raises = False

    def acknowledge(self, kept: str) -> None:
        self._raises, self._limit_s, self.kept = False, _CLOSES_WITHIN_S, kept

    def report_loss(self) -> None:
        """Report that the exception was deallocated."""
        if self._raises:
            self._lost = True
            with contextlib.suppress(OSError):
                os.write(self._writable, bytes([_LOST]))

    def _first(self, number: int, _: object) -> None:
        if self.number is None:
            self.number = number
        self._raise()

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        if self.number is not None:
            self._raise()

    def _raise(self) -> None:
        if self._raises and not self._raised and not self._deferred:
            self._raised = True
            silence_libraries()
            raise Interrupted

    def _again(self, _: int, __: object) -> None:
        if self._raises and self._lost:
            self._lost = False
            raise Interrupted

    def _watch(self, readable: int) -> None:
        """Read numbers of signals, for as long as the process lasts."""
        first: int | None = None
        began: float | None = None
        latest: float | None = None
        wait: float | None
        while True:
            pending = self._raises and not self._raised
            wait = None if first is None else _WOKEN_AFTER_S if pending else _POLLED_EVERY_S
            seen = os.read(readable, 64) if select.select([readable], [], [], wait)[0] else b""
            now = time.monotonic()
            for number in seen:
                if number == _LOST:
                    # Not at once: the frame that lost it may still be the one that runs.
                    time.sleep(_RAISED_AGAIN_AFTER_S)
                    self._wake()
                elif number not in NUMBERS:
                    continue
                elif first is None or began is None or latest is None:
                    first, began, latest = number, now, now
                    self.number = self.number or number
                elif number != first or now - latest > _SAME_SIGNAL_S:
                    self._force("ended at once by a second signal")
                else:
                    latest = now
            if not seen and pending:
                # The kernel may have chosen another thread for it, while the main thread waits in a system call.
                self._wake()
            if began is not None and now - began > self._limit_s:
                self._force(f"ended after {self._limit_s:g} s, since the work in hand did not end")

    def _wake(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            signal.pthread_kill(self._main, _AGAIN)

    def _force(self, why: str) -> None:
        self._raises = False
        code = exit_code(0)
        # Whatever comes to a stop in what follows, the process ends.
        last = threading.Timer(2.0, os._exit, (code,))
        last.daemon = True
        last.start()
        with contextlib.suppress(Exception):
            if self.end is not None:
                self.end(why)
            else:
                os.write(2, f"{name_of(self.number)}; {why}.\n".encode())
        os._exit(code)


_GUARD: _Guard | None = None


def guard() -> None:
    """Take the signals of this process, from its main thread; once."""
    global _GUARD
    if _GUARD is None:
        before = sys.unraisablehook

        def unraisable(found: sys.UnraisableHookArgs) -> None:
            """Exceptions that destructors and callbacks lose: none of them is worth a line once a signal has come."""
            if received() is None and not isinstance(found.exc_value, Interrupted):
                before(found)

        sys.unraisablehook = unraisable
        _GUARD = _Guard()


def release() -> None:
    """Give the signals back to the system's defaults, for a process that handles them itself."""
    global _GUARD
    if _GUARD is not None:
        _GUARD.stop_raising()
        signal.set_wakeup_fd(-1)
        for number in (*NUMBERS, _AGAIN):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        _GUARD = None


def is_guarded() -> bool:
    """Whether this process has called `guard`."""
    return _GUARD is not None


def received() -> int | None:
    """Number of the first signal; None if there was none, or `guard` was not called."""
    return None if _GUARD is None else _GUARD.number


def exit_code(otherwise: int) -> int:
    """Exit code of the process: 128 and the number of the signal, as shells have it."""
    number = received()
    return otherwise if number is None else 128 + number


def name_of(number: int | None) -> str:
    """First words of the line about a signal."""
    if number is None or number == signal.SIGINT:
        return "Interrupted"
    return f"Ended by {signal.Signals(number).name}"


def acknowledge(kept: str) -> None:
    """Catch the exception for good: nothing is raised any more, and the command has a minute to come to its end."""
    if _GUARD is not None:
        _GUARD.acknowledge(kept)


def kept() -> str:
    """Return the words of `acknowledge`; empty without them."""
    return "" if _GUARD is None else _GUARD.kept


def stop_raising() -> None:
    """Raise nothing any more, for the command is about to end."""
    if _GUARD is not None:
        _GUARD.stop_raising()


def deferred() -> contextlib.AbstractContextManager[None]:
    """Raise what a signal raises after a block that is short and must not be left half done."""
    return contextlib.nullcontext() if _GUARD is None else _GUARD.deferred()


def on_forced_end(end: Callable[[str], None]) -> None:
    """Set what is called, from another thread, before the process is ended at once; it is given the reason."""
    if _GUARD is not None:
        _GUARD.end = end


def silence_libraries() -> None:
    """Keep libraries from reporting what they find half done."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.disable(logging.CRITICAL)
    warnings = sys.modules.get("warnings")
    if warnings is not None:
        warnings.simplefilter("ignore")
    # Extension modules print an exception that reaches them while they are imported, and raise another one.
    sys.excepthook = _discard


def _discard(*_: object) -> None:
    # The interpreter keeps a printed exception, which is not lost for as long.
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        if hasattr(sys, name):
            setattr(sys, name, None)
