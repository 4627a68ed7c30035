"""Limits of the system (memory, threads, open files, file names), and what it lacks; standard library alone."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from reid_dist.core.address_space import address_space, more_memory, unloadable
from reid_dist.errors import InputError, ShortageError

LONGEST_NAME = 255
"""Bytes of the longest name of a file or directory, on the file systems in use."""

_LONGEST_PATH = 4096

# Control groups of this process, and where their files are.
_GROUPS, _GROUPS_MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


@functools.cache
def usable_memory() -> int:
    """Bytes of memory that the processes of this machine, container or batch job may use together, read once."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _files_of_limits():
        # Without a limit, it is no number.  Names of groups may be those of a container's host, without files here.
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text()))
    return min(found)


def _files_of_limits() -> Iterator[Path]:
    """Files with limits of memory of this process's control groups and of all that contain them, in both versions."""
    lines = []
    with contextlib.suppress(OSError):
        lines = _GROUPS.read_text().splitlines()
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, name = (
            (_GROUPS_MOUNT / "memory", "memory.limit_in_bytes") if controllers else (_GROUPS_MOUNT, "memory.max")
        )
        innermost = Path(group.strip("/"))
        # A group outside the namespace of this process begins with "..": only the root can be read.
        inside = ".." not in innermost.parts
        for place in (innermost, *innermost.parents) if inside else (Path(),):
            yield folder / place / name


# Containers of Linux without it are rare, and Dask cannot be imported in them.
_LINUX, _PROCESSES = sys.platform == "linux", Path("/proc/self/stat")

# Message of the interpreter, for want of memory or by a limit.
_NO_THREAD = "can't start new thread"


def shortage(error: BaseException) -> str | None:
    """What the system refused and what to do, in one line; None for any other error."""
    if isinstance(error, RuntimeError) and str(error) == _NO_THREAD:
        fewer = "use fewer threads (taskset, --workers), and run again"
        if address_space() is None:
            fewer = f"raise the limits of memory (ulimit -v) and of processes (ulimit -u), or {fewer}"
        return f"this process cannot start more threads ({_NO_THREAD}): {more_memory(fewer)}"
    if (no_room := unloadable(error)) is not None:
        return no_room
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return f"this process gets no more memory ({error.strerror}): {more_memory('run it where there is more')}"
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return (
            f"this process cannot open more files ({error.strerror}): raise the limit (ulimit -n 1024), or use fewer "
            "--workers, and run again"
        )
    if type(error).__module__.partition(".")[0] == "psutil" and _LINUX and not _PROCESSES.exists():
        return (
            "this system shows no processes in /proc, where Dask looks for its own by psutil: mount it (mount -t proc "
            "proc /proc), or run in a container that has it, and run again"
        )
    return None


@contextlib.contextmanager
def shortages() -> Iterator[None]:
    """Name a shortage as one, so that it is not taken for damage of what was read."""
    try:
        yield
    except Exception as error:
        message = shortage(error)
        if message is None:
            raise
        raise ShortageError(message) from error


def encoded_path(path: str | os.PathLike[str]) -> bytes:
    """Return a path as the system takes it; refuse one with a zero byte or half of a surrogate pair."""
    text = os.fspath(path)
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise InputError(f"no file can have the path {text!a}: it holds a zero byte, or half of a surrogate pair")
    return encoded


def refuse_unusable_path(path: str | os.PathLike[str]) -> None:
    """Refuse a path that no file system takes, before any work."""
    encoded = encoded_path(path)
    if len(encoded) >= _LONGEST_PATH:
        raise InputError(f"a path is too long for the file system: shorten {os.fspath(path)}")
    for name in Path(path).parts:
        n_bytes = len(os.fsencode(name))
        if n_bytes > LONGEST_NAME:
            raise InputError(f"a name of {n_bytes} bytes is too long, {LONGEST_NAME} are allowed: shorten {name}")


def unusable_place(error: BaseException) -> str | None:
    """What to do about a path that the system does not take as it is, in one line; None for any other error."""
    if not isinstance(error, OSError):
        return None
    if error.errno == errno.ENAMETOOLONG:
        return f"a path is too long for the file system: shorten {error.filename or 'it'}"
    if isinstance(error, PermissionError) and error.filename is not None:
        return f"cannot use {os.fsdecode(error.filename)}: {error.strerror}; change its permissions, or choose another"
    if isinstance(error, FileNotFoundError) and error.filename is None and not _has_directory():
        return "the current directory is gone, and paths are relative to it: change to one that is there (cd)"
    return None


def _has_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True
