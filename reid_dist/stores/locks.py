"""Locks of the system on hidden files: on the places of stores, one writer at a time, and on stages, used in turn.

A lock ends with its process, however that ends, and its file holds the name of its owner, for messages.  Object storage
needs none: stores are not replaced there, appends are committed on a condition, and of two first writers to one place,
digests reveal any chunk that is not the one of the manifest.  Where a file system has no locks, digests and the
identities of parts do the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from reid_dist.core.regular_files import open_regular
from reid_dist.errors import StoreError, StoreExistsError
from reid_dist.stores.locations import beside
from reid_dist.stores.objects import is_object_uri

_POLLED_EVERY_S = 0.2
# Between taking a lock and writing its name, a process leaves the file empty.
_NAME_READS, _NAME_READ_EVERY_S = 50, 0.01


class Lock:
    """A lock of this process; of a place that needs none, nothing."""

    def __init__(self, path: Path, file: IO[str] | None) -> None:
        self._path, self._file, self._pid = path, file, os.getpid()

    def release(self) -> None:
        """Give it up; a forked process has none."""
        if self._file is None or self._pid != os.getpid():
            return
        # Removed while it is locked: a waiting process finds that it is no longer the file at this path.
        with contextlib.suppress(OSError):
            if _is_at(self._path, self._file):
                self._path.unlink()
        # A forked process may still have the file open.
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()
        self._file = None


def lock(uri: str) -> Lock:
    """Reserve the place of a store for this process; StoreExistsError if another writer has it."""

    def refuse(owner: str) -> None:
        raise StoreExistsError(f"{uri} is being written by {owner}; wait for it, or write elsewhere")

    try:
        return _take(uri, refuse)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"cannot write a store at {uri}: {error}") from error


@contextlib.contextmanager
def stage_lock(uri: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Hold an exclusive lock on the stage at a URI; call `warn` once while waiting for it.

    Parts that a finished stage does not need are removed, and would be missing in the middle of another run.
    """
    waits = False

    def wait(owner: str) -> None:
        nonlocal waits
        if not waits:
            waits = True
            warn(f"another run works on {uri}: waiting for it")
        time.sleep(_POLLED_EVERY_S)

    with contextlib.ExitStack() as held:
        try:
            held.callback(_take(uri, wait).release)
        except StoreError:
            raise
        except OSError:
            # What cannot be written is reported by what is written next.
            pass
        yield


def _take(uri: str, refused: Callable[[str], None]) -> Lock:
    """Take the lock of a URI; as long as another process has it, call `refused` with the name of that process."""
    path = Path(beside(uri, ".{}.lock"))
    if is_object_uri(uri):
        return Lock(path, None)
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.fdopen(open_regular(str(path), os.O_RDWR | os.O_CREAT), "r+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with file:
                owner = _name_in(file)
            refused(owner)
            continue
        except OSError:
            # A file system without locks.
            return Lock(path, file)
        if _is_at(path, file):
            file.truncate()
            file.write(f"process {os.getpid()} on {os.uname().nodename}")
            file.flush()
            return Lock(path, file)
        file.close()


def _name_in(file: IO[str]) -> str:
    """Name of the process that has a lock, once it has written it."""
    for _ in range(_NAME_READS):
        file.seek(0)
        if name := file.read():
            return name
        time.sleep(_NAME_READ_EVERY_S)
    return "another process"


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
