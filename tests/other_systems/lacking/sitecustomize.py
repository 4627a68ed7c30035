"""Makes a Python process lack what Linux has and other systems do not; imported at its start from ``PYTHONPATH``.

Calls, flags and signals that macOS, any of its versions or another Unix has not are removed, files below /proc, /sys
and /dev/shm are hidden, and the file systems have no locks.  psutil alone still sees /proc: on each system it has means
of its own.
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
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

# Beginnings of names.
_LACKING: dict[ModuleType, str] = {
    os: "sched_ SCHED_ pread pwritev preadv O_NOFOLLOW O_DIRECT O_PATH O_TMPFILE O_NOATIME O_LARGEFILE O_RSYNC RWF_ "
    "memfd_ MFD_ eventfd EFD_ pidfd_ PIDFD_ posix_fa POSIX_FADV_ copy_file_range splice getxattr setxattr listxattr "
    "removexattr getrandom getres setres unshare setns pipe2 fdatasync CLONE_ timerfd_ TFD_",
    mmap: "MADV_ MAP_POPULATE",
    signal: "SIGPWR SIGSTKFLT SIGPOLL SIGCLD SIGRT sigtimedwait sigwaitinfo pidfd_send_signal",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
    resource: "prlimit RUSAGE_THREAD RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RT RLIMIT_SIGPENDING",
    select: "epoll EPOLL",
}
_EVERYWHERE = "pread"
_HIDDEN = ("/proc", "/sys", "/dev/shm")
# Kernels are compiled for a processor by name, and kept under locks: with both, the machine code on disk is used.
_PROCESSOR, _OF_KERNELS = "/proc/cpuinfo", "reid_dist.kernels.machine_code"
_OF_PYTHON = {"pathlib", "io", "os", "codecs", "genericpath", "posixpath", "glob", "shutil", "contextlib", __name__}


def lacking_names() -> list[tuple[ModuleType, str]]:
    """Modules of this system, and what others lack of them."""
    return [
        (module, name)
        for module, beginnings in _LACKING.items()
        for name in vars(module)
        if name.startswith(tuple(beginnings.split())) and name != _EVERYWHERE
    ]


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


_flock, _spawn = fcntl.flock, os.posix_spawn


def _no_locks(*arguments: Any) -> None:
    if sys._getframe(1).f_globals.get("__name__") != _OF_KERNELS:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    _flock(*arguments)


def _spawn_without_sessions(*arguments: Any, **named: Any) -> int:
    if named.get("setsid"):
        raise NotImplementedError("posix_spawn: setsid unavailable on this platform")
    return _spawn(*arguments, **named)


def _remove_all() -> None:
    for module, name in lacking_names():
        delattr(module, name)
    # It calls ``sched_getaffinity``; where that is not, it is the number of all cores.  There since Python 3.13.
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = os.cpu_count
    for name in ("stat", "lstat", "open", "readlink", "listdir", "scandir", "access"):
        setattr(os, name, _hiding(getattr(os, name)))
    builtins.open = io.open = _hiding(builtins.open)  # type: ignore[assignment]
    fcntl.flock = fcntl.lockf = _no_locks  # type: ignore[assignment]
    os.posix_spawn = _spawn_without_sessions


# Tests import the names alone, under another name.
if __name__ == "sitecustomize":
    _remove_all()
