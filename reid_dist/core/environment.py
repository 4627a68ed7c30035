"""Environment of a run: versions, machine, commit.  Never part of a result digest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final

from reid_dist._version import __version__
from reid_dist.core.limits import usable_memory

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PACKAGES = ("numpy", "numba", "dask", "distributed", "zarr")


SCREEN_VARIABLE: Final = "REID_DIST_SCREEN"
"""Environment variable that forces the products to screen with: ``float32``, ``int8`` or ``cuda``."""

TORCH_DEVICE_VARIABLE: Final = "REID_DIST_TORCH_DEVICE"
"""Environment variable that names another device of torch than ``cuda``, for tests."""

DEVICE_INTEGERS_VARIABLE: Final = "REID_DIST_DEVICE_INT8"
"""Environment variable that, if it is 1 or 0, decides whether a device multiplies eight-bit integers."""


@cache
def has_integers() -> bool:
    """Whether the package is installed that multiplies eight-bit integers."""
    return importlib.util.find_spec("onnxruntime") is not None


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_of_process() -> tuple[int, int]:
    """Threads of a run without a cluster, one for each usable core, and the bytes of memory of one thread."""
    n_threads = usable_cores()
    return n_threads, usable_memory() // n_threads


# One worker process per this many threads: kernels and BLAS release the GIL, reading and merging hold it now and then.
_THREADS_PER_PROCESS = 8


def default_processes() -> int:
    """Processes among which the cores of this machine are divided by default."""
    return max(1, -(-usable_cores() // _THREADS_PER_PROCESS))


def describe_environment() -> dict[str, Any]:
    """Versions of the packages that matter, host, CPU, and the git commit of the working directory if it has one."""
    commit = _git_commit()
    return {
        "reid_dist": __version__,
        **describe_packages(),
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        **({"git_commit": commit} if commit else {}),
    }


@cache  # what has been imported does not change any more
def describe_packages() -> dict[str, str]:
    """Versions of Python and of the packages that matter."""
    return {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}


def _version(name: str) -> str:
    """Version of a package, from its module if that is imported: its metadata would have to be parsed."""
    found = getattr(sys.modules.get(name), "__version__", None)
    return found if isinstance(found, str) else importlib.metadata.version(name)


@cache
def cpu_model() -> str:
    """Name of the processor."""
    lines = _text_of(Path("/proc/cpuinfo")).splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git_commit() -> str | None:
    """Read the commit out of git's own files: calling git takes as long as a small evaluation."""
    try:
        here = Path.cwd()
    except OSError:  # it has been removed
        return None
    folder = next((each for each in (here, *here.parents) if (each / ".git").exists()), None)
    if folder is None:
        return None
    git = folder / ".git"
    # In a work tree of several, or in a submodule, this is a file with the path of the directory.
    git = folder / _text_of(git).removeprefix("gitdir: ") if git.is_file() else git
    head = _text_of(git / "HEAD")
    branch = head.removeprefix("ref: ")
    if branch == head:
        return head if _COMMIT.fullmatch(head) else None
    shared = git / (_text_of(git / "commondir") or ".")
    packed = (line.partition(" ") for line in _text_of(shared / "packed-refs").splitlines())
    known = [_text_of(shared / branch), *(commit for commit, _, name in packed if name == branch)]
    return next((commit for commit in known if _COMMIT.fullmatch(commit)), None)


def _text_of(path: Path) -> str:
    """Return what a file holds, stripped; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
