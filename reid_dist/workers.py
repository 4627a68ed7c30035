"""Workers: what local ones are forked from, and what a scheduler knows of them.

Standard library alone, so that the process that they are forked from can be started first of all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reid_dist.signals as signals

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["end_local_workers", "prepare_local_workers", "workers_of"]

_PRELOADED = ["reid_dist.preload"]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_TEMPORARY = "TMPDIR"


def prepare_local_workers() -> None:
    """Start the process that local workers will be forked from, and do not wait for it.

    It imports Dask, Zarr and Numba, which takes about a second, while this process does the same on another core; each
    worker then starts in milliseconds and shares those pages.  It has no threads, so forking it is safe, and it ends
    with this process.  It ignores SIGINT, SIGTERM and SIGHUP, which terminals and schedulers send to all processes:
    this one ends it, and its workers.  A second call does nothing.
    """
    # BLAS reads the number of threads when it is loaded; a pool of its own in the server would be a thread.
    added = {name: value for name, value in _ONE_THREAD.items() if name not in os.environ}
    before = os.environ.get(_TEMPORARY)
    if tempfile.tempdir is not None:
        # Where this process was told to put temporary files, workers put theirs.
        added[_TEMPORARY] = tempfile.tempdir
    os.environ.update(added)
    try:
        # First, for it unblocks signals of this thread.
        resource_tracker.ensure_running()
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
        # A program inherits which signals are blocked.  To ignore them here for that moment would lose one that comes
        # in it; blocked in this thread, it goes to another one.
        kept = signal.pthread_sigmask(signal.SIG_BLOCK, signals.NUMBERS)
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, kept)
    finally:
        for name in added:
            os.environ.pop(name, None)
        if before is not None:
            os.environ[_TEMPORARY] = before


def end_local_workers() -> None:
    """End the process that local workers are forked from, and the workers, at once: this one is about to end, too.

    Left to themselves, workers that were asked for would still be forked, and complain of what is gone by then.
    """
    # Nobody tells which process it is; without a number, none was started.
    server = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if not isinstance(server, int):
        return
    with contextlib.suppress(ProcessLookupError):
        # It must not fork while its children are looked up: one that has just begun only the system knows.
        os.kill(server, signal.SIGSTOP)
        for worker in {*_children(server), *(each.pid for each in multiprocessing.active_children() if each.pid)}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)


def _children(process: int) -> list[int]:
    """Numbers of the processes that one has started, where the system tells."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program, in brackets, may hold brackets itself; what follows is its state and its parent.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == process:
                found.append(int(stat.parent.name))
    return found


def workers_of(client: Client, within_s: float | None = None) -> list[dict[str, Any]]:
    """What the scheduler of a client knows of its workers; TimeoutError if it has not answered after `within_s`.

    Asked for directly: what `Client.scheduler_info` returns is written over now and then, without any worker in it, by
    the client itself.
    """
    scheduler: Any = client.scheduler
    workers: dict[str, dict[str, Any]] = client.sync(scheduler.identity, n_workers=-1, callback_timeout=within_s)[
        "workers"
    ]
    return list(workers.values())
