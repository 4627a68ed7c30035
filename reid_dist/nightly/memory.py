"""How much memory a job held at its peak, asked of the kernel, which counts for every process: nothing has to watch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.errors import RunFailedError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["forget_peaks", "peak_bytes"]

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
# What clear_refs(5) means: the peak becomes what is held now.
_FORGET = "5"


def forget_peaks(client: Client | None) -> None:
    """Let the peak of every process of a cluster, and of this one, begin anew.

    Raises
    ------
    RunFailedError
        If the cluster went away since it was used last: this is the first that is asked of it for a job.
    """
    _forget_own()
    if client is None:
        return
    try:
        client.run(_forget_own, on_error="ignore")
    except OSError as error:
        raise RunFailedError(f"lost the scheduler of the cluster between two jobs: {error}") from error


def peak_bytes(client: Client | None) -> int | None:
    """Sum over this process and all workers of the most that each held since its peak began anew.

    Resident memory: pages that processes share count in each.  Processes need not peak at the same time, so the sum is
    an upper bound of what they held together.

    Returns
    -------
    Bytes; None where the kernel does not tell, or the cluster is gone already.
    """
    found = [_own_peak()]
    if client is not None:
        try:
            found += client.run(_own_peak, on_error="ignore").values()
        except OSError:
            # The answer is there; who lost the cluster is told by the next job.
            return None
    known = [each for each in found if each is not None]
    return sum(known) if known and len(known) == len(found) else None


def _forget_own() -> None:
    try:
        Path("/proc/self/clear_refs").write_text(_FORGET)
    except OSError:
        # Not Linux, or not allowed: the peak is then that of the whole life of the process.
        return


def _own_peak() -> int | None:
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text())
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
