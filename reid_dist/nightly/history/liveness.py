"""Whether the process of a run is still there."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from reid_dist.nightly.history.values import Run

__all__ = ["FINISHED", "KILLED", "RUNNING", "UNSEEN", "run_state", "this_host"]

FINISHED: Final = "finished"
RUNNING: Final = "running"
KILLED: Final = "killed"

UNSEEN: Final = timedelta(minutes=10)
"""A run of another host that was not seen for longer counts as killed.

Many times the pause between two signs of life, for a file may be locked or a disk away for a while, and more than the
clocks of two hosts differ.
"""

# A run is written down some time after its process began; the clocks of the two differ by less.
_SLACK = 5.0


def this_host() -> str:
    """Return what a run calls the machine that it runs on."""
    return platform.node() or "localhost"


def run_state(run: Run, *, at: datetime | None = None) -> str:
    """Return ``finished``, ``killed`` or ``running``.

    A run of this host that never finished was killed if its process is gone.  One of another host was killed if it
    gives no sign of life any more; runs of older histories never did, and count as running.

    Parameters
    ----------
    run
        The run.
    at
        The time to which signs of life are held; None for now.
    """
    if run.finished is not None:
        return FINISHED
    if run.host == this_host():
        return RUNNING if _is_its_process(run) else KILLED
    seen = _moment(run.seen)
    return KILLED if seen is not None and (at or datetime.now(UTC)) - seen > UNSEEN else RUNNING


def _is_its_process(run: Run) -> bool:
    try:
        os.kill(run.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    began, started = _began(run.pid), _moment(run.started)
    if began is None or started is None:
        return True
    # The number may have been given to another process since.
    return began <= started.timestamp() + _SLACK


def _moment(stamp: str | None) -> datetime | None:
    """Return a time as a history tells it; None for what is none."""
    try:
        found = datetime.fromisoformat(stamp or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _began(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not tell."""
    try:
        # The second field is the name of the program in brackets, and may hold spaces and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, LookupError, ValueError, StopIteration):
        return None
