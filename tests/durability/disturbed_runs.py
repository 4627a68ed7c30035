"""Runs that something happens to: stores to evaluate, a cluster of real processes, and an account of what was begun.

Workers are slowed down by a module that they load first: every part of the sweep takes a moment and is noted in a file
before it is computed, so that a test can strike in the middle and count what was done twice.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from support.local_workers import dask_words
from support.processes import wait_until
from support.refusals import printed_error

from reid_dist import FeatureSet, evaluate

N_WORKERS = 2
CHUNK_ROWS = 32

_PROGRAM = "from reid_dist.cli import main; main()"

_SLOW = """
import time
from reid_dist.engine import graph, tasks


def noted(job, known, gallery_rows, *others, real=graph.tile_task):
    with open({begun!r}, "a") as file:
        file.write(f"{{known[0].start}}-{{gallery_rows.start}}\\n")
    time.sleep({seconds})
    return real(job, known, gallery_rows, *others)

# Nannies load it, too, and workers that are forked from them a second time.
if graph.tile_task.__name__ != "noted":
    graph.tile_task = tasks.tile_task = noted
"""


def save_sets(folder: Path, n_query: int = 60, n_gallery: int = 900) -> None:
    """Write ``query.zarr`` and ``gallery.zarr``, both small, and ``threads.yaml``, the cluster of this process."""
    (folder / "threads.yaml").write_text("kind: threads\n")
    rng = np.random.default_rng(3)
    for name, n in (("query", n_query), ("gallery", n_gallery)):
        features = rng.standard_normal((n, 16)).astype(np.float32)
        FeatureSet.from_arrays(features, rng.integers(0, 12, n), rng.integers(0, 3, n)).save(folder / f"{name}.zarr")


def open_sets(folder: Path) -> tuple[FeatureSet, FeatureSet]:
    """Query and gallery of `save_sets`."""
    return FeatureSet.open(folder / "query.zarr"), FeatureSet.open(folder / "gallery.zarr")


def undisturbed(folder: Path) -> str:
    """Digest of a run of the two stores that nothing happens to."""
    return evaluate(*open_sets(folder)).result_digest


def slow_module(folder: Path, seconds: float) -> Path:
    """A module that slows the sweep down and notes what is begun in ``begun``."""
    path = folder / "slow.py"
    path.write_text(_SLOW.format(begun=str(folder / "begun"), seconds=seconds))
    return path


def begun(folder: Path) -> list[str]:
    """Parts of a job that were begun, in order, those that were never finished included."""
    path = folder / "begun"
    return path.read_text().split() if path.exists() else []


def finished(workspace: Path) -> list[Path]:
    """Parts of the sweep that are kept."""
    # The folder may come or go while it is read.
    with contextlib.suppress(FileNotFoundError):
        return sorted(workspace.glob("partials-*/*.npz"))
    return []


@dataclass
class Command:
    """A command that runs; what it writes goes to files, as a full pipe would stop it."""

    process: subprocess.Popen[bytes]
    folder: Path

    @property
    def out(self) -> str:
        return (self.folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "stderr").read_text()

    def end(self, seconds: float = 120) -> int:
        """Wait for the end, and return the exit code."""
        return self.process.wait(seconds)

    def report(self) -> dict[str, Any]:
        """What a command with ``--json`` that must succeed prints."""
        assert self.end() == 0, self.err
        found: dict[str, Any] = json.loads(self.out)
        return found

    def error(self, *codes: int) -> str:
        """The one error with its details, and no traceback, of a command that must end with one of these codes."""
        assert self.end() in codes, self.err
        assert "Traceback" not in self.err, self.err
        return printed_error(self.err)

    def wait_until(self, condition: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Wait for something that the command brings about."""

        def reached() -> object:
            assert self.process.poll() is None, f"ended before {what}: {self.err}"
            return condition()

        wait_until(reached, f"{what}: {self.err}", seconds)


@contextlib.contextmanager
def command(folder: Path, *words: object, program: str = _PROGRAM) -> Iterator[Command]:
    """Start ``reid-dist``, or a program that calls it, in a folder; it is killed at the end if it runs still."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, words)], cwd=folder, stdout=out, stderr=err
        )
    try:
        yield Command(process, folder)
    finally:
        process.kill()
        process.wait()


class Processes:
    """A scheduler and its workers, each a process of its own, on loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.scheduler_file = folder / "scheduler.json"
        self.started: list[subprocess.Popen[bytes]] = []
        self.scheduler: subprocess.Popen[bytes] | None = None
        self._environment = dict(os.environ)

    def start(self, *, preload: Path, memory: str = "auto", allowed_failures: int = 3) -> None:
        """Start them, in the place of those that were there; `preload` is loaded by every worker first."""
        self.stop()
        local = dask_words(self.scheduler_file)
        self._environment = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(allowed_failures)}
        self.scheduler = self._start("scheduler", *local, "--port", "0")
        wait_until(self.scheduler_file.exists, "the scheduler")
        loaded = ["--preload", str(preload), "--memory-limit", memory]
        self._start("worker", *local, "--nworkers", str(N_WORKERS), "--nthreads", "1", *loaded)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *words],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            env=self._environment,
        )
        self.started.append(process)
        return process

    def kill_scheduler(self) -> None:
        """SIGKILL."""
        self.scheduler.send_signal(signal.SIGKILL)
        self.scheduler.wait()

    def stop(self) -> None:
        """End whatever runs."""
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()
        self.started.clear()
        self.scheduler_file.unlink(missing_ok=True)


@contextlib.contextmanager
def cluster_of_processes(folder: Path) -> Iterator[Processes]:
    """A cluster that is not started yet, and its file ``cluster.yaml``."""
    processes = Processes(folder)
    (folder / "cluster.yaml").write_text(
        f"kind: existing\nscheduler_file: {processes.scheduler_file}\nwait_for_workers: {N_WORKERS}\ntimeout_s: 60\n"
    )
    try:
        yield processes
    finally:
        processes.stop()
