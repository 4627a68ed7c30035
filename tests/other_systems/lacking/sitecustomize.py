"""Makes a Python process lack what Linux has and other systems do not; imported at its start from ``PYTHONPATH``.

Calls, flags and signals that macOS has not are removed, files below /proc, /sys and /dev/shm are hidden, and the file
systems have no locks.  psutil alone still sees /proc: on each system it has means of its own.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import mmap
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

_LACKING: dict[Any, tuple[str, ...]] = {
    os: (
        *("sched_getaffinity", "sched_setaffinity", "posix_fadvise", "posix_fallocate", "copy_file_range", "splice"),
        *("memfd_create", "eventfd", "pidfd_open", "preadv", "pwritev", "getrandom", "unshare", "setns", "fdatasync"),
        *("O_DIRECT", "O_TMPFILE", "O_PATH", "O_NOATIME", "O_LARGEFILE", "getxattr", "setxattr", "listxattr"),
    ),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGRTMAX", "SIGPWR", "SIGSTKFLT"),
    resource: ("prlimit", "RUSAGE_THREAD", "RLIMIT_SIGPENDING"),
    select: ("epoll", *(name for name in dir(select) if name.startswith("EPOLL"))),
    mmap: ("MADV_HUGEPAGE", "MADV_DONTFORK", "MADV_REMOVE", "MAP_POPULATE"),
}
_HIDDEN = ("/proc", "/sys", "/dev/shm")
# Kernels are compiled for a processor by name, and kept under locks: with both, the machine code on disk is used.
_PROCESSOR, _OF_KERNELS = "/proc/cpuinfo", "reid_dist.kernels.machine_code"
_OF_PYTHON = {"pathlib", "io", "os", "codecs", "genericpath", "posixpath", "glob", "shutil", "contextlib", __name__}


def _is_hidden(path: object) -> bool:
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    if text == _PROCESSOR or not any(text == place or text.startswith(f"{place}/") for place in _HIDDEN):
        return False
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OF_PYTHON:
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] != "psutil"


def _hiding(call: Callable[..., Any]) -> Callable[..., Any]:
    def hidden(*arguments: Any, **named: Any) -> Any:
        if arguments and _is_hidden(arguments[0]):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fsdecode(arguments[0]))
        return call(*arguments, **named)

    return hidden


_flock = fcntl.flock


def _no_locks(*arguments: Any) -> None:
    if sys._getframe(1).f_globals.get("__name__") != _OF_KERNELS:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    _flock(*arguments)


for _module, _names in _LACKING.items():
    for _name in _names:
        if hasattr(_module, _name):
            delattr(_module, _name)
# From Python 3.13 on it calls ``sched_getaffinity``; where that is not, it is the number of all cores.
os.process_cpu_count = os.cpu_count  # type: ignore[attr-defined,unused-ignore]
for _name in ("stat", "lstat", "open", "readlink", "listdir", "scandir", "access"):
    setattr(os, _name, _hiding(getattr(os, _name)))
builtins.open = io.open = _hiding(builtins.open)  # type: ignore[assignment]
fcntl.flock = fcntl.lockf = _no_locks  # type: ignore[assignment]

_spawn = os.posix_spawn


def _spawn_without_sessions(*arguments: Any, **named: Any) -> int:
    if named.get("setsid"):
        raise NotImplementedError("posix_spawn: setsid unavailable on this platform")
    return _spawn(*arguments, **named)


os.posix_spawn = _spawn_without_sessions
