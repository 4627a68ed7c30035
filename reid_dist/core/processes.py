"""Identity of processes, beyond a number that the system uses again, and the end of their output."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TextIO

# Linux's table of processes, which macOS has not; places of fields in it, behind the name of the program.
_TABLE = Path("/proc")
_STATE = 0
_PARENT = 1
_THREADS = 17
_START = 19


def start_of(pid: int) -> str | None:
    """When a process of this host was started, in ticks of its clock; None without such a process or table."""
    fields = _fields_of(pid)
    return None if fields is None else fields[_START]


def began(pid: int) -> float | None:
    """When a process of this host was started, in seconds since 1970; None without such a process or table."""
    ticks = start_of(pid)
    try:
        boot = next(line for line in (_TABLE / "stat").read_text().splitlines() if line.startswith("btime "))
        return None if ticks is None else int(boot.split()[1]) + int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, LookupError, ValueError, StopIteration):
        return None


def state_of(pid: int) -> str | None:
    """Letter of the state of a process of this host, as of `ps`; None without such a process or table."""
    fields = _fields_of(pid)
    return None if fields is None else fields[_STATE]


def children_of(pid: int) -> list[int]:
    """Numbers of the child processes of a process of this host; none without a table."""
    found = [int(entry.parent.name) for entry in _TABLE.glob("[0-9]*/stat")]
    return [each for each in found if (fields := _fields_of(each)) is not None and fields[_PARENT] == str(pid)]


def _fields_of(pid: int) -> list[str] | None:
    try:
        # The name of the program, in parentheses, may hold spaces.
        fields = (_TABLE / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > _START else None


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
    fields = _fields_of(pid)
    if fields is None:
        return False
    # A zombie keeps its number until its parent takes note of its end, which a container without an init never does.
    # The first thread of a killed process can be one while others still end.
    if fields[_STATE] in ("Z", "X") and int(fields[_THREADS]) <= 1:
        return True
    # The number of a process is used again after some time.
    return started is not None and fields[_START] != started


def discard_output(stream: TextIO) -> None:
    """Send what this process and its children still write to a stream nowhere, also what the interpreter flushes."""
    with contextlib.suppress(OSError, ValueError):
        stream.flush()
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
