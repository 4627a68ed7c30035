"""Temporary directories and files.

Directories are of this user alone, with the owner in the name, so that those of killed processes are removed.
The name holds host, number and start time of the process that made the directory.  The first directory that a process
makes in a place is preceded by the removal of those whose process has ended.  Only directories of this user are
removed, symbolic links are never followed, and those of other hosts and containers that share the place stay.

A file that is renamed when it is whole is a draft until then, whose name holds its owner as well: drafts of processes
that have ended are removed at the end of a run.  Those of other hosts are known by that they do not grow.

Standard library alone: it is imported before anything else.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from reid_dist.core.processes import has_ended, start_of
from reid_dist.core.semaphores import remove_semaphores

_HEAD = "reid-dist-"
_NAME = re.compile(rf"{_HEAD}([0-9a-f]{{8}})-([0-9a-f]+)-([0-9a-f]+)-\w+")
_NO_START = "0"

NAME_BYTES = len(f"{_HEAD}12345678-400000-123456789a-12345678")
"""Bytes of the longest name that `new_name` returns."""

# Places where this process has looked for abandoned directories.
_searched: set[str] = set()


DRAFT_NAME = re.compile(rf"\.({_NAME.pattern})\.tmp")
"""Names that `draft_of` returns."""


def draft_of(path: Path) -> Path:
    """Return a path beside `path`, of no other process, for a file that is renamed to `path` when it is whole."""
    # Without the name of the file: there may be no room for more.
    return path.with_name(f".{new_name()}.tmp")


def new_name() -> str:
    """Return a name for a temporary directory of this process that no other one has."""
    return f"{_prefix(os.getpid())}{secrets.token_hex(4)}"


@functools.lru_cache(maxsize=1)
def _prefix(pid: int) -> str:
    started = start_of(pid)
    return f"{_HEAD}{_host()}-{pid:x}-{_NO_START if started is None else format(int(started), 'x')}-"


def _host() -> str:
    """Host and container, within which numbers of processes are distinct: eight digits."""
    try:
        container = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        container = ""
    return f"{zlib.crc32(f'{os.uname().nodename} {container}'.encode()):08x}"


def temporary_folder(place: str | None = None) -> str:
    """Make a temporary directory of mode 0700, which the caller removes; in `place`, or the usual one."""
    place = tempfile.gettempdir() if place is None else place
    remove_abandoned(place)
    return tempfile.mkdtemp(prefix=_prefix(os.getpid()), dir=place)


def temporary_directory(place: str | None = None) -> tempfile.TemporaryDirectory[str]:
    """Make a temporary directory of mode 0700 that is removed at the end of its context, or of the process."""
    place = tempfile.gettempdir() if place is None else place
    remove_abandoned(place)
    return tempfile.TemporaryDirectory(prefix=_prefix(os.getpid()), dir=place, ignore_cleanup_errors=True)


def unnamed_file() -> IO[bytes]:
    """Open a temporary file without a name: it takes room until it is closed, or its process ends in whatever way."""
    return tempfile.TemporaryFile(prefix=_prefix(os.getpid()))


def remove_abandoned(place: str) -> None:
    """Remove temporary directories of this user in `place` whose process has ended; once per process and place.

    With them go the semaphores that are noted there.
    """
    if place in _searched:
        return
    _searched.add(place)
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if _is_abandoned(entry, _NAME.fullmatch(entry.name), stat.S_ISDIR):
                remove_semaphores(entry.path)
                # It refuses symbolic links itself, should one be put here meanwhile.
                shutil.rmtree(entry.path, ignore_errors=True)


def remove_abandoned_drafts(folder: str | os.PathLike[str]) -> None:
    """Remove drafts of this user in a folder and in those within it whose process of this host has ended."""
    for place in _with_folders_within(folder):
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                found = DRAFT_NAME.fullmatch(entry.name)
                if _is_abandoned(entry, found and _NAME.fullmatch(found[1]), stat.S_ISREG):
                    with contextlib.suppress(OSError):
                        Path(entry).unlink()


def _with_folders_within(folder: str | os.PathLike[str]) -> list[str | os.PathLike[str]]:
    within: list[str | os.PathLike[str]] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        within += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [folder, *within]


def _is_abandoned(entry: os.DirEntry[str], owner: re.Match[str] | None, is_kind: Callable[[int], bool]) -> bool:
    """Whether an entry of a kind is of this user, and of a process of this host that has ended."""
    if owner is None or owner[1] != _host():
        return False
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    if not is_kind(status.st_mode) or status.st_uid != os.geteuid():
        return False
    started = None if owner[3] == _NO_START else str(int(owner[3], 16))
    return has_ended(int(owner[2], 16), started)
