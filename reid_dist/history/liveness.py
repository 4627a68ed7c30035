"""Whether the process of a run is still there."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Final

from reid_dist.history.values import Run

__all__ = ["FINISHED", "KILLED", "RUNNING", "run_state", "this_host"]

FINISHED: Final = "finished"
RUNNING: Final = "running"
KILLED: Final = "killed"

# A run is written down some time after its process began; the clocks of the two differ by less.
_SLACK = 5.0


def this_host() -> str:
    """Return what a run calls the machine that it runs on."""
    return platform.node() or "localhost"


def run_state(run: Run) -> str:
    """Return ``finished``, ``killed`` or ``running``.

    A run that never finished was killed if its process is gone; of a process on another host nothing is known, and the
    run counts as running.
    """
    if run.finished is not None:
        return FINISHED
    return KILLED if run.host == this_host() and not _is_its_process(run) else RUNNING


def _is_its_process(run: Run) -> bool:
    try:
        os.kill(run.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    began = _began(run.pid)
    if began is None:
        return True
    # The number may have been given to another process since.
    return began <= datetime.fromisoformat(run.started).timestamp() + _SLACK


def _began(pid: int) -> float | None:
    """Return when a process began, in seconds since 1970; None where the system does not tell."""
    try:
        # The second field is the name of the program in brackets, and may hold spaces and brackets itself.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, LookupError, ValueError, StopIteration):
        return None
