"""State of a run: finished, running, or killed."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime, timedelta
from typing import Final

from reid_dist.core.processes import began
from reid_dist.nightly.history.values import Run, moment

FINISHED: Final = "finished"
RUNNING: Final = "running"
KILLED: Final = "killed"

LONGEST_SILENCE: Final = timedelta(hours=24)
"""Time without an entry after which an unfinished run of another host counts as killed.

A run is seen when it begins and with every entry, so this exceeds the time of one job.  A longer time budget of the
suite takes its place, plus `_MARGIN`.
"""

# Beyond a time budget: a job in flight ends at its next task, and clocks of two hosts differ.
_MARGIN: Final = timedelta(hours=1)

# Seconds: a run is recorded some time after its process started; both clocks are of this host.
_SLACK = 5.0


def this_host() -> str:
    """Return the name of this host as runs record it."""
    return platform.node() or "localhost"


def run_state(run: Run, *, at: datetime | None = None) -> str:
    """Return ``finished``, ``killed`` or ``running``, at a time or now.

    An unfinished run of this host is killed if its process is gone; one of another host, if it was last seen too long
    ago (`LONGEST_SILENCE`).
    """
    if run.finished is not None:
        return FINISHED
    if run.host == this_host():
        return RUNNING if _is_its_process(run) else KILLED
    seen = moment(run.seen)
    silence = LONGEST_SILENCE if run.hours is None else max(LONGEST_SILENCE, timedelta(hours=run.hours) + _MARGIN)
    return KILLED if seen is not None and (at or datetime.now(UTC)) - seen > silence else RUNNING


def _is_its_process(run: Run) -> bool:
    try:
        os.kill(run.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    begin, started = began(run.pid), moment(run.started)
    if begin is None or started is None:
        return True
    # Another process may have the number by now.
    return begin <= started.timestamp() + _SLACK
