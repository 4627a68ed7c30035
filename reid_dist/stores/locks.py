"""Locks on the places of stores, one writer at a time, and on stages of workspaces, whose users take turns.

A lock on a store is a hidden file beside it, made by exclusive creation, with host and process of its writer.  A lock
of a process of this host that has ended is taken over.  Object storage needs no lock: stores are not replaced there,
and of two first writers to one place, digests reveal any chunk that is not the one of the manifest.

A lock on a stage is one of the system on a hidden file, which ends with its process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from reid_dist.core.processes import has_ended, start_of
from reid_dist.core.regular_files import open_regular
from reid_dist.errors import StoreError, StoreExistsError
from reid_dist.stores.locations import hidden_beside
from reid_dist.stores.object_errors import is_object_uri

# Between the creation of a lock and its content, which is written at once, it is empty.  One of a process that ended
# between the two stays so.
_EMPTY_SECONDS = 2.0
# Another process may take over the same lock, or release it, between two reads.
_MOST_TRIES = 20
_POLLED_EVERY_S = 0.2


def lock(uri: str) -> Path | None:
    """Reserve the place of a store for this process; return the lock, None on object storage.

    StoreExistsError if another writer has it.
    """
    if is_object_uri(uri):
        return None
    path = Path(hidden_beside(uri, "lock"))
    found: dict[str, Any] | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(_MOST_TRIES):
            if _create(path):
                return path
            with contextlib.suppress(FileNotFoundError), open(path, "r+", opener=open_regular) as file:
                found = _read_written(file)
                if not _is_abandoned(found):
                    break
                _remove_abandoned(path, file)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"cannot write a store at {uri}: {error}") from error
    owner = f"process {found['pid']} on {found['host']}" if found else "another process"
    raise StoreExistsError(
        f"{uri} is being written by {owner}; wait for it, or write elsewhere (if that process has ended, delete {path})"
    )


def unlock(path: Path | None, pid: int) -> None:
    """Release a lock that this process has; a forked process has none."""
    if path is not None and pid == os.getpid():
        with contextlib.suppress(OSError), open(path, opener=open_regular) as file:
            if _read(file) == _owner():
                path.unlink()


def _owner() -> dict[str, Any]:
    return {"host": os.uname().nodename, "pid": os.getpid(), "started": start_of(os.getpid())}


def _create(path: Path) -> bool:
    """Create a lock with its content; False if another process has it."""
    try:
        with path.open("x") as file:
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            # A process that is stopped here for long leaves an empty lock, which another one takes over.
            if not _is_at(path, file):
                return False
            file.write(json.dumps(_owner()))
            return True
    except FileExistsError:
        return False


def _read(file: IO[str]) -> dict[str, Any] | None:
    file.seek(0)
    try:
        found = json.loads(file.read())
        return {name: found[name] for name in ("host", "pid", "started")}
    except (ValueError, KeyError, TypeError):
        return None


def _read_written(file: IO[str]) -> dict[str, Any] | None:
    """Return the owner, once its process has written it; None if it has not."""
    deadline = time.monotonic() + _EMPTY_SECONDS
    while (found := _read(file)) is None and time.monotonic() < deadline:
        time.sleep(_POLLED_EVERY_S)
    return found


def _is_abandoned(owner: dict[str, Any] | None) -> bool:
    """Whether the writer has ended; of one on another host nothing is known."""
    if owner is None:
        return True
    if owner["host"] != os.uname().nodename:
        return False
    return has_ended(owner["pid"], owner["started"])


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _remove_abandoned(path: Path, file: IO[str]) -> None:
    """Remove the lock that is open; of several processes that do so, one does, and no newer lock is removed."""
    fcntl.flock(file, fcntl.LOCK_EX)
    if _is_at(path, file) and _is_abandoned(_read(file)):
        path.unlink()


@contextlib.contextmanager
def in_turn(uri: str, warn: Callable[[str], None]) -> Iterator[None]:
    """Wait, after one line to `warn`, until nothing else works on the stage at a URI, and keep it meanwhile.

    Parts that a finished stage does not need are removed, and would be missing in the middle of another run.
    """
    if is_object_uri(uri):
        yield
        return
    path = Path(hidden_beside(uri, "turn"))
    file = _take_turn(path, uri, warn)
    try:
        yield
    finally:
        if file is not None:
            # Removed while it is locked: a waiting process finds that it is no longer the file at this path.
            with contextlib.suppress(OSError):
                path.unlink()
            file.close()


def _take_turn(path: Path, uri: str, warn: Callable[[str], None]) -> IO[str] | None:
    """Return the locked file; None where the file system has no locks or cannot be written."""
    waits = False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.fdopen(open_regular(str(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a")
        except StoreError:
            raise
        except OSError:
            # What cannot be written is reported by what is written next.
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(path, file):
                return file
        except BlockingIOError:
            if not waits:
                waits = True
                warn(f"another run works on {uri}: waiting for it")
            time.sleep(_POLLED_EVERY_S)
        except OSError:
            file.close()
            return None
        file.close()
