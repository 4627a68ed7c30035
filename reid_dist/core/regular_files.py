"""Files that a user names, or that are in a folder of somebody else: regular ones, opened without waiting.

A pipe would be waited for, and a device need not end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from reid_dist.core.formatting import byte_size
from reid_dist.core.limits import refuse_unusable_path, usable_memory
from reid_dist.errors import InputError, StoreError, StoreNotFoundError

MOST_SETTINGS: Final = 1 << 20
"""Bytes of the largest file that holds a few values, such as an address or a key."""

_BLOCK: Final = 1 << 16
_KINDS: Final = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"))


def refuse_special(path: str | os.PathLike[str], mode: int) -> None:
    """Refuse what is neither a file nor a folder, by its `st_mode`: a `StoreError`."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = next((name for test, name in _KINDS if test(mode)), "a device")
        raise StoreError(f"{os.fspath(path)} is {kind} and no file; write it to a file first")


def open_regular(path: str, flags: int) -> int:
    """Open a file, as the `opener` of `open`; StoreError for a pipe, a socket or a device."""
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            refuse_special(path, Path(path).stat().st_mode)
        raise
    try:
        refuse_special(path, os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], most_bytes: int | None = None) -> bytes:
    """Read a whole file of at most so many bytes, by default as many as there is memory.

    OSError as of `open`; StoreError for a pipe, a socket or a device; InputError for a longer file and for a path that
    no file can have.
    """
    refuse_unusable_path(path)
    most = usable_memory() if most_bytes is None else most_bytes
    with open(path, "rb", opener=open_regular) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1) if size <= most else b""
        # Files of the system have no size, and others may grow.
        while size < len(content) <= most and (more := file.read(_BLOCK)):
            content += more
    if max(size, len(content)) > most:
        found = byte_size(max(size, len(content)))
        raise InputError(f"{os.fspath(path)} has {found} or more, and at most {byte_size(most)} are read")
    return content


def read_named(path: str | os.PathLike[str], what: str, most_bytes: int | None = None) -> bytes:
    """Read a whole file as `read_regular` does; the errors call it `what`, such as ``"cluster file"``.

    StoreNotFoundError if nothing is there, StoreError if it cannot be read.
    """
    try:
        return read_regular(path, most_bytes)
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no {what} {os.fspath(path)!r}") from None
    except StoreError as error:
        raise StoreError(f"cannot read {what}: {error}") from None
    except OSError as error:
        raise StoreError(f"cannot read {what} {os.fspath(path)!r}: {error.strerror or error}") from None
