"""Workers: the process that local ones are forked from, and the scheduler's list of them.

Standard library alone, so that this process can be started first.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.util import Finalize, get_temp_dir
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import reid_dist.core.signals as signals
from reid_dist.clusters.settings import patience
from reid_dist.core.processes import children_of, state_of
from reid_dist.core.temporary import NAME_BYTES, new_name, remove_abandoned
from reid_dist.errors import ClusterError, RunFailedError

if TYPE_CHECKING:
    from distributed import Client


# What the process imports that workers are forked from.
_PRELOADED = ["reid_dist.clusters.preload"]
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_TEMPORARY = "TMPDIR"

# First word of all warnings of that process, which is started with the options of this one.
_TRACKER_IS_SILENT = "ignore:resource_tracker"

# Bytes of the longest address of a socket that is a file, on the system that allows the fewest, and of what
# multiprocessing, and this package before it, append to the temporary directory.
_LONGEST_ADDRESS = 103
_APPENDED = len("/pymp-12345678/listener-12345678")
_OWN = len("/") + NAME_BYTES
_SHORT_PLACES = tuple(Path(os.sep, *names) for names in (("tmp",), ("var", "tmp"), ("dev", "shm")))


ANSWERS_WITHIN_S: Final = 30.0
"""Seconds for a reply of a scheduler."""

WARNED_AFTER_S: Final = 30.0
"""Seconds that a run waits for workers before it says so."""


class _Sockets:
    """Directory of the sockets, where the temporary directory has too long a name for them."""

    folder: Path | None = None


def prepare_local_workers() -> None:
    """Start the process that local workers are forked from, and do not wait for it.

    It imports Dask, Zarr and Numba, about a second, while this process does the same on another core; each worker then
    starts in milliseconds and shares those pages.  It has no threads, so forking it is safe.  It ignores SIGINT,
    SIGTERM and SIGHUP, which terminals and schedulers send to all processes: this one ends it, and its workers.  A
    second call does nothing.
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
        # First: it unblocks signals of this thread.
        _start_resource_tracker()
        multiprocessing.get_context("forkserver").set_forkserver_preload(_PRELOADED)
        # A program inherits blocked signals.  Ignoring them here for a moment could lose one; blocked in this thread, a
        # signal is delivered to another one.
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


def _start_resource_tracker() -> None:
    """Start the process that removes the semaphores of ended processes, without its warnings.

    A process that ends at a signal may leave some behind, or remove one without a message to the tracker.
    """
    sys.warnoptions.append(_TRACKER_IS_SILENT)
    try:
        resource_tracker.ensure_running()
    finally:
        sys.warnoptions.remove(_TRACKER_IS_SILENT)


def place_sockets() -> None:
    """Have multiprocessing make its sockets where their addresses fit: some batch systems set a long TMPDIR."""
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
    """End the process that local workers are forked from, and the workers, at once, before this process ends.

    Requested workers would otherwise still be forked, and fail on removed files.
    """
    # Its process has no public name; without a number, none was started.
    server = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if not isinstance(server, int):
        return
    with contextlib.suppress(ProcessLookupError):
        # Stopped, so that it forks no worker while its children are looked up in the system's table.
        os.kill(server, signal.SIGSTOP)
        # A signal is delivered some time after it was sent.
        _await_state(server, "TtZX")
        workers = {*children_of(server), *(each.pid for each in multiprocessing.active_children() if each.pid)}
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        for worker in workers:
            _await_state(worker, "ZX")


def _await_state(process: int, states: str, within_s: float = 0.5) -> None:
    """Wait until a process is in one of some states of the system's table of processes, or gone."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        state = state_of(process)
        if state is None or state in states:
            return
        time.sleep(0.001)


def workers_of(client: Client, within_s: float | None = None) -> dict[str, dict[str, Any]]:
    """The scheduler's list of workers by address; TimeoutError without a reply after `within_s`.

    A direct call: the client now and then overwrites what `Client.scheduler_info` returns, without any worker in it.
    """
    scheduler: Any = client.scheduler
    workers: dict[str, dict[str, Any]] = client.sync(scheduler.identity, n_workers=-1, callback_timeout=within_s)[
        "workers"
    ]
    return workers


def awaited_workers(client: Client, warn: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """The scheduler's list of workers, once it has any; `ClusterError` if none comes within the `patience`."""
    if found := workers_of(client):
        return found
    seconds = patience()
    deadline = time.monotonic() + seconds
    with _noted(warn, "the cluster has no workers: waiting for one", seconds), requested_worker(client):
        while not (found := workers_of(client)):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"the cluster had no workers for {seconds:g} s: start some, or see what keeps them from starting, "
                    "and run again"
                )
            time.sleep(0.1)
    return found


@contextlib.contextmanager
def requested_worker(client: Client) -> Iterator[None]:
    """Have the scheduler hold a task that does nothing: an adaptive cluster starts workers for tasks alone."""
    task = client.submit(os.getpid, pure=False)
    try:
        yield
    finally:
        task.release()


def run_on_workers(
    client: Client,
    function: Callable[..., Any],
    *arguments: Any,
    workers: list[str] | None = None,
    within_s: float | None = None,
    warn: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Results of a function on all or some workers by address, or the exceptions that it raised, or that kept it off.

    Raises `RunFailedError` if one does not answer within so many seconds, or the `patience` of this process: Dask would
    wait for ever.
    """
    seconds = patience() if within_s is None else within_s
    try:
        with _noted(warn, "a worker does not answer: waiting for it", seconds):
            # It passes the timeout on to `Client.sync`.
            found: dict[str, Any] = client.run(
                function, *arguments, workers=workers, on_error="return", callback_timeout=seconds
            )
    except TimeoutError as error:
        raise RunFailedError(
            f"a worker has not answered for {seconds:g} s: see that none is stopped and that their machines run, end "
            "those that do not answer, and run again"
        ) from error
    return found


@contextlib.contextmanager
def _noted(warn: Callable[[str], None] | None, what: str, seconds: float) -> Iterator[None]:
    """Warn, in another thread, of a wait that lasts."""
    if warn is None:
        yield
        return
    timer = threading.Timer(WARNED_AFTER_S, warn, [f"{what}, at most until {seconds:g} s have passed"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def events_of(client: Client, topic: str) -> list[dict[str, Any]]:
    """Events of a topic on the scheduler, in order; none where it does not answer."""
    try:
        noted: Any = client.get_events(topic)
        return [event for _, event in noted if isinstance(event, dict)]
    # What a lost cluster could tell changes neither the result nor the error that is being reported.
    except (OSError, RuntimeError, TypeError, ValueError):
        return []
