"""What a run ran on: versions, machine, commit.  Never part of an answer's digest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from reid_dist._version import __version__

__all__ = ["describe_environment", "usable_cores"]

_PACKAGES = ("numpy", "numba", "dask", "distributed", "zarr")


def usable_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_environment() -> dict[str, Any]:
    """Versions of the packages that matter, host, CPU, and the git commit of the working directory if it has one."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    described: dict[str, Any] = {
        "reid_dist": __version__,
        "python": platform.python_version(),
        **versions,
        "platform": platform.platform(),
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cores": usable_cores(),
    }
    commit = _git_commit()
    return {**described, "git_commit": commit} if commit else described


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git_commit() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command, found on the PATH
            [git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
