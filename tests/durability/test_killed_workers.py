"""Workers are killed in the middle of a run: others take over, or nannies start new ones, and the answer stays."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from disturbed_runs import CHUNK_ROWS, N_WORKERS, begun, finished, open_sets, save_sets, slow_module, undisturbed
from support.local_workers import started
from support.processes import wait_until

from reid_dist import evaluate

pytestmark = pytest.mark.slow


def load(module: str) -> int:
    """Run a file in a worker, and return its process id."""
    exec(compile(Path(module).read_text(), module, "exec"), {})
    return os.getpid()


@pytest.mark.parametrize("n_killed", [1, N_WORKERS])
def test_killed_workers_are_replaced(tmp_path: Path, n_killed: int) -> None:
    save_sets(tmp_path)
    workspace, killed = tmp_path / "workspace", []
    with started(N_WORKERS, tmp_path / "dask") as client:
        workers = list(client.run(load, str(slow_module(tmp_path, 0.25))).values())

        def kill() -> None:
            wait_until(lambda: len(finished(workspace)) >= 3, "the first parts")
            for worker in workers[:n_killed]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

        thread = threading.Thread(target=kill)
        thread.start()
        report = evaluate(*open_sets(tmp_path), client=client, workspace=workspace, chunk_rows=CHUNK_ROWS)
        thread.join()
    assert len(killed) == n_killed
    assert report.result_digest == undisturbed(tmp_path)
    # What is written down is not computed again, although Dask has lost it: twice is only what was in flight.
    assert len(begun(tmp_path)) - len(set(begun(tmp_path))) <= n_killed
