"""Workers: the process that local ones are forked from, and the scheduler's list of them.

Standard library alone, so that the process that they are forked from can be started first of all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from multiprocessing import forkserver, resource_tracker
from multiprocessing.util import Finalize, get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reid_dist.core.signals as signals
from reid_dist.core.temporary import NAME_BYTES, new_name, remove_abandoned
from reid_dist.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client


_PRELOADED = ["reid_dist.clusters.preload"]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_TEMPORARY = "TMPDIR"

# Bytes of the longest address of a socket that is a file, on the system that allows the fewest, and of what
# multiprocessing, and this package before it, append to the temporary directory.
_LONGEST_ADDRESS = 103
_APPENDED = len("/pymp-12345678/listener-12345678")
_OWN = len("/") + NAME_BYTES
_SHORT_PLACES = tuple(Path(os.sep, *names) for names in (("tmp",), ("var", "tmp"), ("dev", "shm")))


class _Sockets:
    """Directory of the sockets, where the temporary directory has too long a name for them."""

    folder: Path | None = None


def prepare_local_workers() -> None:
    """Start the process that local workers will be forked from, and do not wait for it.

    It imports Dask, Zarr and Numba, which takes about a second, while this process does the same on another core; each
    worker then starts in milliseconds and shares those pages.  It has no threads, so forking it is safe, and it ends
    with this process.  It ignores SIGINT, SIGTERM and SIGHUP, which terminals and schedulers send to all processes:
    this one ends it, and its workers.  A second call does nothing.

    Raises
    ------
    ClusterError
        If no directory for its socket can be made.
    """
    place_sockets()
    # BLAS reads the number of threads when it is loaded; a pool of its own in the server would be a thread.
    added = {name: value for name, value in _ONE_THREAD.items() if name not in os.environ}
    before = os.environ.get(_TEMPORARY)
    if tempfile.tempdir is not None:
        # Workers use the temporary directory of this process.
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


def place_sockets() -> None:
    """Have multiprocessing make its sockets where their addresses fit; batch systems set long temporary directories."""
    usual = tempfile.gettempdir()
    if _Sockets.folder is not None or len(os.fsencode(usual)) + _APPENDED <= _LONGEST_ADDRESS:
        return
    for place in _SHORT_PLACES:
        remove_abandoned(str(place))
        folder = place / new_name()
        # Noted before it is made, so that an interruption in between leaves nothing.
        _Sockets.folder = folder
        try:
            folder.mkdir(mode=0o700)
        except OSError:
            _Sockets.folder = None
            continue
        # After multiprocessing has removed its own directory in it.
        Finalize(None, remove_sockets, exitpriority=-200)
        before = tempfile.tempdir
        tempfile.tempdir = str(folder)
        try:
            # The first call sets it for the process.
            get_temp_dir()
        finally:
            tempfile.tempdir = before
        return
    raise ClusterError(
        f"the name of the temporary directory {usual} is too long for the socket of local workers, and none of "
        f"{', '.join(map(str, _SHORT_PLACES))} can be written: set TMPDIR to a directory of at most "
        f"{_LONGEST_ADDRESS - _APPENDED - _OWN} bytes"
    )


def remove_sockets() -> None:
    """Remove what `prepare_local_workers` has made outside the temporary directory; the process is about to end."""
    if _Sockets.folder is not None:
        shutil.rmtree(_Sockets.folder, ignore_errors=True)


def end_local_workers() -> None:
    """End the process that local workers are forked from, and the workers, at once: this one is about to end, too.

    Workers that were requested would otherwise still be forked, and fail on files that are gone by then.
    """
    # There is no public name for its process; without a number, none was started.
    server = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if not isinstance(server, int):
        return
    with contextlib.suppress(ProcessLookupError):
        # It must not fork while its children are looked up: one that has just begun is only in the system's table.
        os.kill(server, signal.SIGSTOP)
        # A signal is delivered some time after it was sent; until then, the process goes on.
        _await_state(server, "TtZX")
        workers = {*_children(server), *(each.pid for each in multiprocessing.active_children() if each.pid)}
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        for worker in workers:
            _await_state(worker, "ZX")


def _await_state(process: int, states: str, within_s: float = 0.5) -> None:
    """Wait until a process is in one of the states of the system's table of processes, or gone; not for long."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return
        if state in states:
            return
        time.sleep(0.001)


def _children(process: int) -> list[int]:
    """Numbers of the processes that one has started, where the system has a table of processes."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program, in brackets, may hold brackets itself; what follows is its state and its parent.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]) == process:
                found.append(int(stat.parent.name))
    return found


def workers_of(client: Client, within_s: float | None = None) -> list[dict[str, Any]]:
    """The scheduler's list of workers; TimeoutError without a reply after `within_s`.

    A direct call: what `Client.scheduler_info` returns is written over now and then, without any worker in it, by
    the client itself.
    """
    scheduler: Any = client.scheduler
    workers: dict[str, dict[str, Any]] = client.sync(scheduler.identity, n_workers=-1, callback_timeout=within_s)[
        "workers"
    ]
    return list(workers.values())


def workers_started_again(client: Client, within_s: float = 30.0) -> list[dict[str, Any]]:
    """The scheduler's list of workers, once it has some of those that the client's cluster starts again.

    Empty at once where the client has no cluster of its own, or one without workers.
    """
    if not getattr(client.cluster, "worker_spec", None):
        return []
    deadline = time.monotonic() + within_s
    while not (found := workers_of(client)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found
