"""Identity of processes, beyond a number that the system uses again, and the end of their output."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TextIO

_START = 19  # place of the start time behind the name of the program


def start_of(pid: int) -> str | None:
    """When a process of this host was started, in ticks of its clock; None without such a process or table."""
    try:
        # The name of the program, in parentheses, may hold spaces.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[_START]
    except (OSError, IndexError):
        return None


def has_ended(pid: int, started: str | None) -> bool:
    """Whether the process of this host with this number and this start has ended; False where that is unknown."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # A process of another user, which may have the number since.
        pass
    except (OSError, OverflowError, TypeError):
        return False
    # The number of a process is used again after some time.
    now = start_of(pid)
    return None not in (now, started) and now != started


def discard_output(stream: TextIO) -> None:
    """Send what this process and its children still write to a stream nowhere, also what the interpreter flushes."""
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
