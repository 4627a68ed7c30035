"""A sweep over parameters whose workers, or whose scheduler, are killed: the report of an undisturbed one."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from disturbed_runs import Processes, command, slow_module

_JOB = """\
query: query.zarr
gallery: gallery.zarr
expand: alpha_qe
sweep:
  k: 0:3
  alpha: [0, 3]
chunk_rows: 32
"""
_WORDS = ("run", "sweep.yaml", "--cluster", "cluster.yaml", "--json", "--output")


def points_of(text: str) -> list[int]:
    """Points that were evaluated, by the lines of progress."""
    return [int(number) for number in re.findall(r"^point (\d+)/", text, re.MULTILINE)]


def workers_of(processes: Processes) -> list[int]:
    """Processes that work: children of the nannies' process, but for what they share."""
    nanny = processes.started[1].pid
    children = Path(f"/proc/{nanny}/task/{nanny}/children").read_text().split()
    grandchildren = [
        int(pid) for child in children for pid in Path(f"/proc/{child}/task/{child}/children").read_text().split()
    ]
    return grandchildren or [int(pid) for pid in children]


@pytest.mark.slow
def test_a_sweep_whose_workers_and_scheduler_are_killed(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(_JOB)
    with command(tmp_path, "run", "sweep.yaml", "--cluster", "threads.yaml", "--json") as run:
        expected = run.report()["result_digest"]
    processes.start(preload=slow_module(tmp_path, 0.1))
    with command(tmp_path, *_WORDS, "out") as run:
        run.wait_until(lambda: points_of(run.err), "the first point")
        for pid in workers_of(processes):
            os.kill(pid, signal.SIGKILL)
        done = len(points_of(run.err))
        run.wait_until(lambda: len(points_of(run.err)) > done, "a point after workers were killed")
        processes.kill_scheduler()
        error = run.error(3)
        before = len(points_of(run.err))
    assert "lost the scheduler" in error
    assert "--resume" in error
    processes.start(preload=slow_module(tmp_path, 0.01))
    with command(tmp_path, *_WORDS, "out", "--resume", "--set", "sweep.k=0:2") as other:
        assert "unfinished run of another job (different parameters)" in other.error(2)
    with command(tmp_path, *_WORDS, "out", "--resume") as resumed:
        assert resumed.report()["result_digest"] == expected
    # Only what was not done yet; points that were found are reported as well, or not at all.
    assert before >= 2
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["sweep.html", "sweep.json"]
