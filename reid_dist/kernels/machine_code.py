"""Place of the machine code of kernels on disk: one directory for each state of all that the code follows from.

The name of the directory is a digest of the sources of all kernels, of their path, of the versions of Python, Numba and
llvmlite, and of the processor.  Machine code of other sources is never found in it, nor are types of arguments that
were renamed since: Numba compares the file of a kernel alone, though a kernel holds the code of those that it calls.

Numba numbers the files of a kernel, so that two processes that compile it for different types at once could give one
name to both.  A kernel is compiled or loaded under a lock on a file, one lock per kernel, which also has it compiled
once where several processes call it first.  The system releases the locks of a process that ends.

When machine code has been saved, an empty file records it: a process that has not imported Numba knows what is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

from reid_dist.core.environment import cpu_model

_SOURCES: Final = Path(__file__).parent
_HEAD: Final = "reid-dist-"
# Of other versions, checkouts and processors; the others are removed, those that were used least recently first.
_MOST_KEPT: Final = 8
# Some ten times the compilation of the longest kernel.
_LONGEST_WAIT_S: Final = 120.0
_PAUSE_S: Final = 0.01
_COMPILED: Final = ".compiled"
# They choose another processor than that of the machine.
_PROCESSOR_VARIABLES: Final = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")

_ONCE: Final = "compiling kernels of this kind of job, once per machine"
_UNWRITABLE: Final = (
    "neither in the installation nor in the home directory can files be written and locked; NUMBA_CACHE_DIR names a "
    "place"
)


@cache
def _digest() -> str:
    """Digest of all that machine code follows from, as 16 hexadecimal digits."""
    facts = [str(sys.implementation.cache_tag), version("numba"), version("llvmlite"), cpu_model(), str(_SOURCES)]
    facts += [os.environ.get(name, "") for name in _PROCESSOR_VARIABLES]
    found = hashlib.sha256("\0".join(facts).encode())
    for path in sorted(_SOURCES.glob("*.py")):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def _places() -> Iterator[Path]:
    """Directories that may hold that of the machine code, in the order in which they are tried."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen)
    yield _SOURCES / "__pycache__"
    # Without a home directory, `expanduser` fails.
    with contextlib.suppress(RuntimeError):
        yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "numba"
    if (private := _private_place()) is not None:
        yield private


def _private_place() -> Path | None:
    """A directory that outlasts the process and that no other user can write: its files are executed."""
    folder = Path(os.sep, "var", "tmp", f"reid-dist-kernels-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_private else None


@cache
def machine_code_folder() -> Path | None:
    """Directory of the machine code, which is made if need be; None where no place has files to write and lock."""
    for place in _places():
        folder = place / f"{_HEAD}{_digest()}"
        with contextlib.suppress(OSError):
            if not folder.exists():
                folder.mkdir(parents=True, exist_ok=True)
                _remove_least_used(place)
            # Its own time says when it was last used.
            os.utime(folder)
            # Without locks, nothing would be kept: a home directory on a network file system may have none.
            with tempfile.TemporaryFile(dir=folder) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return folder
    return None


def _remove_least_used(place: Path) -> None:
    folders = sorted(place.glob(f"{_HEAD}*/"), key=lambda folder: folder.stat().st_mtime_ns, reverse=True)
    for folder in folders[_MOST_KEPT:]:
        shutil.rmtree(folder, ignore_errors=True)


def cache_words() -> str:
    """Line that is shown while kernels are compiled: how often that happens, and why if more than once."""
    folder = machine_code_folder()
    if folder is None:
        return f"compiling kernels in every process ({_UNWRITABLE} to keep them)"
    if folder.parent == _private_place():
        return f"{_ONCE}, into {folder} ({_UNWRITABLE} that lasts)"
    return _ONCE


def record_of(folder: Path, kernel: str, types: str) -> Path:
    """File that records the machine code of a kernel, ``module.name``, for some types of arguments."""
    return folder / f"{kernel}-{hashlib.sha256(types.encode()).hexdigest()[:16]}{_COMPILED}"


def compiled_kernels() -> list[str]:
    """Names of the kernels that have been compiled, ``module.name``, one for each combination of types."""
    folder = machine_code_folder()
    return [] if folder is None else [path.name.rpartition("-")[0] for path in folder.glob(f"*{_COMPILED}")]


def has_record(warmup: str) -> bool:
    """Whether the kernels of a warm-up are on disk."""
    folder = machine_code_folder()
    return folder is not None and (folder / f"{warmup}.done").exists()


def record(warmup: str) -> None:
    """Record that the kernels of a warm-up are on disk."""
    folder = machine_code_folder()
    # A disk that is full, or a directory that has been removed.
    with contextlib.suppress(OSError):
        if folder is not None:
            (folder / f"{warmup}.done").touch()


@contextlib.contextmanager
def locked(name: str, *, wait_s: float = _LONGEST_WAIT_S) -> Iterator[bool]:
    """Hold a lock of this machine code by name, against other processes; False where it is not free in time."""
    folder = machine_code_folder()
    if folder is None:
        yield False
        return
    try:
        file = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:
        yield False
        return
    try:
        yield _is_locked(file, time.monotonic() + wait_s)
    finally:
        os.close(file)


def _is_locked(file: int, deadline: float) -> bool:
    """Whether a lock could be had until a time of the monotonic clock; False also where files cannot be locked."""
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_S)
        except OSError:
            return False
        else:
            return True
