"""Peak memory of a job, from the counters that the kernel keeps for every process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.clusters.workers import run_on_workers
from reid_dist.errors import RunFailedError

if TYPE_CHECKING:
    from distributed import Client

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
# Value 5 of clear_refs resets the peak to the current size, see proc(5).
_RESET = "5"


def reset_peaks(client: Client | None) -> None:
    """Reset the peaks of this process and of all workers.

    RunFailedError if the cluster was lost since the job before: this is the first use of it for a job.
    """
    _reset_own()
    if client is None:
        return
    try:
        run_on_workers(client, _reset_own)
    except OSError as error:
        raise RunFailedError(f"lost the scheduler of the cluster between two jobs: {error}") from error


def peak_bytes(client: Client | None) -> int | None:
    """Return the bytes of the peaks of this process and all workers since the last reset; None if unknown.

    Resident memory: pages that processes share count in each.  Processes need not peak at the same time, so the sum is
    an upper bound.
    """
    found = [_own_peak()]
    if client is not None:
        try:
            found += [peak for peak in run_on_workers(client, _own_peak).values() if not isinstance(peak, Exception)]
        except (OSError, RunFailedError):
            # The result is complete; the next job reports the lost cluster.
            return None
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None


def _reset_own() -> None:
    try:
        Path("/proc/self/clear_refs").write_text(_RESET)
    except OSError:
        # Not Linux, or not allowed: the peak covers the whole life of the process.
        return


def _own_peak() -> int | None:
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
