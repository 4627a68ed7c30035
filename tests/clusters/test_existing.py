"""A running scheduler: the result of threads, and its loss while a command waits for workers."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from dask_processes import dask

from reid_dist.clusters import connect, read_cluster
from reid_dist.errors import ClusterError

pytestmark = pytest.mark.slow


def test_the_result_of_threads(evaluate_on, sets, scheduler, tmp_path: Path) -> None:
    address = json.loads((tmp_path / "scheduler.json").read_text())["address"]
    with dask(tmp_path, "worker", "--nworkers", "2", "--nthreads", "1"):
        for name, where in enumerate((f"scheduler_file: {tmp_path / 'scheduler.json'}", f"address: {address}")):
            text = f"kind: existing\n{where}\nwait_for_workers: 2\ntimeout_s: 60\n"
            done = evaluate_on(text, "--output", str(tmp_path / f"out-{name}"))
            assert done.digest == sets.digest
            (warning,) = (line for line in done.err.splitlines() if line.startswith("warning: "))
            assert warning.startswith(f"warning: {address} does not use TLS: every user of this machine can run code ")
        text = text.replace("for_workers: 2", "for_workers: 9").replace("timeout_s: 60", "timeout_s: 3")
        evaluate_on(text).assert_one_line(3, "fewer than 9 workers after 3 s")
        assert scheduler.poll() is None, "it is left running"


def test_a_scheduler_that_is_lost_before_workers_come(scheduler, tmp_path: Path) -> None:
    scheduler_file, cluster = tmp_path / "scheduler.json", tmp_path / "cluster.yaml"
    cluster.write_text(f"kind: existing\nscheduler_file: {scheduler_file}\nwait_for_workers: 1\ntimeout_s: 300\n")
    # Some seconds after the client has found it.
    timer = threading.Timer(3, scheduler.kill)
    timer.start()
    begin = time.monotonic()
    try:
        with pytest.raises(ClusterError) as caught, connect(read_cluster(cluster)):
            pass
    finally:
        timer.join()
    # Long before the timeout for workers.
    assert time.monotonic() - begin < 100
    message = str(caught.value)
    assert message.startswith(f"lost the scheduler of {scheduler_file} while waiting for workers")
    assert "\n" not in message
