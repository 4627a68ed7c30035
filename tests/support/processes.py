"""Processes of this machine, as tests look at them, and waiting for what they do."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

COMMAND = (sys.executable, "-m", "reid_dist.cli")
"""Words of the command as a process."""


def wait_until(condition: Callable[[], object], what: str, seconds: float = 90) -> None:
    """Wait for something that happens in another process."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.01)


def state_of(pid: int) -> str:
    """State of a process, such as ``S`` or ``Z``; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def is_running(pid: int) -> bool:
    """Whether there is a process of this number, other than a zombie without threads."""
    if state_of(pid) not in ("", "Z", "X"):
        return True
    # Threads of a killed process can end after the first one.
    with contextlib.suppress(OSError):
        return len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    return False


def running(belongs: Callable[[int], bool]) -> list[psutil.Process]:
    """Running processes whose number belongs to a group; zombies are left out."""
    found = []
    for each in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if belongs(each.pid) and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
    return found
