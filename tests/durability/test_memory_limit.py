"""A worker that needs more memory than it may have: one clear error with the cause, the task, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from disturbed_runs import CHUNK_ROWS, Processes, command, open_sets, save_sets

import reid_dist.engine.graph as graph
from reid_dist import evaluate
from reid_dist.errors import RunFailedError

pytestmark = pytest.mark.slow

_GREEDY = """
import time
import numpy as np
from reid_dist.engine import tasks

def greedy(job, known, gallery_rows, *others, real=tasks.tile_task):
    if gallery_rows.start == 0:
        held = []
        for _ in range(40):
            held.append(np.ones(50 << 17))
            time.sleep(0.05)
    return real(job, known, gallery_rows, *others)

if tasks.tile_task.__name__ != "greedy":
    tasks.tile_task = greedy
"""


def test_a_worker_over_its_limit(processes: Processes, tmp_path: Path) -> None:
    greedy = tmp_path / "greedy.py"
    greedy.write_text(_GREEDY)
    processes.start(preload=greedy, memory="800MiB", allowed_failures=1)
    words = ("evaluate", "query.zarr", "gallery.zarr", "--chunk-rows", CHUNK_ROWS, "--cluster", "cluster.yaml")
    with command(tmp_path, *words, "--output", "out") as run:
        error = run.error(3)
    assert run.err.rstrip().endswith(error)
    # Dask blames whatever a worker had been given when it died, which may be a neighbour of the greedy one: that one is
    # named nevertheless, if need be with the other that the worker had.
    for message in ("out of memory", "sweep", "query rows 0 to ", "gallery rows 0 to ", "800 MiB", "memory_limit",
                 "--chunk-rows", "--resume"):  # fmt: skip
        assert message in error
    assert run.out == ""
    assert not (tmp_path / "out" / "report.json").exists()


def test_workers_whose_memory_stays_full(tmp_path: Path) -> None:
    """Paused workers take nothing and are not ended: no task dies, and none is ever begun."""
    save_sets(tmp_path)
    (tmp_path / "cluster.yaml").write_text(
        "kind: local\nworkers: 2\nthreads_per_worker: 1\nmemory_limit: 1GiB\n"
        "dask:\n  distributed.worker.memory.pause: 0.01\n  distributed.worker.memory.terminate: 0.9\n"
        "  distributed.scheduler.no-workers-timeout: 4s\n"
    )
    words = ("evaluate", "query.zarr", "gallery.zarr", "--cluster", "cluster.yaml", "--output", "out")
    with command(tmp_path, *words) as run:
        error = run.error(3)
    assert run.err.rstrip().endswith(error)
    for message in ("out of memory", "for 4 s", "memory_limit", "--chunk-rows"):
        assert message in error
    assert not (tmp_path / "out").exists()


def test_a_task_that_gets_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_sets(tmp_path)

    def failing(*_: Any) -> Any:
        raise MemoryError("Unable to allocate 3.00 TiB")

    monkeypatch.setattr(graph, "tile_task", failing)
    with pytest.raises(RunFailedError, match=r"ran out of memory \(Unable to allocate 3.00 TiB\).*--chunk-rows"):
        evaluate(*open_sets(tmp_path))
