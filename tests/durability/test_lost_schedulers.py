"""The scheduler or the client is killed in the middle of a run: one clear error, and a resumed run that goes on."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from disturbed_runs import (
    CHUNK_ROWS,
    N_WORKERS,
    Processes,
    begun,
    command,
    finished,
    slow_module,
    undisturbed,
    wait_until,
)

pytestmark = pytest.mark.slow

_WORDS = (
    *("evaluate", "query.zarr", "gallery.zarr", "--chunk-rows", str(CHUNK_ROWS), "--json", "--log-json"),
    *("--cluster", "cluster.yaml", "--output", "out"),
)
_DONE_BEFORE = 3


def events_of(text: str) -> list[dict[str, object]]:
    """Every line of standard error; each must be one."""
    return [json.loads(line) for line in text.splitlines()]


def resume(folder: Path, left: int) -> None:
    """Take the run up, and see that nothing is done again but what was in flight."""
    before = len(begun(folder))
    with command(folder, *_WORDS, "--resume") as resumed:
        assert resumed.report()["result_digest"] == undisturbed(folder)
    (sweep,) = (e for e in events_of(resumed.err) if e["event"] == "stage_started" and e["stage"] == "sweep")
    everything = set(begun(folder))
    assert sweep["total"] == len(everything) - left
    # Begun twice: what the killed run was at, one part per worker thread at the most.
    assert len(begun(folder)) - len(everything) <= N_WORKERS
    assert len(begun(folder)) > before
    assert (folder / "out" / "report.json").exists()
    assert not finished(folder / "out" / "workspace")


def test_a_scheduler_that_is_killed(processes: Processes, tmp_path: Path) -> None:
    processes.start(preload=slow_module(tmp_path, 0.4))
    workspace = tmp_path / "out" / "workspace"
    with command(tmp_path, *_WORDS) as run:
        run.wait_until(lambda: len(finished(workspace)) >= _DONE_BEFORE, "the first parts")
        processes.kill_scheduler()
        assert run.end() == 3, run.err
    assert run.out == ""
    (error,) = (event for event in events_of(run.err) if event["event"] == "error")
    assert "lost the scheduler" in str(error["message"])
    assert any("--resume" in str(line) for line in error["details"])
    assert "\n" not in str(error["message"])
    assert not (tmp_path / "out" / "report.json").exists()
    # Workers end with their scheduler; what they were at, they finish.
    processes.start(preload=slow_module(tmp_path, 0.1))
    left = len(finished(workspace))
    assert left >= _DONE_BEFORE
    resume(tmp_path, left)


def test_a_client_that_is_killed(processes: Processes, tmp_path: Path) -> None:
    processes.start(preload=slow_module(tmp_path, 0.4))
    workspace = tmp_path / "out" / "workspace"
    with command(tmp_path, *_WORDS) as run:
        run.wait_until(lambda: len(finished(workspace)) >= _DONE_BEFORE, "the first parts")
        run.process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "out" / "report.json").exists()

    # The scheduler drops the run when its client is gone, and workers finish what they were at.
    def at_rest() -> bool:
        return len(finished(workspace)) == len(begun(tmp_path))

    wait_until(at_rest, "workers to come to rest")
    resume(tmp_path, len(finished(workspace)))
