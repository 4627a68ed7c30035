"""The length of file names; standard library alone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from reid_dist.errors import InputError

LONGEST_NAME = 255
"""Bytes of the longest name of a file or directory, on the file systems in use."""


def refuse_long_names(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file system takes, before any work."""
    for name in Path(path).parts:
        n_bytes = len(os.fsencode(name))
        if n_bytes > LONGEST_NAME:
            raise InputError(f"a name of {n_bytes} bytes is too long, {LONGEST_NAME} are allowed: shorten {name}")


def long_name(error: BaseException) -> str | None:
    """What to do about a path that the file system finds too long, in one line; None for any other error."""
    if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
        return None
    return f"a path is too long for the file system: shorten {error.filename or 'it'}"
