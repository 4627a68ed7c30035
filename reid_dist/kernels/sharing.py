"""One compilation per kernel, in whichever process comes first; the others wait for it and load the machine code.

The first run on a machine calls the same kernels in several processes.  A lock on a file beside the index of a kernel
is held from the look-up that finds nothing until the machine code is saved.  A kernel is locked before those that it
calls, and kernels call each other without cycles, so that no two processes wait for each other.  The system releases
the locks of a process that ends.  Where files cannot be locked, and after a long wait, a process compiles for itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# Some ten times the compilation of the longest kernel.
_LONGEST_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.01


class _Shared:
    """Look-up and saving of the machine code of one kernel under a lock on a file.

    `load` and `save` are those of Numba's cache; `waits` are called at the begin and at the end of every wait.
    """

    def __init__(
        self,
        load: Callable[[Any, Any], Any],
        save: Callable[[Any, Any], None],
        path: Path,
        waits: tuple[Callable[[], None], Callable[[], None]],
    ) -> None:
        self._load, self._save, self._path = load, save, path
        self._began, self._ended = waits
        self._held: int | None = None

    def load(self, signature: Any, target: Any) -> Any:
        """Machine code of a signature; if there is none, the lock is held until it is saved."""
        found = self._load(signature, target)
        # A compilation that failed has kept the lock.
        if found is not None or self._held is not None:
            return found
        self._acquire()
        # Compiled by the process that held the lock, perhaps.
        found = self._load(signature, target)
        if found is not None:
            self._release()
        return found

    def save(self, signature: Any, compiled: Any) -> None:
        """Save machine code, and release the lock."""
        try:
            self._save(signature, compiled)
        finally:
            self._release()

    def _acquire(self) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                if not _locked(file):
                    self._wait(file)
            except OSError:
                os.close(file)
                raise
            self._held = file

    def _wait(self, file: int) -> None:
        self._began()
        try:
            until = time.monotonic() + _LONGEST_WAIT_S
            while not _locked(file) and time.monotonic() < until:
                time.sleep(_PAUSE_S)
        finally:
            self._ended()

    def _release(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _locked(file: int) -> bool:
    """Lock a file unless another process has done so."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def share_compilation(cache: Any, path: Path, waits: tuple[Callable[[], None], Callable[[], None]]) -> None:
    """Have a cache of Numba look up and save under a lock on a file; call `waits` as each wait begins and ends."""
    shared = _Shared(cache.load_overload, cache.save_overload, path, waits)
    cache.load_overload, cache.save_overload = shared.load, shared.save
